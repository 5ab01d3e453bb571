"""Follows every log, reads those of the sims it holds, and appends kernels and progress.

It keeps no state of its own: what was told already is in the log (`sim.progressed`), and a running sim's chunks are
in the stream until the sim has ended. So after a kill in the middle of a block, or when a sim comes over from another
instance, it reads the sim again from its first chunk and tells only what is new. Repeated facts carry the same event
ids and are recognised by every reader.
"""

import asyncio
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Protocol

import structlog
from cascade_core import subjects, telemetry
from cascade_core.errors import LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.metrics import LOG_LINES_PARSED
from cascade_core.ports import EventLog
from cascade_core.record import Recorded
from cascade_core.runs.facts import RunCancelRequested, RunRequested
from cascade_core.sims import state as sim_state
from cascade_core.sims.facts import SimFact, SimProgressed
from cascade_core.tasks import TaskSet

from cascade_parser.reading import LogReading
from cascade_parser.shares import partition_of
from cascade_parser.telling import RETRY_S, LiveSim, News, Teller

_logger = structlog.get_logger(__name__)

FILTERS = [subjects.ALL_RUNS, subjects.ALL_SIMS, subjects.ALL_LOGS]
BATCH = 512
OWED_EVERY_S = 0.1
"""How often it is looked for progress that was held back and is due."""


class Held(Protocol):
    """Which sims this instance reads. `run` keeps it up to date, and is started once the log was caught up with."""

    def holds(self, sim_id: str) -> bool:
        """Whether this instance reads the sim."""
        ...

    async def run(self) -> None:
        """Take, keep and give back sims for ever."""
        ...


class LogGone(Exception):
    """Chunks are no longer in the stream: the sim was archived, so it was read to its end by somebody else."""


