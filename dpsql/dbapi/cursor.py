"""PEP 249 cursors: one statement at a time, its rows fetched from memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dpsql.dbapi.binding import Parameters, bind
from dpsql.dbapi.types import TypeObject, type_of
from dpsql.errors import InterfaceError, ProgrammingError

if TYPE_CHECKING:
    from dpsql.answer import Result
    from dpsql.answer.result import Grid
    from dpsql.dbapi.connection import Connection

Row = tuple[Any, ...]
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
        return self.result.stderr_rows

    def interval(self, level: float = 0.95) -> tuple[Grid, Grid]:
        """Low and high ends of every value's interval, each in the shape of the rows; None where not defined."""
        return self.result.interval_rows(level)

    @property
    def model_bound(self) -> Grid:
        """The most that cutting a bin may add to every value, in the shape of the rows; 0 where none is cut."""
        return self.result.model_bound

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the last answer should know."""
        return self.result.notes

    @property
    def plan(self) -> tuple[str, ...]:
        """How the last statement was answered, as numbered stages."""
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
            self._result = connection.settings.of(connection.session).query(sql)
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
