"""PEP 249 over releases: `dpsql.connect(path)` gives a connection that any DB-API client can use.

Statements are read-only, so commit and rollback do nothing. `?` and `:name` placeholders both work;
`paramstyle` names the first. An answer's rows stay in memory, and cursors fetch them from there.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

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
from dpsql.interfaces.python.scan import Parameters, bind
from dpsql.release.request import requested

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
