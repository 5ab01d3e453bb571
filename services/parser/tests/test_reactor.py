"""The reactor on a log in memory: order, repeats, late chunks, second starts, restarts."""

import asyncio

import pytest
from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.sims.facts import SimProgressed
from cascade_core.sims.transitions import SimState
from cascade_core.tasks import end
from cascade_core.testing.builders import (
    SIM,
    cancel_requested,
    chunk,
    launch_started,
    progressed,
    reported,
    run_requested,
)
from cascade_core.testing.memory_log import MemoryLog
from cascade_parser.reactor import FILTERS, ParserReactor
from cascade_parser.shares import PARTITIONS
from cascade_parser.testing import cut, is_parsed, kernels_of, parsing, progress_of, until
from hypothesis import given, settings
from hypothesis import strategies as st

CYCLES = [6174, 5923, 6216]
OTHER = "sim-000000000002"


async def started(log: MemoryLog, *sims: str) -> None:
    await log.append(run_requested(sims=sims or (SIM,)))
    for sim in sims or (SIM,):
        await log.append(launch_started(sim_id=sim))
        await log.append(reported(SimState.RUNNING, 2, sim_id=sim))


async def append(log: MemoryLog, *facts: AnyFact) -> None:
    for fact in facts:
        await log.append(fact)


async def ended(log: MemoryLog, sim_id: str = SIM) -> None:
    await log.append(reported(SimState.SUCCEEDED, 9, exit_code=0, sim_id=sim_id))
    await until(lambda: is_parsed(log, sim_id))