class ParserReactor:
    """All sims of the log, and the readings of those that this instance holds."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._live: dict[str, LiveSim] = {}
        self._runs: set[str] = set()
        """Every run that was requested: a repeat must not bring its sims back."""
        # One at a time: a batch of facts, or sims that come over from another instance.
        self._lock = asyncio.Lock()
        self._held: Held | None = None
        self._teller = Teller(log, self._live)
        self.position = 0
        self.lines_read = 0

    async def run(self, held: Held) -> None:
        """Follow the log for ever. An error of the following or of the sharing ends both."""
        together = TaskSet()
        together.create(self._follow(held, together))
        together.create(self._tell_what_is_owed())
        await together.wait()

    async def _follow(self, held: Held, together: TaskSet) -> None:
        self._held = held
        caught_up_at = await self._newest()
        async with self._log.follow(FILTERS, batch=BATCH, reader="parser") as batches:
            # Before this instance has caught up it cannot know what has been told already.
            shares = together.create(held.run()) if caught_up_at == 0 else None
            async for records in batches:
                async with self._lock:
                    await self._react(records)
                if shares is None and self.position >= caught_up_at:
                    shares = together.create(held.run())

    async def _tell_what_is_owed(self) -> None:
        while True:
            await asyncio.sleep(OWED_EVERY_S)
            async with self._lock:
                owed = [self._live[sim_id] for sim_id in self._teller.take_due() if sim_id in self._live]
                if owed:
                    await self._teller.tell(owed, News())

    async def _newest(self) -> int:
        while True:
            try:
                return await self._log.newest(FILTERS)
            except LogUnavailable:
                await asyncio.sleep(RETRY_S)

    async def _react(self, records: list[Recorded[AnyFact]]) -> None:
        news = News()
        touched: dict[str, LiveSim] = {}
        for record in records:
            with _traced(record):
                live = await self._take(record, news)
                if live is not None:
                    touched[live.sim.sim_id] = live
                    live.traceparent = telemetry.current_traceparent()
            if isinstance(record.fact, LogAppended):
                await asyncio.sleep(0)  # reading takes a while; leases must be renewed meanwhile
        await self._teller.tell(touched.values(), news)
        self.position = records[-1].position

    async def gained(self, partition: int) -> None:
        """Read the sims of a partition, each from its first chunk."""
        async with self._lock:
            for live in list(self._live.values()):
                if partition_of(live.sim.sim_id) == partition and live.reading is None:
                    news = News()
                    if await self._read_again(live, news):
                        await self._teller.tell([live], news)
        _logger.info("partition gained", partition=partition)

    async def lost(self, partition: int) -> None:
        """Another instance may read the partition once this returns; what was under way is stored by then."""
        self._close(partition)
        async with self._lock:
            self._close(partition)
        _logger.info("partition lost", partition=partition)

    def _close(self, partition: int) -> None:
        for live in self._live.values():
            if partition_of(live.sim.sim_id) == partition:
                live.reading = None

    async def _take(self, record: Recorded[AnyFact], news: News) -> LiveSim | None:
        """Fold one fact; returns the sim whose reading went on because of it."""
        fact = record.fact
        match fact:
            case RunRequested():
                if fact.run_id not in self._runs:
                    self._runs.add(fact.run_id)
                    self._live |= {sim.sim_id: LiveSim(sim) for sim in sim_state.sims_of(fact)}
            case RunCancelRequested():
                touched = [
                    await self._folded(live, fact, news)
                    for live in list(self._live.values())
                    if live.sim.run_id == fact.run_id
                ]
                await self._teller.tell([live for live in touched if live is not None], news)
            case LogAppended():
                live = self._live.get(fact.sim_id)
                return None if live is None else await self._chunk(live, record.position, fact, news)
            case SimFact():
                live = self._live.get(fact.sim_id)
                return None if live is None else await self._folded(live, fact, news)
            case _:
                pass
        return None

    async def _folded(self, live: LiveSim, fact: sim_state.SimInput, news: News) -> LiveSim | None:
        live.sim = sim_state.apply(live.sim, fact)
        if isinstance(fact, SimProgressed) and live.sim.parsed_to_end:
            self._live.pop(live.sim.sim_id, None)
            return None
        if not live.sim.is_terminal or not self._holds(live.sim.sim_id):
            return None
        if live.reading is None:
            return live if await self._read_again(live, news) else None
        if live.reading.finished:
            return None
        return live if await self._finish(live, live.reading, news) else None

    async def _chunk(self, live: LiveSim, position: int, fact: LogAppended, news: News) -> LiveSim | None:
        accepted = sim_state.accepts_chunk(live.sim, fact)
        live.sim = sim_state.apply(live.sim, fact)
        if not (accepted and live.chunks.add(fact.seq, position)):
            return None
        if live.sim.is_terminal or not self._holds(fact.sim_id):
            return None
        reading = live.reading
        if reading is None:
            return live if await self._read_again(live, news) else None
        if not reading.order.arrived(fact.seq, position):
            return None
        self._read(reading, fact.lines, news)
        return live if await self._read_early(live, reading, news) else None

    async def _read_again(self, live: LiveSim, news: News) -> bool:
        """Read everything that is stored of one sim, telling only what was not told before. False: it is gone."""
        while True:
            reading = LogReading(live.sim.run_id, live.sim.sim_id, kernels_told=live.sim.kernels_done)
            attempt = News()
            try:
                await self._read_stored(live, reading, attempt)
            except LogUnavailable as error:
                _logger.warning(
                    "log is read again", run_id=live.sim.run_id, sim_id=live.sim.sim_id, error=str(error)
                )
                await asyncio.sleep(RETRY_S)
                continue
            except LogGone:
                self._forget_gone(live)
                return False
            break
        news.kernels += attempt.kernels
        live.reading = reading
        return await self._finish(live, reading, news) if live.sim.is_terminal else True

    async def _read_stored(self, live: LiveSim, reading: LogReading, news: News) -> None:
        left = len(live.chunks)
        if left == 0:
            return
        subject = subjects.log_of(live.sim.run_id, live.sim.sim_id)
        async for page in self._log.pages([subject], after=live.chunks.first - 1):
            for record in page:
                fact = record.fact
                if not isinstance(fact, LogAppended) or live.chunks.position(fact.seq) != record.position:
                    continue
                left -= 1
                if reading.order.arrived(fact.seq, record.position):
                    self._read(reading, fact.lines, news)
                    while (early := reading.order.take_next_early()) is not None:
                        self._read(reading, await self._lines_at(early), news)
                await asyncio.sleep(0)
        if left:
            raise LogGone

    async def _read_early(self, live: LiveSim, reading: LogReading, news: News) -> bool:
        try:
            while (early := reading.order.take_next_early()) is not None:
                self._read(reading, await self._lines_at(early), news)
        except LogGone:
            self._forget_gone(live)
            return False
        return True

    async def _finish(self, live: LiveSim, reading: LogReading, news: News) -> bool:
        """The sim has ended: read what lies beyond gaps, close an open block."""
        try:
            for position in reading.order.take_rest():
                self._read(reading, await self._lines_at(position), news)
        except LogGone:
            self._forget_gone(live)
            return False
        self._found(reading.finish(_now()), news)
        return True

    def _read(self, reading: LogReading, lines: list[str], news: News) -> None:
        self.lines_read += len(lines)
        LOG_LINES_PARSED.inc(len(lines))
        self._found(reading.read(lines, _now()), news)

    def _found(self, kernels: list[KernelFinished], news: News) -> None:
        if kernels:
            trace = telemetry.current_traceparent()
            news.kernels.extend(
                (kernel, f"kernel:{kernel.sim_id}:{kernel.index}", trace) for kernel in kernels
            )

    async def _lines_at(self, position: int) -> list[str]:
        while True:
            try:
                record = await self._log.at(position)
            except LogUnavailable:
                await asyncio.sleep(RETRY_S)
                continue
            if record is None or not isinstance(record.fact, LogAppended):
                raise LogGone
            return record.fact.lines

    def _forget_gone(self, live: LiveSim) -> None:
        _logger.info("log was archived meanwhile", run_id=live.sim.run_id, sim_id=live.sim.sim_id)
        self._live.pop(live.sim.sim_id, None)

    def _holds(self, sim_id: str) -> bool:
        return self._held is not None and self._held.holds(sim_id)


def _traced(record: Recorded[AnyFact]) -> AbstractContextManager[None]:
    """What is found out from a fact belongs to its trace. Reading a log takes time worth a span, folding does not."""
    if isinstance(record.fact, LogAppended):
        return telemetry.fact_span("cascade.parser.read", record.traceparent)
    return telemetry.continued(record.traceparent)


def _now() -> datetime:
    return datetime.now(UTC)
