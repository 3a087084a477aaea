"""A request: somebody who waits for an answer, and how long and in how much memory it is worked out.

| a request has | |
|---|---|
| `seconds` | that may be worked on it, from reading the statement to sending the last row |
| `most_bytes` | that its rows, and the arrays of their errors, may take |
| `stop()` | from any thread: it was cancelled, or whoever waited has left |
| `role` | who waits |
| `began` | what its clock shows: one moment for the whole statement |

An interface makes it and works on it in `working`; everything below asks `current`. DuckDB's statements are
interrupted by a watchdog; loops of Python and numpy go by blocks and ask between them (`blocks`, `paced`). A block
takes well under a second. Time passes only while somebody works: a client who fetches the rest of a portal a minute
later has not used it.

Interrupting a connection does not stop its cursors, so the watchdog holds the very cursor that runs. It looks again
and again, since an interrupt that comes before DuckDB has begun is lost.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, TypeVar
from weakref import WeakSet

import duckdb

from dpsql.errors import Interrupted, MemoryTaken, NotSupportedError, QueryTimeout

LIMIT = 30.0
MOST_BYTES = 250_000_000
"""As they are counted here; the process then holds about 300 MB more."""
TICK = 0.1
STOPPED = "the statement was stopped"
ENTRIES = 1 << 20
"""Entries of a block of arrays: about 20 ms of a matrix product."""
ROWS = 1024
"""Rows of Python values between two looks at the clock."""
NUMBER, LIST, POINTER = 32, 64, 8
"""Bytes of a Python number (24 for a float, 28 or 32 for an integer), of a list, and of each of its entries."""
FIXED = {int, float, bool}

T = TypeVar("T")


class MemoryPool:
    """Memory that all answers of a server share. No role takes more of it than it leaves for the others.

    So one role has at most a half, a second one at most half of the rest, and so on: whoever comes last still
    finds room for a short answer.

    Args:
        most_bytes: of all answers, as `size_of` counts them.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._guard = threading.Lock()
        self._taken: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """Bytes of all answers."""
        with self._guard:
            return self._taken.total()

    def charge(self, charge: Charge, size: int) -> None:
        """Let a charge count so many bytes instead of those that it has; any thread may call this.

        Raises:
            MemoryTaken: more than its role may take; it keeps what it has.
        """
        with self._guard:
            more, role = size - charge.counted, charge.role
            if more > 0 and self._taken[role] + more > self.most_bytes - self._taken.total() - more:
                raise MemoryTaken(
                    "other answers use all the memory that this server allows",
                    hint="close portals and cursors, ask for fewer rows, or ask later",
                )
            self._taken[role] += more
            charge.counted = size
            if not self._taken[role]:
                del self._taken[role]  # names are of clients, and endless


@dataclass(eq=False)
class Charge:
    """Bytes that one answer holds, of a pool where there is one.

    Args:
        role: who holds them.
        pool: what they are of; None for a library's caller, who shares with nobody.
        counted: bytes.
    """

    role: str
    pool: MemoryPool | None
    counted: int = 0

    def count(self, size: int) -> None:
        """Hold so many bytes, and no others.

        Raises:
            MemoryTaken: its role may not take more.
        """
        if self.pool is None:
            self.counted = size
        else:
            self.pool.charge(self, size)


