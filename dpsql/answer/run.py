"""Run one statement within a question's limits, and stop it when it takes too long or when somebody asks for it.

| a question may take | |
|---|---|
| `LIMIT` seconds | for all its statements together |
| `MOST_ROWS` rows, `MOST_CELLS` cells, `MOST_TEXT` characters | of an answer that is fetched |
| `APART` of memory | for what a user computes from answers |

What is read from a release runs on the release's connection. What a user computes from answers runs apart from it, in
an empty database that one question has to itself: a statement that fills its memory takes none from anybody else.
`dpsql.answer.sql.growth` bounds what DuckDB's memory limit does not count, texts that are being computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, LifoQueue
from typing import Any, NamedTuple

import duckdb

from dpsql.errors import NotSupportedError
from dpsql.release import Release
from dpsql.release.read import LOCKDOWN
from dpsql.release.watch import LIMIT, executed, too_late

MOST_ROWS, MOST_CELLS, MOST_TEXT = 2**20, 2**23, 2**26
"""BI tools ask for up to 1,048,575 rows."""
APART = "300MB"
MOST_APART = 8
"""So many questions compute at a time, each with a database to itself; further ones wait."""
CHUNK = 2**12

_apart: LifoQueue[duckdb.DuckDBPyConnection | None] = LifoQueue()
for _ in range(MOST_APART):
    _apart.put(None)  # made when first needed


class Answer(NamedTuple):
    """Names, DuckDB types and rows of a statement."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def prepared(release: Release, sql: str) -> duckdb.Statement:
    """A statement of our own making that comes again with other values, parsed once."""
    return release.kept(sql, lambda: release.connection.cursor().extract_statements(sql)[0])


def run(
    release: Release, sql: str | duckdb.Statement, values: Sequence[Any] = (), *, limit: float = LIMIT
) -> Answer:
    """Run a statement of our own making on a release and fetch all of it.

    Args:
        release: an open release.
        sql: DuckDB text, or what `prepared` made of it.
        values: for its placeholders.
        limit: seconds until it is stopped.

    Returns:
        What it gave.

    Raises:
        QueryTimeout: it was stopped.
        ReleaseError: a block of the file fails its checksum, or is not there.
        duckdb.Error: anything else; callers know what it means to them.
    """
    return release.read(sql, values, partial(_answer, rows=_everything), limit)


def rows_of(release: Release, sql: duckdb.Statement, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows alone of a statement that `prepared` made; raises as `run`."""
    return release.read(sql, values, _everything)


def run_apart(sql: str, values: Sequence[Any], *, limit: float = LIMIT) -> Answer:
    """Run what a user computes from answers, whitelisted and written again, apart from every release.

    Args:
        sql: DuckDB text that reads nothing but its values.
        values: for its placeholders.
        limit: seconds until it is stopped.

    Returns:
        What it gave.

    Raises:
        QueryTimeout: it was stopped.
        NotSupportedError: more memory, rows or text than a question may take.
        duckdb.Error: anything else; callers know what it means to them.
    """
    try:
        database = _apart.get(timeout=limit)
    except Empty:
        raise too_late(limit) from None
    try:
        database = database or _made_apart()
        return executed(database.cursor(), sql, values, partial(_answer, rows=_limited), limit)
    except duckdb.OutOfMemoryException as error:
        raise NotSupportedError(
            f"the statement takes more than {APART} of memory", hint="join fewer rows, or ask in parts"
        ) from error
    finally:
        _apart.put(database)


def _made_apart() -> duckdb.DuckDBPyConnection:
    """A database for `run_apart`, which spills nothing: it would do so in the working directory.

    Settings come one by one, for every cursor: nothing can be said of that folder once files are out of reach.
    """
    database = duckdb.connect(config={"temp_directory": ""})
    for setting, value in (LOCKDOWN | {"memory_limit": APART}).items():
        database.execute(f"SET GLOBAL {setting} = '{value}'")
    return database


def _answer(
    result: duckdb.DuckDBPyConnection, rows: Callable[[duckdb.DuckDBPyConnection], list[tuple[Any, ...]]]
) -> Answer:
    described = result.description or []
    return Answer(tuple(str(c[0]) for c in described), tuple(str(c[1]) for c in described), rows(result))


def _everything(result: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    return result.fetchall()


def _limited(result: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """All rows, as long as they stay within a question's limits; they are fetched as they are computed."""
    rows: list[tuple[Any, ...]] = []
    cells = text = 0
    while chunk := result.fetchmany(CHUNK):
        rows += chunk
        cells += len(chunk) * len(chunk[0])
        text += sum(len(value) for row in chunk for value in row if isinstance(value, str | list))
        if len(rows) > MOST_ROWS or cells > MOST_CELLS or text > MOST_TEXT:
            raise NotSupportedError(
                f"the answer has more than {MOST_ROWS} rows, {MOST_CELLS} cells or {MOST_TEXT} characters",
                hint="add a LIMIT or group by less",
            )
    return rows
