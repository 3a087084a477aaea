"""Run one statement for a request, and stop it when its time is up or when somebody asks for it.

| a request may take | |
|---|---|
| its seconds | for all its statements together |
| its bytes | of rows that are fetched |
| `MOST_ROWS` rows, `MOST_CELLS` cells | of an answer that is fetched |
| `APART` of memory | for what DuckDB computes from answers |

What is read from a release runs on the release's connection. What a user computes from answers runs apart from it, in
an empty database that one request has to itself: a statement that fills its memory takes none from anybody else.
`dpsql.sql.parse` bounds what DuckDB's memory limit does not count, texts that are being computed.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import duckdb

from dpsql.errors import DataError, NotSupportedError
from dpsql.release import Release
from dpsql.release.read import LOCKDOWN
from dpsql.release.request import TICK, executed, requested, size_of

MOST_ROWS, MOST_CELLS = 2**20, 2**23
"""BI tools ask for up to 1,048,575 rows."""
APART = "200MB"
MOST_APART, MOST_OF_A_ROLE = 8, 4
"""So many requests compute at a time, each with a database to itself, and so many of one role; further ones wait."""
FIRST_ROWS, CHUNK_ROWS, CHUNK_BYTES = 2**6, 2**12, 2**22
"""Rows that are fetched at first, and of later chunks at most: a row may follow thousands of cells."""


class Rowset(NamedTuple):
    """Names, DuckDB types and rows of a statement."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class Databases:
    """The databases for `run_apart`; one role that fills its share keeps no other role waiting."""

    def __init__(self) -> None:
        self._free: list[duckdb.DuckDBPyConnection | None] = [None] * MOST_APART  # opened when first needed
        self._of_role: Counter[str] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def database(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A database of the current request, while the block runs.

        Raises:
            QueryTimeout: the request ended before one was free.
        """
        with requested() as request:
            role = request.role
            with self._changed:
                while not self._free or (role and self._of_role[role] >= MOST_OF_A_ROLE):
                    self._changed.wait(TICK)
                    request.check()
                database = self._free.pop()
                self._of_role[role] += 1
            try:
                if database is None:  # it spills nothing: it would do so in the working directory
                    database = duckdb.connect(config={"temp_directory": ""})
                    # one by one, for every cursor: nothing can be said of that folder once files are out of reach
                    for setting, value in (LOCKDOWN | {"memory_limit": APART}).items():
                        database.execute(f"SET GLOBAL {setting} = '{value}'")
                yield database
            finally:
                with self._changed:
                    self._free.append(database)
                    self._of_role[role] -= 1
                    self._changed.notify_all()


_databases = Databases()


def prepared(release: Release, sql: str) -> duckdb.Statement:
    """A statement of our own making that comes again with other values, parsed once."""
    return release.kept(sql, lambda: release.connection.cursor().extract_statements(sql)[0])


def run(release: Release, sql: str | duckdb.Statement, values: Sequence[Any] = ()) -> Rowset:
    """Run a statement of our own making on a release and fetch all of it.

    Args:
        release: an open release.
        sql: DuckDB text, or what `prepared` made of it.
        values: for its placeholders.

    Returns:
        What it gave.

    Raises:
        QueryTimeout: it was stopped.
        ReleaseError: a block of the file fails its checksum, or is not there.
        duckdb.Error: anything else; callers know what it means to them.
    """
    return release.read(sql, values, partial(_answer, rows=duckdb.DuckDBPyConnection.fetchall))


def rows_of(release: Release, sql: duckdb.Statement, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows alone of a statement that `prepared` made; raises as `run`."""
    return release.read(sql, values, duckdb.DuckDBPyConnection.fetchall)


def run_apart(sql: str, values: Sequence[Any]) -> Rowset:
    """Run what a user computes from answers, whitelisted and written again, apart from every release.

    Args:
        sql: DuckDB text that reads nothing but its values.
        values: for its placeholders.

    Returns:
        What it gave.

    Raises:
        QueryTimeout: it was stopped.
        NotSupportedError: more memory, rows or text than a request may take.
        duckdb.Error: anything else; callers know what it means to them.
    """
    with requested() as request, request.giving_back(), _databases.database() as database:
        try:
            return executed(database.cursor(), sql, values, partial(_answer, rows=_limited))
        except duckdb.OutOfMemoryException as error:
            raise NotSupportedError(
                f"the statement takes more than {APART} of memory", hint="join fewer rows, or ask in parts"
            ) from error


def _answer(
    cursor: duckdb.DuckDBPyConnection, rows: Callable[[duckdb.DuckDBPyConnection], list[tuple[Any, ...]]]
) -> Rowset:
    described = cursor.description or []
    return Rowset(tuple(str(c[0]) for c in described), tuple(str(c[1]) for c in described), rows(cursor))


def _limited(cursor: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """All rows, as long as they stay within a request's limits; they are fetched as they are computed."""
    rows: list[tuple[Any, ...]] = []
    cells, chunk_rows = 0, FIRST_ROWS
    with requested() as request:
        while chunk := cursor.fetchmany(chunk_rows):
            request.check()
            size = size_of(chunk)
            request.take(size)
            chunk_rows = min(CHUNK_ROWS, 1 + CHUNK_BYTES * len(chunk) // size)
            rows += chunk
            cells += len(chunk) * len(chunk[0])
            if len(rows) > MOST_ROWS or cells > MOST_CELLS:
                raise NotSupportedError(
                    f"the answer has more than {MOST_ROWS} rows or {MOST_CELLS} cells",
                    hint="add a LIMIT or group by less",
                )
    return rows


class AnswerRelation(NamedTuple):
    """A relation that the statement reads: name, columns, DuckDB types and values column by column."""

    name: str
    columns: Sequence[str]
    types: Sequence[str]
    values: Sequence[Any]

    @property
    def source(self) -> str:
        """Its definition, with a placeholder for each column."""
        fields = ", ".join(
            f"unnest(?::{kind}[]) AS {column}" for column, kind in zip(self.columns, self.types, strict=True)
        )
        return f"{self.name} AS (SELECT {fields})"


def in_order(
    wanted: Sequence[tuple[Any, ...]], rows: Sequence[tuple[Any, ...]]
) -> list[tuple[Any, ...] | None]:
    """Rows of a second run in the order of the first: DuckDB may order ties, and what is not sorted, as it likes."""
    visible = [row[: len(wanted[0])] if wanted else row for row in rows]
    if list(wanted) == visible:
        return list(rows)
    places: dict[str, list[tuple[Any, ...]]] = {}
    for shown, row in zip(visible, rows, strict=True):
        places.setdefault(repr(shown), []).append(row)
    return [places[repr(row)].pop(0) if places.get(repr(row)) else None for row in wanted]


def finite_rows(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows without NaN or infinity: what a statement computes is guarded (`sql.finite`), text that it casts is not."""
    if not any(isinstance(value, float) and not math.isfinite(value) for row in rows for value in row):
        return rows
    return [
        tuple(None if isinstance(value, float) and not math.isfinite(value) else value for value in row)
        for row in rows
    ]


UNBOUND = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)
"""What DuckDB raises of a statement that it cannot bind to columns and types."""


def bad_expression(error: duckdb.Error, texts: Sequence[str] = ()) -> DataError:
    """DuckDB's complaint, as a typed error of one line.

    Args:
        error: the complaint.
        texts: columns of text that the expression reads.
    """
    reason = str(error).splitlines()[0].partition(" when casting from source column")[0]
    if isinstance(error, UNBOUND):  # it names columns that are ours
        reason = "an expression does not fit the types of its columns"
        reason += f"; {' and '.join(texts)} {'holds' if len(texts) == 1 else 'hold'} text" if texts else ""
    return DataError(reason[:300], hint="check its types and casts")
