"""Statements of many clients take turns.

An answer is half Python, which one thread runs at a time, and half DuckDB. More threads than two only wait for each
other, and by chance some wait much longer than others. So statements start in the order in which they came, two at a
time. One that takes long gives its turn away and goes on beside the others, so that nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 2
PATIENCE = 0.1
"""Seconds of a turn; most statements take some milliseconds."""


class Turns:
    """Runs work in threads, in turns.

    Args:
        at_once: how many turns there are at a time.
        patience: seconds after which work loses its turn, but is not stopped.
    """

    def __init__(self, at_once: int = AT_ONCE, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._free = asyncio.Semaphore(at_once)

    async def take(self, work: Callable[[], T]) -> T:
        """What some work gives; it runs in a copy of the caller's context.

        Raises:
            What the work raises.
        """
        async with self._free:
            running = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                await asyncio.wait([running], timeout=self.patience)
            except BaseException:  # the caller does not want it any more
                running.cancel()
                raise
        return await running
