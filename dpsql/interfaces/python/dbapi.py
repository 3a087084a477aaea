"""PEP 249 over releases: `dpsql.connect(path)` gives a connection that any DB-API client can use.

Statements are read-only, so commit and rollback do nothing. `?` and `:name` placeholders both work;
`paramstyle` names the first. An answer's rows stay in memory, and cursors fetch them from there.
"""

from __future__ import annotations

import datetime
import decimal
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsql import errors
from dpsql.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from dpsql.federation.session import OpenReleases, Settings, open_session
from dpsql.release.request import requested

Parameters = Sequence[Any] | Mapping[str, Any]

# SQL as people and drivers type it is scanned before any parser for where statements end and placeholders stand. What
# stands inside quotes or comments is copied as it is. `;` outside of them ends a statement; a line that begins with a
# backslash or a dot is a command of the shell. A parameter is written as a literal of its type and can end neither its
# quotes nor the token it stands in, so it never changes what is asked.
TOKEN = re.compile(
    r"""(?P<skip>(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|::"""
    r"""|\$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?\$(?P=tag)\$)"""
    r"""|(?P<end>;)|(?P<open>'|"|/\*|\$(?:[A-Za-z_]\w*)?\$)"""
    r"""|(?P<mark>\?)|(?P<named>(?<![\w:]):[A-Za-z_]\w*)|(?P<number>(?<![\w$])\$\d+)|(?P<other>\w+|[\s(),.=<>+*]+|.)""",
    re.DOTALL,
)
LEADING = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
COMMAND = re.compile(r"\s*(?:[\\.][A-Za-z?]|(?:help|quit|exit)[ \t]*;?[ \t]*(?:\n|$))", re.IGNORECASE)


class InputPiece(NamedTuple):
    """A statement without its `;`, or a command line."""

    text: str
    command: bool


def is_command(line: str) -> bool:
    """True if a line, at the start of a statement, is a command.

    >>> is_command("\\\\d sales"), is_command(".tables"), is_command("help"), is_command("help me")
    (True, True, True, False)
    """
    return COMMAND.match(line) is not None


def split(text: str) -> tuple[list[InputPiece], str]:
    """Whole pieces and what is left unfinished.

    Args:
        text: any number of lines.

    Returns:
        (pieces, rest); the rest is blank, comments, or a statement that has no `;` yet.

    >>> split("\\\\x\\nSELECT 1; SELECT ';")
    ([InputPiece(text='\\\\x', command=True), InputPiece(text='SELECT 1', command=False)], " SELECT ';")
    """
    pieces: list[InputPiece] = []
    while begun := text[LEADING.match(text).end() :]:  # type: ignore[union-attr]  # matches the empty text too
        if is_command(begun):
            line, _, text = begun.partition("\n")
            pieces.append(InputPiece(line.strip().rstrip(";").rstrip(), True))
            continue
        end = _end(begun)
        if end is None:
            break
        statement, text = begun[:end], begun[end + 1 :]
        if statement.strip():
            pieces.append(InputPiece(statement.strip(), False))
    return pieces, text


def _end(text: str) -> int | None:
    """Position of the first `;` outside of quotes and comments; none after quotes that are still open."""
    for token in TOKEN.finditer(text):
        if token.lastgroup == "open":
            return None
        if token.lastgroup == "end":
            return token.start()
    return None


def unfinished(rest: str) -> str:
    """Rest after the last whole piece, without leading blanks and comments.

    >>> unfinished(" -- note"), unfinished("/* a */ SELECT 1")
    ('', 'SELECT 1')
    """
    begun = LEADING.match(rest)
    return rest[begun.end() if begun else 0 :].rstrip()


