"""Run one statement within a question's limits, and stop it when it takes too long or when somebody asks for it.

| a question may take | |
|---|---|
| `LIMIT` seconds | for all its statements together |
| `MOST_ROWS` rows, `MOST_CELLS` cells, `MOST_TEXT` characters | of an answer that is fetched |
| `APART` of memory | for what a user computes from answers |

What is read from a release runs on the release's connection. What a user computes from answers runs apart from it, in
an empty database that one question has to itself: a statement that fills its memory takes none from anybody else.
`dpsql.answer.sql.growth` bounds what DuckDB's memory limit does not count, texts that are being computed.

Interrupting a connection does not stop its cursors, so the watchdog holds the very cursor that runs. It looks again
and again, since an interrupt that comes before DuckDB has begun is lost.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from queue import Empty, LifoQueue
from typing import Any, NamedTuple, TypeVar

import duckdb

from dpsql.errors import Interrupted, NotSupportedError, QueryTimeout, ReleaseError
from dpsql.release import Release
from dpsql.release.read import LOCKDOWN

T = TypeVar("T")

LIMIT = 30.0
"""Seconds that a question may take, with all the statements that it needs."""
MOST_ROWS, MOST_CELLS, MOST_TEXT = 2**20, 2**23, 2**26
"""BI tools ask for up to 1,048,575 rows."""
APART = "300MB"
MOST_APART = 8
"""So many questions compute at a time, each with a database to itself; further ones wait."""
CHUNK = 2**12
TICK = 0.1
STOPPED = "the statement was stopped"
DAMAGE = "Corrupt database file"
"""What DuckDB says of a block whose checksum does not match, under several of its error classes."""


@dataclass(eq=False)
class Asked:
    """A question that is being answered, and whether its answer is still wanted."""

    stopped: bool = False


class Stopper:
    """Stops what one user has asked, from another thread.

    A question takes several DuckDB statements; all that run inside `statement` are one.
    """

    def __init__(self) -> None:
        self._asked: Asked | None = None

    @property
    def stopped(self) -> bool:
        """Whether what is being asked was stopped."""
        asked = self._asked
        return asked is not None and asked.stopped

    @contextmanager
    def statement(self) -> Iterator[None]:
        """What is run in this block, and in threads that get a copy of its context, is one question.

        Who leaves the block by an error wants no answer: threads that still work on it stop.
        """
        self._asked = asked = Asked()
        before = _asking.set(asked)
        try:
            yield
        except BaseException:
            asked.stopped = True
            raise
        finally:
            _asking.reset(before)
            self._asked = None

    def stop(self) -> None:
        """Stop the question that is being answered; nothing if there is none."""
        asked = self._asked
        if asked is not None:
            asked.stopped = True


@dataclass(frozen=True, eq=False)
class Running:
    """A statement that runs: until when it may, its cursor, and whether its answer is still wanted."""

    deadline: float
    cursor: duckdb.DuckDBPyConnection
    asked: Asked | None


_asking: ContextVar[Asked | None] = ContextVar("dpsql_asking", default=None)
_until: ContextVar[float | None] = ContextVar("dpsql_until", default=None)
_apart: LifoQueue[duckdb.DuckDBPyConnection | None] = LifoQueue()
for _ in range(MOST_APART):
    _apart.put(None)  # made when first needed
_running: set[Running] = set()
_guard = threading.Condition()
_stop = threading.Event()
_threads: list[threading.Thread] = []


class Answer(NamedTuple):
    """Names, DuckDB types and rows of a statement."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def heeding_keys(work: Callable[[], T]) -> T:
    """Do some work in a thread of its own, so that Ctrl-C stops what it asks.

    Python heeds a signal in its main thread only. There DuckDB itself looks for one, but between tasks, and a join
    may be a single task that takes hours.

    Args:
        work: what asks.

    Returns:
        What it gave.

    Raises:
        Interrupted: Ctrl-C was pressed before the last of its statements.
        QueryTimeout: it took too long.
    """
    stopper, pressed = Stopper(), False
    with stopper.statement(), ThreadPoolExecutor(1) as worker:
        done = worker.submit(copy_context().run, work)
        while not done.done():
            try:
                wait([done], timeout=1.0)  # Windows heeds no key while a thread waits
            except KeyboardInterrupt:
                pressed = True
                stopper.stop()
        try:
            return done.result()
        except QueryTimeout as error:
            if pressed:
                raise Interrupted(STOPPED) from error
            raise


