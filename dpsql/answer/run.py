"""Run one statement on a release's connection, and stop it when it takes too long or when somebody asks for it.

Interrupting a connection does not stop its cursors, so the watchdog holds the very cursor that runs. It looks again
and again, since an interrupt that comes before DuckDB has begun is lost.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb

from dpsql.errors import QueryTimeout, ReleaseError
from dpsql.release import Release

LIMIT = 30.0
"""Seconds that a single DuckDB statement may take."""
TICK = 0.1
STOPPED = "the statement was stopped"
DAMAGE = "Corrupt database file"
"""What DuckDB says of a block whose checksum does not match, under several of its error classes."""


class Stopper:
    """Stops what one user has asked, from another thread.

    A question takes several DuckDB statements; all that run inside `statement` are one.
    """

    def __init__(self) -> None:
        self._busy, self.stopped, self._lock = False, False, threading.Lock()

    @contextmanager
    def statement(self) -> Iterator[None]:
        """What is run in this block, and in threads that get a copy of its context, is one question."""
        with self._lock:
            self._busy, self.stopped = True, False
        before = _asking.set(self)
        try:
            yield
        finally:
            _asking.reset(before)
            with self._lock:
                self._busy, self.stopped = False, False

    def stop(self) -> None:
        """Stop the question that is being answered; nothing if there is none."""
        with self._lock:
            self.stopped = self._busy


@dataclass(frozen=True, eq=False)
class Running:
    """A statement that runs: until when it may, its cursor, and who may stop it."""

    deadline: float
    cursor: duckdb.DuckDBPyConnection
    stopper: Stopper | None


_asking: ContextVar[Stopper | None] = ContextVar("dpsql_asking", default=None)
_running: set[Running] = set()
_guard = threading.Condition()
_stop = threading.Event()
_threads: list[threading.Thread] = []


class Answer(NamedTuple):
    """Names, DuckDB types and rows of a statement."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def run(release: Release, sql: str, values: Sequence[Any] = (), *, limit: float = LIMIT) -> Answer:
    """Run a statement of our own making and fetch all of it.

    Args:
        release: an open release.
        sql: DuckDB text.
        values: for its placeholders.
        limit: seconds until it is stopped.

    Returns:
        What it gave.

    Raises:
        QueryTimeout: it was stopped.
        ReleaseError: a block of the file fails its checksum, or is not there.
        duckdb.Error: anything else; callers know what it means to them.
    """
    stopper = _asking.get()
    if stopper is not None and stopper.stopped:
        raise QueryTimeout(STOPPED)
    cursor = release.connection.cursor()
    running = Running(time.monotonic() + limit, cursor, stopper)
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
        rows = result.fetchall()
    except duckdb.InterruptException as error:
        if time.monotonic() < running.deadline:  # by Ctrl-C or by request
            raise QueryTimeout(STOPPED) from error
        raise QueryTimeout(f"the statement was stopped after {limit:g} s", hint="ask for less") from error
    except duckdb.Error as error:
        if isinstance(error, duckdb.IOException) or DAMAGE in str(error):
            raise ReleaseError(
                f"{release.path} is damaged", hint="ask its curator for a fresh copy"
            ) from error
        raise
    finally:
        with _guard:
            _running.discard(running)
    return Answer(tuple(str(c[0]) for c in described), tuple(str(c[1]) for c in described), rows)


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
        if now > each.deadline or (each.stopper is not None and each.stopper.stopped):
            each.cursor.interrupt()


def _end() -> None:
    """Let the watchdog go before the interpreter takes DuckDB's module apart."""
    _stop.set()
    with _guard:
        _guard.notify_all()
    for thread in _threads:
        thread.join(1.0)


atexit.register(_end)