def bind(sql: str, parameters: Parameters | None) -> str:
    """The statement with its placeholders replaced by literals.

    Args:
        sql: the statement; `?` marks are filled in order, `:name` marks by name.
        parameters: a sequence for `?`, a mapping for `:name`; None leaves the statement as it is.

    Returns:
        A statement without placeholders.

    Raises:
        ProgrammingError: too few or too many values, or an unknown name.
        DataError: a value that has no literal.

    >>> bind("SELECT COUNT(*) FROM t WHERE a = ? AND b = '?'", ["x' OR 1=1 --"])
    "SELECT COUNT(*) FROM t WHERE a = 'x'' OR 1=1 --' AND b = '?'"
    """
    if parameters is None:
        return sql
    if isinstance(parameters, Mapping):
        pieces = []
        for token in TOKEN.finditer(sql):
            if token.lastgroup != "named":
                pieces.append(token.group())
                continue
            name = token.group()[1:]
            if name not in parameters:
                raise ProgrammingError(f"there is no value for :{name}", hint="add it to the mapping")
            pieces.append(literal(parameters[name]))
        return "".join(pieces)
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        raise ProgrammingError(
            "parameters are neither a sequence nor a mapping", hint="pass a tuple or a dict"
        )
    waiting = list(parameters)
    pieces = []
    for token in TOKEN.finditer(sql):
        if token.lastgroup != "mark":
            pieces.append(token.group())
        elif waiting:
            pieces.append(literal(waiting.pop(0)))
        else:
            raise ProgrammingError(f"there are more ? marks than values ({len(parameters)})")
    if waiting:
        marks = len(parameters) - len(waiting)
        raise ProgrammingError(f"there are {marks} ? marks and {len(parameters)} values")
    return "".join(pieces)


def placeholders(sql: str) -> int:
    """The largest `$n` outside of quotes."""
    return max((int(t.group()[1:]) for t in TOKEN.finditer(sql) if t.lastgroup == "number"), default=0)


