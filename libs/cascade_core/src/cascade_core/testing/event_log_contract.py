"""What every EventLog does, real or in memory: one suite, run by both.

A test class inherits from `EventLogContract` and gives it a fixture `log`, empty for each test.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from cascade_core import subjects, telemetry
from cascade_core.errors import AppendConflict, Refused
from cascade_core.facts import AnyFact
from cascade_core.ports import EventLog
from cascade_core.record import Recorded
from cascade_core.sims.transitions import SimState
from cascade_core.testing.builders import (
    RUN,
    SIM,
    at,
    chunk,
    kernel,
    launch_started,
    progressed,
    reported,
    run_requested,
)
from cascade_core.traces.facts import TraceDiscovered, TraceRemoved

DEADLINE_S = 60.0
OTHER = "sim-000000000002"


async def taken(
    batches: AsyncIterator[list[Recorded[AnyFact]]], count: int, *, deadline_s: float = DEADLINE_S
) -> list[Recorded[AnyFact]]:
    """The next `count` records, or a failure at the deadline."""
    records: list[Recorded[AnyFact]] = []
    async with asyncio.timeout(deadline_s):
        while len(records) < count:
            records += await anext(batches)
    return records


def facts_of(records: Sequence[Recorded[AnyFact]]) -> list[AnyFact]:
    """The facts alone."""
    return [record.fact for record in records]


class EventLogContract:
    """Given, when, then, for any event log."""

    # ---- append

    async def test_positions_count_up_in_the_order_of_appends(self, log: EventLog) -> None:
        assert await log.last_position() == 0
        positions = [(await log.append(chunk(seq, [str(seq)]))).position for seq in range(3)]
        assert positions == [1, 2, 3]
        assert await log.last_position() == 3

    async def test_a_stored_fact_is_read_as_it_was_written(self, log: EventLog) -> None:
        fact = chunk(0, ["a\x00b", "\u2028", "caf\u00e9 \U0001f680", ""])
        stored = await log.append(fact, event_id="log:x:0")
        record = await log.at(stored.position)
        assert record is not None
        assert (record.fact, record.event_id, record.position) == (fact, "log:x:0", stored.position)

    async def test_the_same_event_id_is_stored_once(self, log: EventLog) -> None:
        first = await log.append(chunk(0, ["first"]), event_id="log:x:0")
        again = await log.append(chunk(0, ["second"]), event_id="log:x:0")
        assert (first.duplicate, again.duplicate) == (False, True)
        assert again.position == first.position
        assert facts_of(await log.read([subjects.ALL])) == [chunk(0, ["first"])]

    async def test_appends_without_an_event_id_are_all_stored(self, log: EventLog) -> None:
        for _ in range(2):
            assert not (await log.append(chunk(0, ["a"]))).duplicate
        assert await log.last_position() == 2

    async def test_only_one_append_can_be_the_first_of_its_subject(self, log: EventLog) -> None:
        await log.append(launch_started(attempt="a1"), first=True)
        with pytest.raises(AppendConflict):
            await log.append(launch_started(attempt="a2"), first=True)
        await log.append(launch_started(attempt="b", sim_id=OTHER), first=True)
        assert await log.last_position() == 2

    async def test_of_many_that_want_to_be_first_one_wins(self, log: EventLog) -> None:
        results = await asyncio.gather(
            *(log.append(launch_started(attempt=f"a{i}"), first=True) for i in range(8)),
            return_exceptions=True,
        )
        assert sum(1 for one in results if isinstance(one, AppendConflict)) == 7
        assert len(await log.read([subjects.ALL])) == 1

    async def test_a_first_append_with_an_event_id_can_be_repeated_by_its_writer(self, log: EventLog) -> None:
        one = await log.append(launch_started(), event_id="launch:x", first=True)
        again = await log.append(launch_started(), event_id="launch:x", first=True)
        assert (again.position, again.duplicate) == (one.position, True)

    async def test_a_batch_is_stored_in_its_order_and_can_be_repeated(self, log: EventLog) -> None:
        batch: list[tuple[AnyFact, str | None]] = [(kernel(i), f"kernel:x:{i}") for i in range(600)]
        first = await log.append_all(batch)
        assert [one.position for one in first] == list(range(1, 601))
        again = await log.append_all(batch)
        assert [one.position for one in again] == [one.position for one in first]
        assert all(one.duplicate for one in again)
        assert facts_of(await log.read([subjects.ALL_KERNELS])) == [fact for fact, _ in batch]

    async def test_a_fact_keeps_the_trace_that_it_was_stored_in(self, log: EventLog) -> None:
        mine, other = (f"00-{digit * 32}-{digit * 16}-01" for digit in "ab")
        with telemetry.continued(mine):
            await log.append(chunk(0, ["x"]))
            await log.append_all([(kernel(0), None)])
        await log.append_all([(kernel(1), None), (kernel(2), None)], traceparents=[other, None])
        await log.append(chunk(1, ["y"]))
        stored = await log.read([subjects.ALL])
        assert [record.traceparent for record in stored] == [mine, mine, other, None, None]

    async def test_an_empty_batch_stores_nothing(self, log: EventLog) -> None:
        assert await log.append_all([]) == []
        assert await log.last_position() == 0

    async def test_what_no_reader_could_read_is_refused(self, log: EventLog) -> None:
        with pytest.raises(Refused):
            await log.append(chunk(0, ["\ud800"]))
        assert await log.last_position() == 0

    async def test_a_big_fact_is_kept_whole(self, log: EventLog) -> None:
        sizes = [1, 520_000, 2_500_000]
        big = [chunk(seq, ["x" * size]) for seq, size in enumerate(sizes)]
        for fact in big:
            await log.append(fact, event_id=f"log:{SIM}:{fact.seq}")
        assert facts_of(await log.read([subjects.ALL_LOGS])) == big
        found = await log.at(3)
        assert found is not None
        assert found.fact == big[2]
        newest = await log.last(subjects.log_of(RUN, SIM))
        assert newest is not None
        assert newest.fact == big[2]

    # ---- read

    async def test_reading_finds_what_matches_in_stream_order(self, log: EventLog) -> None:
        await log.append(run_requested())
        await log.append(chunk(0, ["a"]))
        await log.append(chunk(0, ["b"], sim_id=OTHER))
        await log.append(launch_started())
        filters = subjects.sim_filters(RUN, SIM)
        assert [record.position for record in await log.read(filters)] == [2, 4]
        assert [record.position for record in await log.read(filters, after=2)] == [4]
        assert await log.read(filters, after=4) == []
        assert [record.position for record in await log.read(subjects.run_filters(RUN))] == [1, 2, 3, 4]

    async def test_an_empty_log_is_read_to_its_end_at_once(self, log: EventLog) -> None:
        assert await log.read([subjects.ALL]) == []
        assert await log.newest([subjects.ALL]) == 0
        assert await log.last(subjects.log_of(RUN, SIM)) is None
        assert await log.at(1) is None

    async def test_a_long_log_is_read_page_by_page(self, log: EventLog) -> None:
        await log.append_all([(chunk(seq, [str(seq)]), None) for seq in range(700)])
        pages = [page async for page in log.pages([subjects.ALL_LOGS])]
        assert len(pages) > 1
        assert [record.position for page in pages for record in page] == list(range(1, 701))

    async def test_reading_ends_although_what_is_read_is_purged_meanwhile(self, log: EventLog) -> None:
        await log.append_all([(chunk(seq, [str(seq)]), None) for seq in range(700)])
        async with asyncio.timeout(DEADLINE_S):
            pages = 0
            async for _ in log.pages([subjects.ALL_LOGS]):
                pages += 1
                await log.purge(subjects.log_of(RUN, SIM))
            assert pages >= 1

    async def test_the_newest_position_is_that_of_any_filter(self, log: EventLog) -> None:
        await log.append(run_requested())
        await log.append(chunk(0, ["a"]))
        assert await log.newest([subjects.ALL_RUNS, subjects.ALL_LOGS]) == 2
        assert await log.newest([subjects.ALL_RUNS, subjects.ALL_KERNELS]) == 1

    async def test_the_last_fact_of_a_subject_is_the_newest(self, log: EventLog) -> None:
        for through in range(3):
            await log.append(progressed(through))
        await log.append(progressed(9, sim_id=OTHER))
        found = await log.last(subjects.sim_fact(RUN, SIM, "progressed"))
        assert found is not None
        assert found.fact == progressed(2)

    # ---- follow

    async def test_following_gives_what_was_stored_and_then_what_comes(self, log: EventLog) -> None:
        await log.append(chunk(0, ["a"]))
        async with log.follow([subjects.ALL_LOGS]) as batches:
            assert facts_of(await taken(batches, 1)) == [chunk(0, ["a"])]
            waiting = asyncio.create_task(taken(batches, 1))
            await log.append(kernel(0))
            await log.append(chunk(1, ["b"]))
            assert facts_of(await waiting) == [chunk(1, ["b"])]

    async def test_following_starts_behind_a_position(self, log: EventLog) -> None:
        for seq in range(5):
            await log.append(chunk(seq, [str(seq)]))
        async with log.follow([subjects.ALL], after=3) as batches:
            assert [record.position for record in await taken(batches, 2)] == [4, 5]

    async def test_batches_are_bounded(self, log: EventLog) -> None:
        await log.append_all([(chunk(seq, [str(seq)]), None) for seq in range(40)])
        positions: list[int] = []
        async with log.follow([subjects.ALL], batch=16) as batches, asyncio.timeout(DEADLINE_S):
            while len(positions) < 40:
                records = await anext(batches)
                assert 1 <= len(records) <= 16
                positions += [record.position for record in records]
        assert positions == list(range(1, 41))

    async def test_several_followers_see_the_same_order(self, log: EventLog) -> None:
        async def follower() -> list[int]:
            async with log.follow([subjects.ALL], batch=7) as batches:
                return [record.position for record in await taken(batches, 60)]

        followers = [asyncio.create_task(follower()) for _ in range(3)]
        await asyncio.gather(
            *(log.append(chunk(seq, [str(seq)], sim_id=f"sim-{seq % 3}")) for seq in range(60))
        )
        seen = await asyncio.gather(*followers)
        assert seen == [list(range(1, 61))] * 3

    async def test_a_follower_of_one_trace_gets_only_its_facts(self, log: EventLog) -> None:
        ids = ["a.b", "a_b", "a b", "a*", "a>", "A", "caf\u00e9", "cafe\u0301", "x" * 200, "."]
        for trace_id in ids:
            await log.append(TraceDiscovered(trace_id=trace_id, occurred_at=at(0)))
            await log.append(TraceRemoved(trace_id=trace_id, occurred_at=at(1)))
        for trace_id in ids:
            records = await log.read([subjects.trace_filter(trace_id)])
            assert [type(record.fact) for record in records] == [TraceDiscovered, TraceRemoved]
            assert {getattr(record.fact, "trace_id", None) for record in records} == {trace_id}

    # ---- retention

    async def test_heartbeats_that_only_repeat_the_state_are_kept_apart(self, log: EventLog) -> None:
        await log.append(reported(SimState.RUNNING, 1))
        await log.append(reported(SimState.RUNNING, 6), liveness=True)
        assert dict(await log.subjects(subjects.ALL)) == {
            subjects.sim_fact(RUN, SIM, "reported"): 1,
            subjects.beats_of(RUN, SIM): 1,
        }
        await log.purge(subjects.beats_of(RUN, SIM))
        assert facts_of(await log.read([subjects.ALL])) == [reported(SimState.RUNNING, 1)]

    async def test_a_purge_drops_one_subject_alone(self, log: EventLog) -> None:
        await log.append(chunk(0, ["a"]))
        await log.append(chunk(0, ["b"], sim_id=OTHER))
        await log.append(kernel(0))
        await log.purge(subjects.log_of(RUN, SIM))
        assert [record.position for record in await log.read([subjects.ALL])] == [2, 3]
        assert await log.at(1) is None
        assert await log.last_position() == 3
        assert dict(await log.subjects(subjects.ALL_LOGS)) == {subjects.log_of(RUN, OTHER): 1}

    async def test_a_purge_may_keep_the_newest(self, log: EventLog) -> None:
        for through in range(4):
            await log.append(progressed(through))
        await log.purge(subjects.sim_fact(RUN, SIM, "progressed"), keep=1)
        assert facts_of(await log.read([subjects.ALL])) == [progressed(3)]

    async def test_a_purge_of_nothing_does_nothing(self, log: EventLog) -> None:
        await log.purge(subjects.log_of(RUN, SIM))
        assert await log.last_position() == 0

    async def test_big_facts_can_be_purged(self, log: EventLog) -> None:
        await log.append(chunk(0, ["x" * 600_000]))
        await log.append(chunk(0, ["y" * 600_000], sim_id=OTHER))
        await log.purge(subjects.log_of(RUN, SIM))
        assert facts_of(await log.read([subjects.ALL])) == [chunk(0, ["y" * 600_000], sim_id=OTHER)]

    async def test_subjects_are_counted(self, log: EventLog) -> None:
        await log.append_all([(chunk(seq, ["a"]), None) for seq in range(3)])
        await log.append(chunk(0, ["b"], sim_id=OTHER))
        counts = await log.subjects(subjects.ALL_LOGS)
        assert dict(counts) == {subjects.log_of(RUN, SIM): 3, subjects.log_of(RUN, OTHER): 1}
        assert dict(await log.subjects(subjects.ALL_TRACES)) == {}
