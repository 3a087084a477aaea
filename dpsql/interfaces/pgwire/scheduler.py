"""Statements of many clients take turns, fairly between roles.

An answer is half Python, which one thread runs at a time, and half DuckDB. More threads than two only wait for each
other, and by chance some wait much longer than others. So statements start two at a time, in the order in which they
came within a role, and roles alternate.

| a statement | |
|---|---|
| runs up to `patience` | holds one of the `at_once` turns |
| runs longer | gives its turn away and goes on alongside the others |
| comes while `of_role` statements of its role run | waits until one of them ends; other roles pass it |

So a role that asks long statements from many connections keeps its own statements waiting, and takes `of_role` threads
from the others. What counts is when a thread has ended, not when its client has left: a statement that is stopped keeps
its place until it has stopped.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 2
PATIENCE = 0.1
"""Seconds of a turn; most statements take some milliseconds."""
OF_ROLE = 2
"""Statements of one role that run at a time, however long."""


class FairQueue:
    """The event loop's own time, fairly between roles: in each of its laps one message of a role begins.

    What is refused never leaves the loop, and its client may ask again at once. Sixty-four of them once made every lap
    last 17 ms, and a statement takes about eight laps; now their messages wait in a line of their role.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def begin(self, role: str) -> None:
        """Wait until a message of a role may be handled; at once where its last one began in another lap."""
        loop = asyncio.get_running_loop()
        if role not in self._waiting:
            self._waiting[role] = deque()
            loop.call_soon(self._next, role)
            return
        turn = loop.create_future()
        self._waiting[role].append(turn)
        await turn

    def _next(self, role: str) -> None:
        turns = self._waiting[role]
        while turns and turns[0].cancelled():  # its client has left
            turns.popleft()
        if not turns:
            del self._waiting[role]
            return
        turns.popleft().set_result(None)
        asyncio.get_running_loop().call_soon(self._next, role)


class Turns:
    """Runs work in threads, in turns.

    Args:
        threads: the most that run at a time; no work waits for a thread if there is one for each connection.
        at_once: how many turns there are at a time.
        patience: seconds after which work loses its turn, but is not stopped.
        of_role: how much work of one role runs at a time.
    """

    def __init__(
        self, threads: int, at_once: int = AT_ONCE, patience: float = PATIENCE, of_role: int = OF_ROLE
    ) -> None:
        self.patience, self.of_role = patience, of_role
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="dpsql-statement")
        self._free = at_once
        # set when they may start
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._overdue: set[asyncio.Future[None]] = set()  # they have run for longer than their turn
        self._running: Counter[str] = Counter()

    async def take(self, work: Callable[[], T], role: str) -> T:
        """Result of some work; it runs in a copy of the caller's context.

        Args:
            work: a statement; it must end soon after its request was stopped.
            role: who asks; statements of one role wait for each other.

        Raises:
            What the work raises.
        """
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(role, deque()).append(turn)
        self._start()
        try:
            await asyncio.shield(turn)  # a cancelled future could not be told that its turn has come
        except asyncio.CancelledError:
            if turn.done():  # its turn came at the same moment
                self._end(role, turn)
            else:  # its client does not want it any more, before it has run
                turns = self._waiting[role]
                turns.remove(turn)
                if not turns:
                    del self._waiting[role]
            raise
        context = contextvars.copy_context()
        running: Future[T] = self._executor.submit(lambda: context.run(work))
        late = loop.call_later(self.patience, self._give_away, turn)

        def ended(_: Future[T]) -> None:
            if not loop.is_closed():  # the server has ended; nobody waits
                loop.call_soon_threadsafe(self._end, role, turn, late)

        running.add_done_callback(ended)
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """Start nothing more; what runs ends by its request."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        """Let statements begin while there are turns, one role after another."""
        roles = deque(self._waiting)
        while self._free and roles:
            role = roles.popleft()
            if self._running[role] >= self.of_role:
                continue
            turns = self._waiting[role]
            turns.popleft().set_result(None)
            self._running[role] += 1
            self._free -= 1
            if turns:
                self._waiting.move_to_end(role)
                roles.append(role)
            else:
                del self._waiting[role]

    def _give_away(self, turn: asyncio.Future[None]) -> None:
        self._overdue.add(turn)
        self._free += 1
        self._start()

    def _end(self, role: str, turn: asyncio.Future[None], late: asyncio.TimerHandle | None = None) -> None:
        if late is not None:
            late.cancel()
        self._free += turn not in self._overdue
        self._overdue.discard(turn)
        self._running[role] -= 1
        if not self._running[role]:
            del self._running[role]  # names are of clients, and endless
        self._start()
