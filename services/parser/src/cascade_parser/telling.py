"""Stores what reading found out: kernels at once, progress the less often the more sims there are.

Progress is a whole state and not a step, so leaving one out loses nothing; a thousand sims that send a chunk every half
second would otherwise double the log's traffic. Kernels and the end of a log never wait, and what was held back is
told in the end.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar

import structlog
from cascade_core.errors import LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.kernels.facts import KernelFinished
from cascade_core.metrics import KERNELS_PARSED
from cascade_core.ports import EventLog
from cascade_core.sims.facts import SimProgressed
from cascade_core.sims.state import Sim

from cascade_parser.ordering import ChunkPlaces
from cascade_parser.reading import LogReading

_logger = structlog.get_logger(__name__)

RETRY_S: Final = 0.5
MOST_APART_S: Final = 1.0
"""Between two progress facts of one sim, however many sims there are, while its chunks come."""
PROGRESS_A_SECOND: Final = 500
"""Of all sims together, roughly; so ten sims tell of every chunk, and a thousand once a second each."""

F = TypeVar("F", KernelFinished, SimProgressed)
Told = tuple[F, str, str | None]
"""A fact, its event id, and the trace context of what it was found in."""


@dataclass(slots=True)
class LiveSim:
    """A sim whose log may still have to be read."""

    sim: Sim
    chunks: ChunkPlaces = field(default_factory=ChunkPlaces)
    """Every chunk that belongs to the log."""
    reading: LogReading | None = None
    traceparent: str | None = None
    """Of the fact that its reading went on with last."""
    told_at: float = float("-inf")
    """When its progress was told last. [s, monotonic]"""


@dataclass(slots=True)
class News:
    """What has been found out and is not stored yet. Kernels go first: progress says that they are stored."""

    kernels: list[Told[KernelFinished]] = field(default_factory=list)
    progress: list[Told[SimProgressed]] = field(default_factory=list)


class Teller:
    """Appends kernels and progress, and remembers whose progress it has held back."""

    def __init__(
        self,
        log: EventLog,
        live: MutableMapping[str, LiveSim],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """live: every sim by id; one that is read to its end and told is taken out."""
        self._log = log
        self._live = live
        self._clock = clock
        self._owed: dict[str, float] = {}

    def take_due(self) -> list[str]:
        """The sims whose progress was held back, and need not be any longer; each is named once."""
        now = self._clock()
        due = [sim_id for sim_id, due_at in self._owed.items() if due_at <= now]
        for sim_id in due:
            del self._owed[sim_id]
        return due

    async def tell(self, read: Iterable[LiveSim], news: News) -> None:
        """Store `news` and what `read` makes known of its progress, and drop the sims that are done with."""
        read = list(read)
        with_kernels = {kernel.sim_id for kernel, *_ in news.kernels}
        for live in read:
            self._owed.pop(live.sim.sim_id, None)
            if live.reading is not None:  # else lost meanwhile; its next reader tells
                self._progress(live, live.reading, news, at_once=live.sim.sim_id in with_kernels)
        await self._append(news.kernels)
        await self._append(news.progress)
        KERNELS_PARSED.inc(len(news.kernels))
        news.kernels, news.progress = [], []
        for live in read:
            if live.reading is not None and live.reading.finished:
                self._live.pop(live.sim.sim_id, None)

    def _progress(self, live: LiveSim, reading: LogReading, news: News, *, at_once: bool) -> None:
        sim_id = live.sim.sim_id
        if reading.finished and reading.parked is not None:
            _logger.error(
                "log was not read to its end", run_id=live.sim.run_id, sim_id=sim_id, why=reading.parked
            )
        now = self._clock()
        due_at = live.told_at + min(len(self._live) / PROGRESS_A_SECOND, MOST_APART_S)
        if not (at_once or reading.finished) and now < due_at:
            self._owed[sim_id] = due_at
            return
        progress = reading.progress(datetime.now(UTC))
        if progress.final or progress.through_seq > live.sim.through_seq:
            live.told_at = now
            event_id = f"progress:{sim_id}:{progress.through_seq}:{int(progress.final)}"
            news.progress.append((progress, event_id, live.traceparent))

    async def _append(self, told: list[Told[F]]) -> None:
        """Nothing goes on before it is durable; ids make the repeat harmless."""
        facts: list[tuple[AnyFact, str | None]] = [(fact, event_id) for fact, event_id, _ in told]
        traceparents = [traceparent for *_, traceparent in told]
        while told:
            try:
                await self._log.append_all(facts, traceparents=traceparents)
            except LogUnavailable as error:
                _logger.warning("append is tried again", error=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                return
