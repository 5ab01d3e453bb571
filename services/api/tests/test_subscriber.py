"""One event stream's queue: what keeps it open and what ends it."""

import asyncio

import pytest
from cascade_api.live.feed import MOST_UNSENT_EVENTS, Subscriber


async def test_a_fact_that_makes_no_frame_does_not_end_the_stream() -> None:
    subscriber = Subscriber()
    waiting = asyncio.create_task(subscriber.next(within_s=5))
    await asyncio.sleep(0)
    subscriber.offer(1, [])
    await asyncio.sleep(0)
    subscriber.offer(2, [b"frame"])
    assert await waiting == b"frame"


async def test_a_quiet_stream_is_told_so() -> None:
    assert await Subscriber().next(within_s=0.01) is None


async def test_an_ended_stream_gives_what_it_holds_and_ends() -> None:
    subscriber = Subscriber()
    subscriber.offer(1, [b"frame"])
    subscriber.end()
    assert await subscriber.next(within_s=1) == b"frame"
    with pytest.raises(StopAsyncIteration):
        await subscriber.next(within_s=1)


async def test_a_subscriber_too_far_behind_is_cut_off() -> None:
    subscriber = Subscriber()
    subscriber.offer(1, [b"x"] * (MOST_UNSENT_EVENTS + 1))
    assert subscriber.cut_off
    for _ in range(MOST_UNSENT_EVENTS):
        assert await subscriber.next(within_s=1) == b"x"
    with pytest.raises(StopAsyncIteration):
        await subscriber.next(within_s=1)
