"""Places for calls: never more at once, in turn, and nobody waits for ever."""

import asyncio

import pytest
from cascade_api.slots import Slots
from cascade_core.errors import LogUnavailable


async def test_no_more_than_the_places_are_under_way_and_turns_are_kept() -> None:
    slots = Slots(2, patience_s=10)
    under_way = most = 0
    begun: list[int] = []

    async def call(number: int) -> None:
        nonlocal under_way, most
        async with slots:
            begun.append(number)
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1

    await asyncio.gather(*(call(number) for number in range(20)))
    assert most == 2
    assert begun == list(range(20))


async def test_who_waits_too_long_is_told_to_come_again_and_a_place_is_free_again_later() -> None:
    slots = Slots(1, patience_s=0.05)
    done = asyncio.Event()

    async def long() -> None:
        async with slots:
            await done.wait()

    holder = asyncio.create_task(long())
    await asyncio.sleep(0)
    with pytest.raises(LogUnavailable, match="the same call may succeed"):
        async with slots:
            pytest.fail("there is no place")
    done.set()
    await holder
    async with slots:
        pass


async def test_a_call_that_fails_or_is_cancelled_gives_its_place_back() -> None:
    slots = Slots(1, patience_s=0.5)
    with pytest.raises(ValueError, match="broken"):
        async with slots:
            raise ValueError("broken")
    async with slots:
        waiting = asyncio.create_task(slots.__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with slots:
        pass