class Request:
    """One answer that somebody waits for.

    Args:
        seconds: of work until it is stopped.
        most_bytes: that its rows and arrays may take.
        role: who waits; empty where nobody logged in.
        pool: of which its bytes are; None where answers share nothing.
    """

    def __init__(
        self,
        seconds: float = LIMIT,
        most_bytes: int = MOST_BYTES,
        role: str = "",
        pool: MemoryPool | None = None,
    ) -> None:
        self.seconds, self.most_bytes, self.role = seconds, most_bytes, role
        self.charge = Charge(role, pool)
        self.began = datetime.now(UTC)
        self.stopped = False
        self._seconds_left = seconds
        self._deadline: float | None = None

    @property
    def bytes(self) -> int:
        """Of its rows and arrays, until the answer is complete; then of its rows, until they are sent."""
        return self.charge.counted

    @bytes.setter
    def bytes(self, size: int) -> None:
        self.charge.count(size)

    @property
    def deadline(self) -> float:
        """Deadline, by `time.monotonic`."""
        return time.monotonic() + self._seconds_left if self._deadline is None else self._deadline

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def stop(self) -> None:
        """Let whatever works on it end soon."""
        self.stopped = True

    def check(self) -> None:
        """Go on only while the answer is wanted and its time is not up.

        Raises:
            QueryTimeout: it is not, or it is.
        """
        if self.stopped:
            raise QueryTimeout(STOPPED)
        if time.monotonic() >= self.deadline:
            raise self.too_late()

    def take(self, size: int) -> None:
        """Count bytes that stay until the answer is complete.

        Raises:
            NotSupportedError: they are more than it may take.
        """
        if self.bytes + size > self.most_bytes:
            raise NotSupportedError(
                f"the statement takes more than {self.most_bytes / 1e6:.0f}MB of memory",
                hint="join fewer rows, or ask in parts",
            )
        self.bytes += size

    def too_late(self) -> QueryTimeout:
        """The error once its time is up."""
        return QueryTimeout(f"{STOPPED} after {self.seconds:g} s", hint="ask for less")

    @contextmanager
    def working(self) -> Iterator[Request]:
        """Context manager for work on behalf of this request, against its deadline.

        Raises:
            QueryTimeout: it was stopped before, or no time is left.
        """
        token = _current.set(self)
        self._deadline = time.monotonic() + self._seconds_left
        try:
            self.check()
            yield self
        finally:
            self._seconds_left = self.seconds_left
            self._deadline = None
            _current.reset(token)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """A part of the work that may take less time than is left."""
        deadline, self._deadline = self._deadline, min(self.deadline, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._deadline = deadline

    @contextmanager
    def giving_back(self) -> Iterator[None]:
        """Bytes counted in this block were not kept if it ends by an error."""
        counted = self.bytes
        try:
            yield
        except BaseException:
            self.bytes = counted
            raise

    def run(self, work: Callable[[], T]) -> T:
        """Do some work for it; for another thread to call. Of what was stopped nothing stays."""
        try:
            with self.working():
                return work()
        finally:
            if self.stopped:
                self.bytes = 0


_current: ContextVar[Request | None] = ContextVar("dpsql_request", default=None)


def current() -> Request | None:
    """The request that this thread works on."""
    return _current.get()


def moment() -> datetime:
    """Clock of the current request, in UTC; now, where there is none."""
    request = current()
    return datetime.now(UTC) if request is None else request.began


@contextmanager
def requested(seconds: float = LIMIT) -> Iterator[Request]:
    """Work on the current request, or on a new one where a library's caller is the one who waits.

    Args:
        seconds: of a new one.
    """
    request = current()
    if request is not None:
        yield request
        return
    with Request(seconds).working() as started:
        yield started


def check() -> None:
    """Ask the current request, if there is one, whether to go on."""
    request = current()
    if request is not None:
        request.check()


def take(size: int) -> None:
    """Count bytes for the current request, if there is one."""
    request = current()
    if request is not None:
        request.take(size)


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Blocks of rows of about `ENTRIES` entries; the current request is asked before each.

    >>> [(block.start, block.stop) for block in blocks(5, ENTRIES // 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(1, ENTRIES // max(1, width))
    for start in range(0, rows, step):
        check()
        yield slice(start, min(rows, start + step))


def paced(rows: Iterable[T], size: Callable[[Sequence[T]], int] | None = None) -> Iterator[T]:
    """Rows one after another; the current request is asked before every block of them.

    Args:
        rows: of any kind.
        size: bytes of a block of rows that stay; None where they are counted already.
    """
    source = iter(rows)
    while block := list(islice(source, ROWS)):
        check()
        if size is not None:
            take(size(block))
        yield from block


def size_of(rows: Sequence[Sequence[Any]]) -> int:
    """Bytes that rows of one shape take as Python values, each value counted wherever it stands.

    >>> size_of([]), size_of([(1.5, [1, 2])]) > 100
    (0, True)
    """
    if not rows:
        return 0
    return len(rows) * sys.getsizeof(rows[0]) + sum(map(_size_of_column, zip(*rows, strict=True)))


def _size_of_column(values: Sequence[Any]) -> int:
    """Bytes of values of one type, or NULL."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds <= FIXED:
        return NUMBER * len(values)
    if kinds == {list}:
        lists = [value for value in values if value is not None]
        entries = list(chain.from_iterable(lists))
        return LIST * len(lists) + POINTER * len(entries) + _size_of_column(entries)
    if kinds == {dict}:
        structs = [value for value in values if value is not None]
        fields = zip(*(value.values() for value in structs), strict=True)
        return sum(map(sys.getsizeof, structs)) + sum(map(_size_of_column, fields))
    return sum(map(sys.getsizeof, values))


def heeding_keys(work: Callable[[], T], seconds: float = LIMIT) -> T:
    """Work on a request in a thread of its own, so that Ctrl-C stops it.

    Python heeds a signal in its main thread only. There DuckDB itself looks for one, but between tasks, and a join
    may be a single task that takes hours.

    Args:
        work: what the request is about.
        seconds: that it may take.

    Raises:
        Interrupted: Ctrl-C was pressed before the end.
        QueryTimeout: it took too long.
    """
    request, pressed = Request(seconds), False
    with ThreadPoolExecutor(1) as worker:
        done = worker.submit(request.run, work)
        while not done.done():
            try:
                wait([done], timeout=1.0)  # Windows heeds no key while a thread waits
            except KeyboardInterrupt:
                pressed = True
                request.stop()
            except SystemExit:  # SIGTERM; the pool waits for its thread
                request.stop()
                raise
        try:
            return done.result()
        except QueryTimeout as error:
            if pressed:
                raise Interrupted(STOPPED) from error
            raise


@dataclass(frozen=True, eq=False)
class Running:
    """A statement that runs: its cursor, and whose it is."""

    request: Request
    deadline: float
    cursor: duckdb.DuckDBPyConnection


_running: set[Running] = set()
_guard = threading.Condition()
_stop = threading.Event()
_threads: list[threading.Thread] = []


def executed(
    cursor: duckdb.DuckDBPyConnection,
    sql: str | duckdb.Statement,
    values: Sequence[Any],
    fetch: Callable[[duckdb.DuckDBPyConnection], T],
) -> T:
    """Run a statement on a cursor of its own, which is closed afterwards, and fetch from it.

    Args:
        cursor: where.
        sql: DuckDB text.
        values: for its placeholders.
        fetch: what is wanted of its result.

    Raises:
        QueryTimeout: it was stopped.
        duckdb.Error: anything else.
    """
    request = current() or Request()
    request.check()
    running = Running(request, request.deadline, cursor)
    with _guard:
        _running.add(running)
        if not _threads:
            watchdog = threading.Thread(target=_watch, name="dpsql-watchdog", daemon=True)
            try:
                watchdog.start()
            except RuntimeError as error:  # how Python says that the system gives no thread
                _running.discard(running)
                raise MemoryError("no thread could be started") from error
            _threads.append(watchdog)
        elif len(_running) == 1:
            _guard.notify()
    try:
        return fetch(cursor.execute(sql, list(values)))
    except duckdb.InterruptException as error:
        if request.stopped or time.monotonic() < running.deadline:  # by request, or by Ctrl-C
            raise QueryTimeout(STOPPED) from error
        raise request.too_late() from error
    finally:
        with _guard:
            _running.discard(running)
        cursor.close()  # what was stopped goes on in its database until its cursor is closed


def _watch() -> None:
    """Interrupt what has run past its time or is not wanted any more; sleep while nothing runs."""
    while not _stop.is_set():
        with _guard:
            while not _running and not _stop.is_set():
                _guard.wait()
            clock = time.monotonic()
            for running in _running:
                if clock > running.deadline or running.request.stopped:
                    running.cursor.interrupt()
        _stop.wait(TICK)


def _end() -> None:
    """Let the watchdog go before the interpreter takes DuckDB's module apart."""
    _stop.set()
    with _guard:
        _guard.notify_all()
    for thread in _threads:
        thread.join(1.0)


atexit.register(_end)


class MemoryCharge:
    """The bytes that an answer and its errors keep, counted once by every request that works on them."""

    def __init__(self) -> None:
        self._bytes, self._counted = 0, WeakSet[Request]()

    @contextmanager
    def request(self, seconds: float) -> Iterator[None]:
        """Work on the current request, or a new one; what the block keeps is held from now on."""
        with requested(seconds) as request:
            if request not in self._counted:
                self._counted.add(request)
                request.bytes += self._bytes  # what there is already is refused to nobody
            start_bytes = request.bytes
            try:
                yield
            finally:
                self._bytes += request.bytes - start_bytes
