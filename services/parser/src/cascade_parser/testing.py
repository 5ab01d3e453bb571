"""What tests of the parser share: a reactor that holds every sim, chunks, and what it has told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from cascade_core import subjects
from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.ports import EventLog
from cascade_core.sims.facts import SimProgressed
from cascade_core.tasks import end
from cascade_core.testing.builders import RUN, SIM, chunk

from cascade_parser.reactor import ParserReactor
from cascade_parser.shares import PARTITIONS, partition_of


class AllSims:
    """The shares of an instance that is alone: like the real ones they begin once the log was caught up with."""

    def __init__(self, reactor: ParserReactor) -> None:
        self._reactor = reactor
        self._held: set[int] = set()

    def holds(self, sim_id: str) -> bool:
        """Whether the sim's partition was gained."""
        return partition_of(sim_id) in self._held

    async def run(self) -> None:
        """Gain every partition, and keep them."""
        for partition in range(PARTITIONS):
            self._held.add(partition)
            await self._reactor.gained(partition)
        await asyncio.Event().wait()


def cut(
    lines: Sequence[str], size: int, *, sim_id: str = SIM, attempt: str | None = None
) -> list[LogAppended]:
    """`lines` in chunks of `size`."""
    return [
        chunk(seq, lines[start : start + size], sim_id=sim_id, attempt=attempt)
        for seq, start in enumerate(range(0, len(lines), size))
    ]


@asynccontextmanager
async def parsing(log: EventLog) -> AsyncIterator[ParserReactor]:
    """A reactor that follows `log` and holds every sim, for the length of the block; its errors come out here."""
    reactor = ParserReactor(log)
    running = asyncio.create_task(reactor.run(AllSims(reactor)))
    try:
        yield reactor
    finally:
        ended_by_itself = running.done()
        await end(running)
        if ended_by_itself:
            raise AssertionError(f"the reactor ended by itself: {running.exception()!r}")


async def until(
    condition: Callable[[], Awaitable[bool]], *, deadline_s: float = 60, every_s: float = 0.02
) -> None:
    """Wait for `condition`, or fail at the deadline."""
    async with asyncio.timeout(deadline_s):
        while not await condition():  # noqa: ASYNC110 - it may be another process that brings it about
            await asyncio.sleep(every_s)


async def kernels_of(log: EventLog, sim_id: str = SIM, *, run_id: str = RUN) -> list[KernelFinished]:
    """The kernels of a sim, as they stand in the stream."""
    records = await log.read([subjects.kernels_of(run_id, sim_id)])
    return [record.fact for record in records if isinstance(record.fact, KernelFinished)]


async def progress_of(log: EventLog, sim_id: str = SIM, *, run_id: str = RUN) -> list[SimProgressed]:
    """The progress of a sim, as it stands in the stream."""
    records = await log.read([subjects.sim_fact(run_id, sim_id, "progressed")])
    return [record.fact for record in records if isinstance(record.fact, SimProgressed)]


async def is_parsed(log: EventLog, sim_id: str = SIM, *, run_id: str = RUN) -> bool:
    """Whether the sim's log was read to its end."""
    newest = await log.last(subjects.sim_fact(run_id, sim_id, "progressed"))
    return newest is not None and isinstance(newest.fact, SimProgressed) and newest.fact.final
