"""Statements that run for a limited time: a watchdog stops what takes too long or is not wanted any more.

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
from typing import Any, TypeVar

import duckdb

from dpsql.errors import Interrupted, QueryTimeout

LIMIT = 30.0
"""Seconds that a question may take, with all the statements that it needs."""
TICK = 0.1
STOPPED = "the statement was stopped"

T = TypeVar("T")


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
_running: set[Running] = set()
_guard = threading.Condition()
_stop = threading.Event()
_threads: list[threading.Thread] = []


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


def executed(
    cursor: duckdb.DuckDBPyConnection,
    sql: str | duckdb.Statement,
    values: Sequence[Any],
    fetch: Callable[[duckdb.DuckDBPyConnection], T],
    limit: float = LIMIT,
) -> T:
    """Run a statement on a cursor of its own, which is closed afterwards, and fetch from it.

    Args:
        cursor: where.
        sql: DuckDB text.
        values: for its placeholders.
        fetch: what is wanted of its result.
        limit: seconds until it is stopped.

    Raises:
        QueryTimeout: it was stopped.
        duckdb.Error: anything else.
    """
    asked, until, now = _asking.get(), _until.get(), time.monotonic()
    if asked is not None and asked.stopped:
        raise QueryTimeout(STOPPED)
    deadline = now + limit if until is None else min(now + limit, until)
    if deadline <= now:
        raise too_late(limit)
    running = Running(deadline, cursor, asked)
    with _guard:
        _running.add(running)
        if not _threads:
            _threads.append(threading.Thread(target=_watch, name="dpsql-watchdog", daemon=True))
            _threads[0].start()
        elif len(_running) == 1:
            _guard.notify()
    try:
        return fetch(cursor.execute(sql, list(values)))
    except duckdb.InterruptException as error:
        if time.monotonic() < running.deadline:  # by Ctrl-C or by request
            raise QueryTimeout(STOPPED) from error
        raise too_late(limit) from error
    finally:
        with _guard:
            _running.discard(running)
        cursor.close()  # what was stopped goes on in its database until its cursor is closed


def too_late(limit: float) -> QueryTimeout:
    """The error of a question that took too long."""
    return QueryTimeout(f"the statement was stopped after {limit:g} s", hint="ask for less")


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
