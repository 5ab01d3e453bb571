"""One watched run: its folded sims, and the frames that each further fact makes for every subscriber."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cascade_core.facts import AnyFact
from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.metrics import SSE_CUT_OFF
from cascade_core.record import Recorded
from cascade_core.runs.facts import RunCancelRequested
from cascade_core.sims import state as sim_state
from cascade_core.sims.facts import SimFact, SimLogArchived
from cascade_core.sims.state import Sim

from cascade_api.live.frames import event_frame
from cascade_api.wire.events import KernelEvent, LogEvent, SimEvent
from cascade_api.wire.results import kernel_stat
from cascade_api.wire.runs import sim_summary

MOST_UNSENT_EVENTS = 2000
"""spec: api-events. A subscriber further behind is cut off and starts again from a new snapshot."""
MOST_UNSENT_BYTES = 64 * 1024 * 1024
"""A kernel's event has 30 KB, so this is about as many; it bounds what one stalled browser holds when lines are
megabytes long. A single fact may always pass."""


@dataclass(frozen=True, slots=True)
class Traced:
    """What a frame's span needs: its fact's trace context, and when it was queued. [ns since 1970]"""

    traceparent: str
    queued_ns: int


class Subscriber:
    """One open event stream: a bounded queue of frames, each with the position of its fact."""

    def __init__(self) -> None:
        self._frames: deque[tuple[int, bytes, Traced | None]] = deque()
        self.traced: Traced | None = None
        """Of the frame that was taken last."""
        self._bytes = 0
        self._after = 0
        self._wake = asyncio.Event()
        self.ended = False

    def offer(self, position: int, frames: Sequence[bytes], traced: Traced | None = None) -> None:
        """Queue frames. Past a bound the subscriber is cut off: what it has not been sent is dropped, the stream ends.

        What it was sent stays a beginning of what happened; it starts again from a new snapshot.
        """
        if self.ended or position <= self._after or not frames:
            return
        for frame in frames:
            self._frames.append((position, frame, traced))
            self._bytes += len(frame)
        if len(self._frames) > MOST_UNSENT_EVENTS or (
            self._bytes > MOST_UNSENT_BYTES and len(self._frames) > len(frames)
        ):
            self._frames.clear()
            self._bytes = 0
            self.ended = True
            SSE_CUT_OFF.inc()
        self._wake.set()

    def end(self) -> None:
        """No more frames will come; the stream ends after what is queued."""
        self.ended = True
        self._wake.set()

    def start_after(self, position: int) -> None:
        """Leave out what a snapshot at `position` contains: what is queued, and what the feed has yet to reach."""
        self._after = position
        while self._frames and self._frames[0][0] <= position:
            self._take()

    async def next(self, *, within_s: float) -> bytes | None:
        """The next frame; None when none came in time. Raises StopAsyncIteration when the stream must end."""
        try:
            async with asyncio.timeout(within_s):
                while not self._frames:
                    if self.ended:
                        raise StopAsyncIteration
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return None
        return self._take()

    def _take(self) -> bytes:
        _, frame, self.traced = self._frames.popleft()
        self._bytes -= len(frame)
        return frame


class RunFeed:
    """Folds one run's facts behind `position` and hands the frames to its subscribers."""

    def __init__(self, run_id: str, position: int, sims: Iterable[Sim]) -> None:
        self.run_id = run_id
        self.position = position
        self.subscribers: set[Subscriber] = set()
        self._sims = {sim.sim_id: sim for sim in sims}
        self._seen_chunks: dict[str, _SeenChunks] = {}
        self._seen_kernels: dict[str, int] = {}
        self._last_told: dict[str, bytes] = {}
        """Each sim's newest `sim` event."""

    def take(self, record: Recorded[AnyFact]) -> None:
        """Fold one fact; whoever watches gets its frames."""
        frames = list(self.frames_of(record.fact))
        self.position = record.position
        traced = Traced(record.traceparent, time.time_ns()) if record.traceparent is not None else None
        for subscriber in self.subscribers:
            subscriber.offer(record.position, frames, traced)
        self.subscribers = {subscriber for subscriber in self.subscribers if not subscriber.ended}

    def frames_of(self, fact: AnyFact) -> Iterable[bytes]:
        """The frames that a fact makes, after folding it. A fact that changes nothing makes none."""
        match fact:
            case RunCancelRequested():
                for sim in list(self._sims.values()):
                    yield from self._moved(sim, sim_state.apply(sim, fact))
            case LogAppended():
                yield from self._log_frames(fact)
            case KernelFinished():
                yield from self._kernel_frames(fact)
            case SimLogArchived():
                return  # where a log lies is nothing that a viewer sees
            case SimFact():
                known = self._sims.get(fact.sim_id)
                if known is not None:
                    yield from self._moved(known, sim_state.apply(known, fact))
            case _:
                return

    def _moved(self, before: Sim, after: Sim) -> Iterable[bytes]:
        if after is before:
            return
        self._sims[after.sim_id] = after
        frame = event_frame(SimEvent(sim=sim_summary(after)))
        # What a viewer does not see changes too: how far the log is parsed, which start owns the sim.
        if frame != self._last_told.get(after.sim_id):
            self._last_told[after.sim_id] = frame
            yield frame

    def _log_frames(self, fact: LogAppended) -> Iterable[bytes]:
        sim = self._sims.get(fact.sim_id)
        if sim is None or not sim_state.accepts_chunk(sim, fact):
            if sim is not None:
                self._sims[fact.sim_id] = sim_state.apply(sim, fact)
            return
        if not self._seen_chunks.setdefault(fact.sim_id, _SeenChunks()).add(fact.seq):
            return
        self._sims[fact.sim_id] = sim_state.apply(sim, fact)
        yield event_frame(LogEvent(sim_id=fact.sim_id, lines=fact.lines))

    def _kernel_frames(self, fact: KernelFinished) -> Iterable[bytes]:
        sim = self._sims.get(fact.sim_id)
        if sim is None or fact.index <= self._seen_kernels.get(fact.sim_id, -1):
            return
        self._seen_kernels[fact.sim_id] = fact.index
        yield event_frame(KernelEvent(stat=kernel_stat(fact, sim.clock_mhz, with_stats=True)))

    def start_from(self, chunks: dict[str, list[int]], kernels_done: dict[str, int]) -> None:
        """Remember which chunks and kernels came before this feed, so that a repeat makes no frame."""
        for sim_id, seqs in chunks.items():
            self._seen_chunks[sim_id] = _SeenChunks(seqs)
        self._seen_kernels = {sim_id: done - 1 for sim_id, done in kernels_done.items()}


class _SeenChunks:
    """The chunk numbers seen so far: everything below `_next`, and a few that came early."""

    def __init__(self, seqs: Iterable[int] = ()) -> None:
        self._next = 0
        self._early: set[int] = set()
        for seq in seqs:
            self.add(seq)

    def add(self, seq: int) -> bool:
        """Note `seq`; False if it was seen before."""
        if seq < self._next or seq in self._early:
            return False
        self._early.add(seq)
        while self._next in self._early:
            self._early.remove(self._next)
            self._next += 1
        return True