async def cycles_of(log: MemoryLog, sim_id: str = SIM) -> list[int | None]:
    kernels = await kernels_of(log, sim_id)
    assert [kernel.index for kernel in kernels] == list(range(len(kernels)))
    return [kernel.gpu_sim_cycle for kernel in kernels]


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
async def test_a_log_becomes_kernels_and_progress(three_kernels: list[str], size: int) -> None:
    log = MemoryLog()
    async with parsing(log):
        await started(log)
        await append(log, *cut(three_kernels, size))
        await ended(log)
    assert await cycles_of(log) == CYCLES
    last = (await progress_of(log))[-1]
    assert (last.kernels_done, last.final, last.through_seq) == (3, True, -(-189 // size) - 1)


async def test_kernels_appear_while_the_log_grows(three_kernels: list[str]) -> None:
    log = MemoryLog()
    async with parsing(log):
        await started(log)
        chunks = cut(three_kernels, 70)

        async def kernels(count: int) -> bool:
            return len(await kernels_of(log)) == count

        await append(log, chunks[0])
        await until(lambda: kernels(1))
        await append(log, chunks[1])
        await until(lambda: kernels(2))
        await append(log, chunks[2])
        await ended(log)
    assert await cycles_of(log) == CYCLES


async def test_progress_never_speaks_of_a_kernel_that_is_not_stored_yet(three_kernels: list[str]) -> None:
    log = MemoryLog()
    async with parsing(log):
        await started(log)
        await append(log, *cut(three_kernels, 10))
        await ended(log)
    stored = 0
    for fact in log.facts:
        if isinstance(fact, KernelFinished):
            stored += 1
        if isinstance(fact, SimProgressed):
            assert fact.kernels_done <= stored


async def test_a_sim_without_a_log_is_read_to_its_end(three_kernels: list[str]) -> None:
    log = MemoryLog()
    async with parsing(log):
        await started(log)
        await ended(log)
    assert await kernels_of(log) == []
    assert [(fact.through_seq, fact.kernels_done) for fact in await progress_of(log)] == [(-1, 0)]


async def test_a_cancelled_run_is_read_to_its_end(three_kernels: list[str]) -> None:
    log = MemoryLog()
    async with parsing(log):
        await started(log, SIM, OTHER)
        await append(log, *cut(three_kernels[:100], 20))
        await log.append(cancel_requested(9))
        await until(lambda: is_parsed(log, SIM))
        await until(lambda: is_parsed(log, OTHER))
    assert await cycles_of(log) == CYCLES[:2]
    assert await kernels_of(log, OTHER) == []


async def test_chunks_behind_a_gap_are_read_at_the_end(three_kernels: list[str]) -> None:
    chunks = cut(three_kernels, 63)
    log = MemoryLog()
    async with parsing(log):
        await started(log)
        await append(log, chunks[0], chunks[2])
        await ended(log)
    assert [kernel.gpu_sim_cycle for kernel in await kernels_of(log)] == [6174, 6216]


async def test_a_chunk_after_the_end_does_not_matter(three_kernels: list[str]) -> None:
    log = MemoryLog()
    async with parsing(log):
        await started(log)
        await append(log, *cut(three_kernels, 50))
        await ended(log)
        await append(log, chunk(4, ["after the end"]), *cut(three_kernels, 50))
        await append(log, reported(SimState.FAILED, 20))
        await started(log, OTHER)
        await ended(log, SIM)
    assert await cycles_of(log) == CYCLES
    assert sum(1 for fact in await progress_of(log) if fact.final) == 1


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_arrival_gives_the_same_kernels(data: st.DataObject, three_kernels: list[str]) -> None:
    chunks = cut(three_kernels, data.draw(st.sampled_from([13, 40, 90])))
    repeats = [
        one.model_copy(update={"lines": ["other content"]})
        if data.draw(st.booleans()) and one.seq > 0
        else one
        for one in data.draw(st.lists(st.sampled_from(chunks), max_size=5))
    ]
    arrivals: list[LogAppended] = list(data.draw(st.permutations(chunks)))
    for repeat in repeats:
        first = next(i for i, one in enumerate(arrivals) if one.seq == repeat.seq)
        arrivals.insert(data.draw(st.integers(first + 1, len(arrivals))), repeat)
    pauses = data.draw(st.sets(st.integers(0, len(arrivals)), max_size=3))

    async def run() -> None:
        log = MemoryLog()
        async with parsing(log) as reactor:
            await started(log)
            for index, one in enumerate(arrivals):
                await log.append(one)
                if index in pauses:
                    await until_read(reactor, log)
            await ended(log)
        assert await cycles_of(log) == CYCLES

    asyncio.run(run())


async def until_read(reactor: ParserReactor, log: MemoryLog) -> None:
    """Wait until the reactor has taken in what concerns it."""
    newest = await log.newest(FILTERS)

    async def reached() -> bool:
        return reactor.position >= newest

    await until(reached, every_s=0)


async def test_a_second_start_with_its_own_attempt_is_not_mixed_in(three_kernels: list[str]) -> None:
    log = MemoryLog()
    async with parsing(log):
        await log.append(run_requested())
        await log.append(launch_started(attempt="a1"))
        await log.append(reported(SimState.RUNNING, 2, attempt="a1.x"))
        mine, others = cut(three_kernels, 60, attempt="a1.x"), cut(three_kernels, 45, attempt="a1.y")
        await append(log, mine[0], others[0], others[1], mine[1], others[2], others[3], others[4], *mine[2:])
        await log.append(reported(SimState.FAILED, 8, attempt="a1.y"))
        await log.append(reported(SimState.SUCCEEDED, 9, attempt="a1.x"))
        await until(lambda: is_parsed(log))
    assert await cycles_of(log) == CYCLES


async def test_a_second_start_that_cannot_be_told_apart_ends_the_reading(three_kernels: list[str]) -> None:
    log = MemoryLog()
    async with parsing(log):
        await started(log)
        mine, others = cut(three_kernels, 60), cut(three_kernels, 45)
        await append(log, mine[0], mine[1], *others)
        await ended(log)
    # What was open when the second log began is closed at the end; nothing of the second log is read.
    assert await cycles_of(log) == CYCLES[:2]


# ---- restarts


@pytest.mark.parametrize("killed_after", range(0, 14, 2))
async def test_a_restart_in_the_middle_of_a_block_loses_nothing_and_tells_nothing_twice(
    three_kernels: list[str], killed_after: int
) -> None:
    log = MemoryLog()
    chunks = cut(three_kernels, 14)
    async with parsing(log) as first:
        await started(log)
        await append(log, *chunks[:killed_after])
        await until_read(first, log)
    log.forget_event_ids()
    async with parsing(log):
        await append(log, *chunks[killed_after:])
        await ended(log)
    assert await cycles_of(log) == CYCLES


async def test_a_restart_between_kernels_and_progress_repeats_them_under_the_same_ids(
    three_kernels: list[str],
) -> None:
    log = MemoryLog()

    def refuse_progress(fact: AnyFact) -> None:
        if isinstance(fact, SimProgressed) and fact.kernels_done > 0:
            raise LogUnavailable("gone")

    log.trouble = refuse_progress
    async with parsing(log):
        await started(log)
        await append(log, *cut(three_kernels, 14))

        async def one() -> bool:
            return len(await kernels_of(log)) > 0

        await log.append(reported(SimState.SUCCEEDED, 9))
        await until(one)
    log.trouble = None
    async with parsing(log):
        await until(lambda: is_parsed(log))
    assert await cycles_of(log) == CYCLES


async def test_a_sim_that_ended_while_no_parser_ran_is_read_afterwards(three_kernels: list[str]) -> None:
    log = MemoryLog()
    await started(log)
    await append(log, *cut(three_kernels, 14), reported(SimState.SUCCEEDED, 9))
    async with parsing(log):
        await until(lambda: is_parsed(log))
    assert await cycles_of(log) == CYCLES


async def test_an_unreachable_log_is_waited_for(three_kernels: list[str]) -> None:
    log = MemoryLog()
    async with parsing(log):
        await started(log)
        chunks = cut(three_kernels, 50)
        await append(log, *chunks[:3])
        await asyncio.sleep(0)
        failures = iter(range(2))

        def fail_twice(fact: AnyFact) -> None:
            if isinstance(fact, KernelFinished) and next(failures, None) is not None:
                raise LogUnavailable("gone")

        log.trouble = fail_twice
        await append(log, *chunks[3:])
        await ended(log)
    assert await cycles_of(log) == CYCLES


async def test_a_log_that_was_archived_meanwhile_is_left_alone(three_kernels: list[str]) -> None:
    log = MemoryLog()
    await started(log)
    await append(log, *cut(three_kernels, 14), reported(SimState.SUCCEEDED, 9))
    await log.purge(subjects.log_of("run-000000000001", SIM))
    # What another instance told, and this one has not read yet, comes last.
    async with parsing(log) as reactor:
        await log.append(progressed(13, kernels_done=3, final=True))
        await until_read(reactor, log)
    assert await kernels_of(log) == []


async def test_facts_about_unknown_sims_are_passed_over(three_kernels: list[str]) -> None:
    log = MemoryLog()
    async with parsing(log) as reactor:
        await append(
            log, *cut(three_kernels, 50, sim_id=OTHER), reported(SimState.SUCCEEDED, 3, sim_id=OTHER)
        )
        await started(log)
        await ended(log)
        assert reactor.lines_read == 0
    assert await kernels_of(log, OTHER) == []


class Slow:
    """Shares that hold a sim a while before they say that its partition was gained, as the real ones may."""

    def __init__(self, reactor: ParserReactor) -> None:
        self.reactor = reactor
        self.held = False
        self.go_on = asyncio.Event()

    def holds(self, sim_id: str) -> bool:
        return self.held

    async def run(self) -> None:
        self.held = True
        await self.go_on.wait()
        for partition in range(PARTITIONS):
            await self.reactor.gained(partition)
        await asyncio.Event().wait()


async def test_a_chunk_that_comes_while_its_sim_comes_over_is_read_in_its_place(
    three_kernels: list[str],
) -> None:
    log = MemoryLog()
    chunks = cut(three_kernels, 50)
    await started(log)
    await append(log, *chunks[:2])
    reactor = ParserReactor(log)
    slow = Slow(reactor)
    running = asyncio.create_task(reactor.run(slow))
    await until_read(reactor, log)
    await append(log, chunks[2])
    await until_read(reactor, log)
    slow.go_on.set()
    await append(log, chunks[3])
    await ended(log)
    await end(running)
    assert await cycles_of(log) == CYCLES


async def test_a_sim_that_goes_away_and_comes_back_is_read_on(three_kernels: list[str]) -> None:
    log = MemoryLog()
    chunks = cut(three_kernels, 30)
    reactor = ParserReactor(log)
    slow = Slow(reactor)
    slow.go_on.set()
    running = asyncio.create_task(reactor.run(slow))
    await started(log)
    for index, one in enumerate(chunks):
        await log.append(one)
        await until_read(reactor, log)
        slow.held = index % 2 == 1
        change = reactor.gained if slow.held else reactor.lost
        for partition in range(PARTITIONS):
            await change(partition)
    slow.held = True
    await ended(log)
    await end(running)
    assert await cycles_of(log) == CYCLES
