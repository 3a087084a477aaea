"""Statements of many clients start in their order, a few at a time; one that takes long keeps nobody waiting."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dpsql.doors.wire.turns import Turns


def test_work_starts_in_order_and_few_at_a_time() -> None:
    started: list[int] = []
    running: set[int] = set()
    most = 0

    def work(number: int) -> int:
        nonlocal most
        started.append(number)
        running.add(number)
        most = max(most, len(running))
        time.sleep(0.005)
        running.remove(number)
        return number

    async def ask() -> list[int]:
        turns = Turns(patience=60.0)
        return await asyncio.gather(*(turns.take(lambda number=number: work(number)) for number in range(20)))

    assert asyncio.run(ask()) == list(range(20))
    assert most <= 2
    assert all(abs(place - number) <= 1 for place, number in enumerate(started))


def test_long_work_gives_its_turn_away_and_goes_on() -> None:
    end = threading.Event()

    async def ask() -> list[str]:
        turns = Turns(patience=0.05)
        long = [asyncio.ensure_future(turns.take(lambda: end.wait(60) and "long")) for _ in range(2)]
        await asyncio.sleep(0)
        short = await asyncio.wait_for(turns.take(lambda: "short"), 30)
        assert not any(each.done() for each in long)
        end.set()
        return [short, *(str(each) for each in await asyncio.gather(*long))]

    assert asyncio.run(ask()) == ["short", "long", "long"]


def test_errors_pass_and_give_the_turn_back() -> None:
    def fails() -> None:
        raise ValueError("no")

    async def ask() -> str:
        turns = Turns(at_once=1)
        with pytest.raises(ValueError, match="no"):
            await turns.take(fails)
        end = threading.Event()
        unwanted = asyncio.ensure_future(turns.take(lambda: end.wait(60)))
        await asyncio.sleep(0.01)
        unwanted.cancel()
        with pytest.raises(asyncio.CancelledError):
            await unwanted
        found = await asyncio.wait_for(turns.take(lambda: "next"), 30)
        end.set()
        return found

    assert asyncio.run(ask()) == "next"
