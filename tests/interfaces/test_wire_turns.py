"""Statements of many clients start in their order, a few at a time; a long one keeps only its own role waiting."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dpsql.interfaces.pgwire.roles import FairQueue, Turns


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
        turns = Turns(20, patience=60.0)
        return await asyncio.gather(
            *(turns.take(lambda number=number: work(number), "ana") for number in range(20))
        )

    assert asyncio.run(ask()) == list(range(20))
    assert most <= 2
    assert all(abs(place - number) <= 1 for place, number in enumerate(started))


def test_long_work_gives_its_turn_away_and_goes_on() -> None:
    end = threading.Event()

    async def ask() -> list[str]:
        turns = Turns(20, patience=0.05)
        slow = [asyncio.ensure_future(turns.take(lambda: end.wait(60) and "long", "ana")) for _ in range(2)]
        await asyncio.sleep(0)
        short = await asyncio.wait_for(turns.take(lambda: "short", "board"), 30)
        assert not any(task.done() for task in slow)
        end.set()
        return [short, *(str(answer) for answer in await asyncio.gather(*slow))]

    assert asyncio.run(ask()) == ["short", "long", "long"]


def test_long_work_of_one_role_keeps_its_own_waiting_and_no_other() -> None:
    end = threading.Event()
    running: set[int] = set()
    most = 0

    def work(number: int) -> None:
        nonlocal most
        running.add(number)
        most = max(most, len(running))
        end.wait(60)
        running.discard(number)

    async def ask() -> None:
        turns = Turns(20, patience=0.02)
        slow = [
            asyncio.ensure_future(turns.take(lambda number=number: work(number), "ana"))
            for number in range(8)
        ]
        for _ in range(20):  # another role's pass them, again and again
            assert await asyncio.wait_for(turns.take(lambda: "short", "board"), 30) == "short"
        own = asyncio.ensure_future(turns.take(lambda: "own", "ana"))
        await asyncio.sleep(0.1)
        assert not own.done() and most == 2
        end.set()
        assert await asyncio.wait_for(own, 30) == "own"
        await asyncio.gather(*slow)

    asyncio.run(ask())


def test_who_leaves_while_waiting_takes_no_turn() -> None:
    end = threading.Event()

    async def ask() -> str:
        turns = Turns(20, at_once=1, patience=60.0)
        running = asyncio.ensure_future(turns.take(lambda: end.wait(60), "ana"))
        await asyncio.sleep(0.01)
        waiting = [asyncio.ensure_future(turns.take(lambda: pytest.fail("ran"), "ana")) for _ in range(3)]
        await asyncio.sleep(0.01)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        end.set()
        await running
        return await asyncio.wait_for(turns.take(lambda: "next", "ana"), 30)

    assert asyncio.run(ask()) == "next"


def test_errors_pass_and_give_the_turn_back_when_their_thread_ends() -> None:
    def fails() -> None:
        raise ValueError("no")

    async def ask() -> str:
        turns = Turns(20, at_once=1)
        with pytest.raises(ValueError, match="no"):
            await turns.take(fails, "ana")
        end = threading.Event()
        unwanted = asyncio.ensure_future(turns.take(lambda: end.wait(60), "ana"))
        await asyncio.sleep(0.01)
        unwanted.cancel()
        with pytest.raises(asyncio.CancelledError):
            await unwanted
        end.set()
        return await asyncio.wait_for(turns.take(lambda: "next", "ana"), 30)

    assert asyncio.run(ask()) == "next"


def begun_before(gated: bool) -> int:
    """How many messages of 64 clients begin while one of another role has five of hers handled."""

    async def count() -> int:
        laps, begun, over = FairQueue(), 0, False

        async def flood() -> None:
            nonlocal begun
            while not over:
                if gated:
                    await laps.begin("board")
                begun += 1
                await asyncio.sleep(0)

        floods = [asyncio.ensure_future(flood()) for _ in range(64)]
        await asyncio.sleep(0)
        before = begun
        for _ in range(5):
            await laps.begin("ana")
            await asyncio.sleep(0)
        after, over = begun, True
        await asyncio.gather(*floods)
        assert not laps._waiting or await asyncio.sleep(0.01) is None
        return after - before

    return asyncio.run(count())


def test_messages_of_one_role_do_not_make_the_laps_of_another_long() -> None:
    """Without a line of their own sixty-four begin in each lap."""
    assert begun_before(gated=False) >= 5 * 60
    assert begun_before(gated=True) <= 15


def test_a_client_that_leaves_holds_up_nobody_in_its_line() -> None:
    async def ask() -> None:
        laps = FairQueue()
        await laps.begin("ana")
        leaving, staying = (asyncio.ensure_future(laps.begin("ana")) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait_for(staying, 5)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not laps._waiting

    asyncio.run(ask())
