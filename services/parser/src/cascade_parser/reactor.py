"""Follows every log, reads those of the sims it holds, and appends kernels and progress.

It keeps no state of its own: what was told already is in the log (`sim.progressed`), and a running sim's chunks are
in the stream until the sim has ended. So after a kill in the middle of a block it reads the sim again from its first
chunk and tells only what is new. Repeated facts carry the same event ids and are recognised by every reader.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog
from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.record import Recorded
from cascade_core.runs.facts import RunCancelRequested, RunRequested
from cascade_core.sims import state as sim_state
from cascade_core.sims.facts import SimFact, SimProgressed
from cascade_core.sims.state import Sim

from cascade_parser.reading import LogReading
from cascade_parser.shares import Shares, partition_of

_logger = structlog.get_logger(__name__)

FILTERS = [subjects.ALL_RUNS, subjects.ALL_SIMS, subjects.ALL_LOGS]
BATCH = 512
RETRY_APPEND_S = 0.5

Told = tuple[AnyFact, str | None]


@dataclass(slots=True)
class _Live:
    """A sim whose log may still have to be read."""

    sim: Sim
    chunks: dict[int, int] = field(default_factory=dict)
    """seq -> position of every chunk that belongs to the log; the first one of a seq wins."""
    reading: LogReading | None = None


class ParserReactor:
    """All sims of the log, and the readings of those that this instance holds."""

    def __init__(self, log: JetStreamLog) -> None:
        self._log = log
        self._live: dict[str, _Live] = {}
        self._sims_of_run: dict[str, list[str]] = {}
        self._lock = asyncio.Lock()
        self._shares: Shares | None = None
        self.position = 0
        self.lines_read = 0
        self.kernels_told = 0

    async def run(self, shares: Shares) -> None:
        """Follow the log for ever."""
        self._shares = shares
        caught_up_at = await self._newest()
        async with self._log.follow(FILTERS, after=0, batch=BATCH) as batches:
            if caught_up_at == 0:
                await self._start_sharing()
            async for records in batches:
                async with self._lock:
                    told: list[Told] = []
                    touched: dict[str, _Live] = {}
                    for record in records:
                        await self._take(record, told, touched)
                    now = _now()
                    for live in touched.values():
                        self._tell_progress(live, told, now)
                    await self._append(told)
                    self._forget_finished(touched)
                    self.position = records[-1].position
                if self._sharing is None and self.position >= caught_up_at:
                    await self._start_sharing()

    _sharing: asyncio.Task[None] | None = None

    async def _start_sharing(self) -> None:
        # Before this instance has caught up it cannot know what has been told already.
        assert self._shares is not None
        self._sharing = asyncio.create_task(self._shares.run())

    async def close(self) -> None:
        """Give the partitions back."""
        if self._sharing is not None:
            self._sharing.cancel()
            await asyncio.gather(self._sharing, return_exceptions=True)

    async def _newest(self) -> int:
        while True:
            try:
                return await self._log.newest(FILTERS)
            except LogUnavailable:
                await asyncio.sleep(RETRY_APPEND_S)

    async def gained(self, partition: int) -> None:
        """Read the running sims of a partition from their first chunks."""
        async with self._lock:
            now = _now()
            for live in list(self._live.values()):
                if partition_of(live.sim.sim_id) == partition and live.reading is None:
                    told: list[Told] = []
                    await self._catch_up(live, told, now)
                    self._tell_progress(live, told, now)
                    await self._append(told)
                    self._forget_finished({live.sim.sim_id: live})
        _logger.info("partition gained", partition=partition)

    async def lost(self, partition: int) -> None:
        """Another instance reads the partition from here on."""
        for live in self._live.values():
            if partition_of(live.sim.sim_id) == partition:
                live.reading = None
        _logger.info("partition lost", partition=partition)

    async def _take(self, record: Recorded[AnyFact], told: list[Told], touched: dict[str, _Live]) -> None:
        fact = record.fact
        match fact:
            case RunRequested():
                if fact.run_id not in self._sims_of_run:
                    self._sims_of_run[fact.run_id] = [planned.sim_id for planned in fact.sims]
                    for sim in sim_state.sims_of(fact):
                        self._live[sim.sim_id] = _Live(sim)
            case RunCancelRequested():
                for sim_id in self._sims_of_run.get(fact.run_id, []):
                    live = self._live.get(sim_id)
                    if live is not None:
                        live.sim = sim_state.apply(live.sim, fact)
                        await self._ended(live, told, touched)
            case LogAppended():
                await self._chunk(record.position, fact, told, touched)
            case SimFact():
                live = self._live.get(fact.sim_id)
                if live is not None:
                    live.sim = sim_state.apply(live.sim, fact)
                    if isinstance(fact, SimProgressed) and fact.final:
                        self._forget_finished({fact.sim_id: live})
                    else:
                        await self._ended(live, told, touched)
            case _:
                pass

    async def _chunk(
        self, position: int, fact: LogAppended, told: list[Told], touched: dict[str, _Live]
    ) -> None:
        live = self._live.get(fact.sim_id)
        if live is None:
            return
        accepted = sim_state.accepts_chunk(live.sim, fact)
        live.sim = sim_state.apply(live.sim, fact)
        if not accepted or fact.seq in live.chunks:
            return
        live.chunks[fact.seq] = position
        if not self._holds(fact.sim_id) or live.sim.is_terminal:
            return
        now = _now()
        if live.reading is None:
            # The partition was held before the run was requested: the reading starts with the first chunk.
            live.reading = LogReading(fact.run_id, fact.sim_id, kernels_told=live.sim.kernels_done)
        reading = live.reading
        if reading.order.arrived(fact.seq, position):
            self._read(reading, fact.lines, told, now)
            while (early := reading.order.take_next_early()) is not None:
                self._read(reading, await self._lines_at(early), told, now)
            touched[fact.sim_id] = live

    async def _ended(self, live: _Live, told: list[Told], touched: dict[str, _Live]) -> None:
        if not live.sim.is_terminal or live.sim.parsed_to_end or not self._holds(live.sim.sim_id):
            return
        if live.reading is None:
            live.reading = LogReading(live.sim.run_id, live.sim.sim_id, kernels_told=live.sim.kernels_done)
        if not live.reading.finished:
            await self._finish(live.reading, told, _now())
            touched[live.sim.sim_id] = live

    async def _finish(self, reading: LogReading, told: list[Told], now: datetime) -> None:
        for position in reading.order.take_rest():
            self._read(reading, await self._lines_at(position), told, now)
        self._kernels(reading.finish(now), told)

    async def _catch_up(self, live: _Live, told: list[Told], now: datetime) -> None:
        """Read everything that is stored of one sim, telling only what was not told before."""
        reading = LogReading(live.sim.run_id, live.sim.sim_id, kernels_told=live.sim.kernels_done)
        live.reading = reading
        for seq in sorted(live.chunks):
            if reading.order.arrived(seq, live.chunks[seq]):
                self._read(reading, await self._lines_at(live.chunks[seq]), told, now)
        if live.sim.is_terminal:
            await self._finish(reading, told, now)

    def _read(self, reading: LogReading, lines: list[str], told: list[Told], now: datetime) -> None:
        self.lines_read += len(lines)
        self._kernels(reading.read(lines, now), told)

    def _kernels(self, kernels: list[KernelFinished], told: list[Told]) -> None:
        self.kernels_told += len(kernels)
        told.extend((kernel, f"kernel:{kernel.sim_id}:{kernel.index}") for kernel in kernels)

    def _tell_progress(self, live: _Live, told: list[Told], now: datetime) -> None:
        if live.reading is None:
            return
        progress = live.reading.progress(now)
        if progress.final or progress.through_seq > live.sim.through_seq:
            event_id = f"progress:{progress.sim_id}:{progress.through_seq}:{int(progress.final)}"
            told.append((progress, event_id))

    async def _append(self, told: list[Told]) -> None:
        """Store what was found out. Nothing goes on before it is durable; ids make the repeat harmless."""
        while told:
            try:
                await self._log.append_all(told)
            except LogUnavailable as error:
                _logger.warning("append is tried again", error=str(error))
                await asyncio.sleep(RETRY_APPEND_S)
            else:
                return

    async def _lines_at(self, position: int) -> list[str]:
        while True:
            try:
                record = await self._log.at(position)
            except LogUnavailable:
                await asyncio.sleep(RETRY_APPEND_S)
                continue
            # A chunk can only be gone when the sim was archived, and then its reading was final.
            return record.fact.lines if record is not None and isinstance(record.fact, LogAppended) else []

    def _forget_finished(self, touched: dict[str, _Live]) -> None:
        for sim_id, live in touched.items():
            done = live.sim.parsed_to_end or (live.reading is not None and live.reading.finished)
            if done and live.sim.is_terminal:
                self._live.pop(sim_id, None)

    def _holds(self, sim_id: str) -> bool:
        return self._shares is not None and self._shares.holds(sim_id)


def _now() -> datetime:
    return datetime.now(UTC)