def literal(value: Any) -> str:
    """A value as a SQL literal that stands for itself anywhere.

    Args:
        value: None, bool, int, float, Decimal, str, date, time, datetime, timedelta, or a list of them.

    Raises:
        DataError: any other type, a NUL character, or a number that is not finite.

    >>> literal(datetime.date(2025, 1, 31)), literal(-3), literal(["a", None])
    ("DATE '2025-01-31'", '(-3)', "('a', NULL)")
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if hasattr(value, "item") and not isinstance(value, datetime.date):
        value = value.item()  # a numpy scalar
    if isinstance(value, int | float | decimal.Decimal):
        if not isinstance(value, int) and not math.isfinite(value):
            raise DataError("a numeric parameter is not finite", hint="use None for a missing value")
        text = format(value, "f") if isinstance(value, decimal.Decimal) else repr(value)
        return f"({text})" if text.startswith("-") else text
    if isinstance(value, str):
        if "\x00" in value:
            raise DataError("a text parameter contains a NUL character", hint="remove it")
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, datetime.time):
        return f"TIME '{value.isoformat()}'"
    if isinstance(value, datetime.timedelta):
        return f"INTERVAL '{value // datetime.timedelta(microseconds=1)}' MICROSECOND"
    if isinstance(value, list | tuple | set | frozenset) and value:
        return "(" + ", ".join(literal(element) for element in value) + ")"
    raise DataError(f"a parameter of type {type(value).__name__} has no SQL literal", hint="convert it first")


if TYPE_CHECKING:
    from dpsql.results.render import Grid
    from dpsql.results.result import Result

__all__ = [
    "BINARY", "DATETIME", "NUMBER", "ROWID", "STRING", "Binary", "Connection", "Cursor", "DataError",
    "DatabaseError", "Date", "DateFromTicks", "Error", "IntegrityError", "InterfaceError", "InternalError",
    "NotSupportedError", "OperationalError", "ProgrammingError", "Time", "TimeFromTicks", "Timestamp",
    "TimestampFromTicks", "Warning", "apilevel", "connect", "paramstyle", "threadsafety",
]  # fmt: skip

apilevel = "2.0"
threadsafety = 2
paramstyle = "qmark"

Row = tuple[Any, ...]


def connect(
    *paths: str | os.PathLike[str],
    insecure: bool = False,
    on_partial_bin: str | None = None,
    nonnegative: bool | None = None,
    as_of: int | str | None = None,
    combine: bool = False,
    require_signature: str | None = None,
) -> Connection:
    """Open releases together.

    Args:
        paths: release files or stream directories; with several of one population, each statement goes to the
            one with the smallest predicted error.
        insecure: also open releases that were drawn with test entropy.
        on_partial_bin: where a predicate cuts a bin, `limit` refuses what would be interpolated by more than half,
            `interpolate` nothing, `refuse` all; by default, and where it says `refuse`, as each catalog says.
        nonnegative: as for `query`.
        as_of: for streams, the newest batch wanted, by number or label; None takes the newest there is. Either
            way the connection keeps that state while batches are appended.
        combine: with several independent releases of one population, answer with their inverse-variance mean,
            cell by cell where groups match; else the smallest error answers alone and the result says so.
        require_signature: a public key, or a file with one a line, of which one must have signed each release; None
            takes `$DPSQL_REQUIRE_SIGNATURE`. `dpsql verify` says who signed a release.

    Returns:
        A read-only connection.

    Raises:
        InterfaceError: no path.
        ReleaseError: a file is not a release.

    **Privacy**: post-processing of releases; costs nothing.
    """
    session = open_session(
        paths, insecure=insecure, on_partial_bin=on_partial_bin, nonnegative=nonnegative, as_of=as_of,
        require_signature=require_signature,
    )  # fmt: skip
    return Connection(replace(session, combine=combine))


class Connection:
    """Open releases. Threads may share it (threadsafety 2); each needs a cursor of its own.

    `SET dp_nonnegative = true` holds for all its cursors, until it is closed; so does any other setting.
    """

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError

    def __init__(self, session: OpenReleases) -> None:
        self.session = session
        self.settings = Settings()
        self._closed = False

    def cursor(self) -> Cursor:
        """A new cursor."""
        self.check_open()
        return Cursor(self)

    def execute(self, operation: str, parameters: Parameters | None = None) -> Cursor:
        """A new cursor with the statement's answer."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Nothing to commit: a release is never written."""
        self.check_open()

    def rollback(self) -> None:
        """Nothing to undo: a release is never written."""
        self.check_open()

    def close(self) -> None:
        """Close the releases.

        Raises:
            InterfaceError: it is closed already.
        """
        self.check_open()
        self._closed = True
        self.session.close()

    def check_open(self) -> None:
        """Refuse a closed connection.

        Raises:
            InterfaceError: it is closed.
        """
        if self._closed:
            raise InterfaceError("the connection is closed", hint="call dpsql.connect again")

    def __enter__(self) -> Connection:
        """This connection; closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, unless the block did."""
        if not self._closed:
            self.close()


class TypeObject:
    """A type code of `cursor.description`; equal to the DuckDB type names that it stands for.

    >>> NUMBER == "BIGINT", STRING == "BIGINT"
    (True, False)
    """

    def __init__(self, name: str, *kinds: str) -> None:
        self.name = name
        self.kinds = frozenset(kinds)

    def __eq__(self, other: object) -> bool:
        """Same object, or a type name that this object stands for."""
        return other is self or (isinstance(other, str) and other.split("(")[0].upper() in self.kinds)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


STRING = TypeObject("STRING", "VARCHAR", "CHAR", "TEXT")
BINARY = TypeObject("BINARY", "BLOB", "BYTEA")
NUMBER = TypeObject(
    "NUMBER", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN"
)  # fmt: skip
DATETIME = TypeObject("DATETIME", "DATE", "TIME", "TIMESTAMP")
ROWID = TypeObject("ROWID", "ROWID")

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:  # noqa: N802 - PEP 249 fixes the name
    """The local date of seconds since the epoch."""
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802 - PEP 249 fixes the name
    """The local time of day of seconds since the epoch."""
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:  # noqa: N802 - PEP 249 fixes the name
    """The local time of seconds since the epoch."""
    return Timestamp(*time.localtime(ticks)[:6])


