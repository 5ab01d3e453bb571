"""One event stream's queue: what keeps it open and what ends it."""

import asyncio

import pytest
from cascade_api.live import feed
from cascade_api.live.feed import MOST_UNSENT_EVENTS, Subscriber


async def test_a_fact_that_makes_no_frame_does_not_end_the_stream() -> None:
    subscriber = Subscriber()
    waiting = asyncio.create_task(subscriber.next(within_s=60))
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
    assert await subscriber.next(within_s=60) == b"frame"
    with pytest.raises(StopAsyncIteration):
        await subscriber.next(within_s=60)


async def test_a_subscriber_too_far_behind_is_cut_off() -> None:
    subscriber = Subscriber()
    subscriber.offer(1, [b"x"] * (MOST_UNSENT_EVENTS + 1))
    assert subscriber.ended
    with pytest.raises(StopAsyncIteration):
        await subscriber.next(within_s=60)


async def test_a_subscriber_with_too_much_unsent_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_UNSENT_BYTES", 3)
    subscriber = Subscriber()
    subscriber.offer(1, [b"one fact larger than the bound may pass"])
    assert not subscriber.ended
    subscriber.offer(2, [b"x"])
    assert subscriber.ended


async def test_what_the_snapshot_holds_is_left_out_also_where_the_feed_is_behind_it() -> None:
    subscriber = Subscriber()
    subscriber.offer(9, [b"in the snapshot"])
    subscriber.start_after(11)
    subscriber.offer(10, [b"in the snapshot"])
    subscriber.offer(11, [b"in the snapshot"])
    subscriber.offer(12, [b"new"])
    assert await subscriber.next(within_s=60) == b"new"