@contextmanager
def question(seconds: float = LIMIT) -> Iterator[None]:
    """All statements that are run in this block share one limit of time; inside another question, that one's.

    Args:
        seconds: until it is stopped.
    """
    if _until.get() is not None:
        yield
        return
    before = _until.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(before)


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
    try:
        return _run(release.connection.cursor(), sql, values, limit, _everything)
    except duckdb.Error as error:
        if isinstance(error, duckdb.IOException) or DAMAGE in str(error):
            raise ReleaseError(
                f"{release.path} is damaged", hint="ask its curator for a fresh copy"
            ) from error
        raise


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
        raise _too_late(limit) from None
    try:
        database = database or duckdb.connect(config=LOCKDOWN | {"memory_limit": APART})
        return _run(database.cursor(), sql, values, limit, _limited)
    except duckdb.OutOfMemoryException as error:
        raise NotSupportedError(
            f"the statement takes more than {APART} of memory", hint="join fewer rows, or ask in parts"
        ) from error
    finally:
        _apart.put(database)


def _run(
    cursor: duckdb.DuckDBPyConnection,
    sql: str | duckdb.Statement,
    values: Sequence[Any],
    limit: float,
    fetch: Callable[[duckdb.DuckDBPyConnection], list[tuple[Any, ...]]],
) -> Answer:
    asked, until, now = _asking.get(), _until.get(), time.monotonic()
    if asked is not None and asked.stopped:
        raise QueryTimeout(STOPPED)
    deadline = now + limit if until is None else min(now + limit, until)
    if deadline <= now:
        raise _too_late(limit)
    running = Running(deadline, cursor, asked)
    with _guard:
        _running.add(running)
        if not _threads:
            _threads.append(threading.Thread(target=_watch, name="dpsql-watchdog", daemon=True))
            _threads[0].start()
        elif len(_running) == 1:
            _guard.notify()
    try:
        result = cursor.execute(sql, list(values))
        described = result.description or []
        rows = fetch(result)
    except duckdb.InterruptException as error:
        if time.monotonic() < running.deadline:  # by Ctrl-C or by request
            raise QueryTimeout(STOPPED) from error
        raise _too_late(limit) from error
    finally:
        with _guard:
            _running.discard(running)
        cursor.close()  # what was stopped goes on in its database until its cursor is closed
    return Answer(tuple(str(c[0]) for c in described), tuple(str(c[1]) for c in described), rows)


def _too_late(limit: float) -> QueryTimeout:
    return QueryTimeout(f"the statement was stopped after {limit:g} s", hint="ask for less")


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


def _watch() -> None:
    """Interrupt what has run past its time or is not wanted any more; sleep while nothing runs."""
    while not _stop.is_set():
        with _guard:
            while not _running and not _stop.is_set():
                _guard.wait()
            _interrupt_late(time.monotonic())
        _stop.wait(TICK)


def _interrupt_late(now: float) -> None:
    for each in _running:
        if now > each.deadline or (each.asked is not None and each.asked.stopped):
            each.cursor.interrupt()


def _end() -> None:
    """Let the watchdog go before the interpreter takes DuckDB's module apart."""
    _stop.set()
    with _guard:
        _guard.notify_all()
    for thread in _threads:
        thread.join(1.0)


atexit.register(_end)