def type_of(kind: str) -> TypeObject:
    """The type object of a DuckDB type; STRING for types that have none of their own.

    >>> type_of("DECIMAL(9,2)"), type_of("TIMESTAMP WITH TIME ZONE")
    (NUMBER, DATETIME)
    """
    base = kind.upper().split("(")[0].split(" ")[0].removesuffix("_NS").removesuffix("_MS")
    return next((type_object for type_object in (NUMBER, DATETIME, BINARY) if type_object == base), STRING)


Column = tuple[str, TypeObject, None, None, None, None, None]


class Cursor:
    """Executes statements on a connection's releases.

    Besides PEP 249: `stderr`, `interval(level)` and `model_bound` in the shape of the rows, `notes`, `plan`, and
    `result`, the whole answer with `df()`.
    """

    lastrowid = None

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self._result: Result | None = None
        self._next = 0
        self._closed = False

    @property
    def result(self) -> Result:
        """The last answer.

        Raises:
            InterfaceError: nothing was executed.
        """
        self._check_open()
        if self._result is None:
            raise InterfaceError("there are no rows", hint="call execute() first")
        return self._result

    @property
    def description(self) -> tuple[Column, ...] | None:
        """Name and type object of each column; None before the first statement."""
        if self._result is None:
            return None
        return tuple(
            (name, type_of(kind), None, None, None, None, None)
            for name, kind in zip(self._result.columns, self._result.types, strict=True)
        )

    @property
    def rowcount(self) -> int:
        """Rows of the last answer; -1 before the first statement."""
        return -1 if self._result is None else len(self._result.rows)

    @property
    def rownumber(self) -> int | None:
        """Position of the next row; None before the first statement."""
        return None if self._result is None else self._next

    @property
    def stderr(self) -> tuple[tuple[float | None, ...], ...]:
        """Standard errors, one row for each row of the answer; None where a value has none."""
        with requested():
            return self.result.stderr_rows

    def interval(self, level: float = 0.95) -> tuple[Grid, Grid]:
        """Low and high ends of every value's interval, each in the shape of the rows; None where not defined."""
        with requested():
            return self.result.interval_rows(level)

    @property
    def model_bound(self) -> Grid:
        """The most that cutting a bin may add to every value, in the shape of the rows; 0 where none is cut."""
        with requested():
            return self.result.model_bound

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the last answer."""
        return self.result.notes

    @property
    def plan(self) -> tuple[str, ...]:
        """Plan of the last statement, as numbered stages."""
        return self.result.plan

    def execute(self, operation: str, parameters: Parameters | None = None) -> Cursor:
        """Answer one statement, or change a setting of the connection; a change has no rows.

        Args:
            operation: SQL; `?` or `:name` marks take parameters.
            parameters: a sequence or a mapping.

        Returns:
            This cursor, so that it can be iterated at once.
        """
        self._check_open()
        self._result, self._next = None, 0
        sql, connection = bind(operation, parameters), self.connection
        if connection.settings.take(sql) is None:
            with requested():
                self._result = connection.settings.query(connection.session, sql)
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Parameters]) -> Cursor:
        """Answer a statement once for each set of parameters; the last answer stays."""
        self._check_open()
        self._result = None
        for parameters in seq_of_parameters:
            self.execute(operation, parameters)
        return self

    def fetchone(self) -> Row | None:
        """The next row, or None after the last."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """The next `size` (default: arraysize) rows."""
        rows = self.result.rows
        count = self.arraysize if size is None else size
        if count < 0:
            raise ProgrammingError(f"cannot fetch {count} rows", hint="ask for 0 or more")
        start, self._next = self._next, min(self._next + count, len(rows))
        return list(rows[start : self._next])

    def fetchall(self) -> list[Row]:
        """All rows that are left."""
        return self.fetchmany(len(self.result.rows))

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Nothing to reserve."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing to reserve."""

    def close(self) -> None:
        """Forget the answer; the cursor cannot be used again."""
        self._result, self._closed = None, True

    def __iter__(self) -> Iterator[Row]:
        """The rows that are left."""
        while (row := self.fetchone()) is not None:
            yield row

    def __enter__(self) -> Cursor:
        """This cursor; closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed", hint="ask the connection for another")
        self.connection.check_open()
