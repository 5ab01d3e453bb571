"""Scans the bucket, folds its own facts back, and drives each trace from its first object to `ready`.

The listing is the truth; a bucket notification only hastens the next scan. Everything that is remembered between
scans can be lost: the state of a trace is the fold of its facts, and a new process just scans again. What goes wrong
with one trace does not keep the others waiting.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime

import structlog
from cascade_core import subjects
from cascade_core.errors import LogUnavailable, Refused, Unavailable
from cascade_core.metrics import SCANS_FAILED, TRACES
from cascade_core.ports import Bucket, EventLog
from cascade_core.tasks import TaskSet
from cascade_core.traces import state as trace_state
from cascade_core.traces.facts import TraceFact, TraceFactUnion, TraceFailed, TraceRemoved
from cascade_core.traces.state import Trace, TraceState

from cascade_ingest.postprocess import PostprocessError, Postprocessor
from cascade_ingest.tree import Tree, is_visible, tree_of
from cascade_ingest.watcher import Watcher, is_settled

_logger = structlog.get_logger(__name__)

SETTLED_LOOKS_PER_SCAN = 25
"""Ready traces looked at for late side files in one scan, in turn: a thousand traces cost no more than these."""
PROCESSING_AT_ONCE = 2
HINTS_GATHERED_S = 0.2
"""A notification comes for every object of an upload; a scan answers all that came in this time."""
QUIET_SHARE = 0.9
"""Files count as unchanged "since the scan before" only if that was nearly a scan interval ago: hints make scans follow
each other faster than an uploader's files."""
LISTING_SHARE = 5.0
"""A slow listing that took t is not repeated before this times t: a huge upload must not keep the store busy."""
GONE_CHECK_EVERY_S = 60.0
LONGEST_RETRY_WAIT_S = 60.0
"""Processing that broke off is tried again after the scan interval, then twice as long each time, up to this."""
TROUBLE_IN_A_ROW = 3
"""After so many traces in a row that could not be read, ask whether the store answers at all before the next one."""


class Ingest:
    """All traces of one bucket prefix."""

    def __init__(
        self,
        log: EventLog,
        bucket: Bucket,
        *,
        prefix: str,
        postprocessor: Postprocessor,
        scan_interval_s: float,
        listing_share: float = LISTING_SHARE,
    ) -> None:
        self._log = log
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        self._postprocessor = postprocessor
        self._interval_s = scan_interval_s
        self._listing_share = listing_share
        self._traces: dict[str, Trace] = {}
        self._watchers: dict[str, Watcher] = {}
        self._processing: set[str] = set()
        self._retry_waits_s: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._slots = asyncio.Semaphore(PROCESSING_AT_ONCE)
        self._together = TaskSet()
        self._turn = 0
        self._trouble_in_a_row = 0
        self.hint = asyncio.Event()

    @property
    def processing(self) -> frozenset[str]:
        """The traces that are being processed now."""
        return frozenset(self._processing)

    @property
    def traces(self) -> dict[str, Trace]:
        """The fold of every trace's facts."""
        return dict(self._traces)

    async def run(self) -> None:
        """Scan for ever. However it ends, no post-processor is left running."""
        self._together.create(self._scan_for_ever())
        await self._together.wait()

    async def _scan_for_ever(self) -> None:
        await self.load()
        while True:
            try:
                await self.scan()
            except (Unavailable, Refused) as error:
                SCANS_FAILED.inc()
                _logger.warning("scan is tried again", error=str(error))
            self._show()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self.hint.wait()
                    await asyncio.sleep(HINTS_GATHERED_S)
            self.hint.clear()

    def _show(self) -> None:
        states = Counter(trace.state for trace in self._traces.values() if not trace.removed)
        for state in TraceState:
            TRACES.labels(state.value).set(states[state])

    async def load(self) -> None:
        """Fold what is known of every trace. Waits for the event log."""
        while True:
            try:
                self._traces |= await self._stored([subjects.ALL_TRACES])
            except LogUnavailable as error:
                _logger.warning("waiting for the event log", error=str(error))
                await asyncio.sleep(self._interval_s)
            else:
                return

    async def scan(self) -> None:
        """One look at the whole prefix. Raises Unavailable, Refused; a half-done scan does no harm."""
        names = await self._names()
        self._trouble_in_a_row = 0
        for trace_id in names:
            trace = self._traces.get(trace_id)
            if (trace is not None and trace.sample) or trace_id in self._processing or is_settled(trace):
                continue
            await self._looked_at(trace_id, self._scan_upload(trace_id))
        await self._look_at_settled(names)
        await self._notice_removed(set(names))

    async def _names(self) -> list[str]:
        found = await self._bucket.directories(f"{self._prefix}/" if self._prefix else "")
        return [name for name in found if is_visible(name)]

    async def _looked_at(self, trace_id: str, look: Coroutine[None, None, None]) -> None:
        """Do one trace's look. What is wrong with that trace alone is told and left; raises what is wrong with all."""
        try:
            await look
        except LogUnavailable:
            raise
        except (Unavailable, Refused) as error:
            _logger.warning("trace cannot be read", trace_id=trace_id, error=str(error))
            self._trouble_in_a_row += 1
            if self._trouble_in_a_row % TROUBLE_IN_A_ROW == 0:
                await self._names()  # a store that is away would cost every further trace its timeouts
        else:
            self._trouble_in_a_row = 0

    async def _scan_upload(self, trace_id: str) -> None:
        if time.monotonic() < self._not_before.get(trace_id, 0.0):
            return
        watcher = self._watcher(trace_id)
        started = time.monotonic()
        tree = await self._tree(watcher)
        took = time.monotonic() - started
        if took > self._interval_s / 4:
            self._not_before[trace_id] = time.monotonic() + self._listing_share * took
        trace = self._traces.get(trace_id)
        if trace is None or trace.removed:
            # Somebody else may have told of it meanwhile: the samples are seeded beside a running ingest.
            trace = await self._told_by_others(trace_id)
            if trace is not None and trace.sample:
                return
        if not tree.files:
            # Directory markers and dotfiles alone are no trace.
            if trace is not None and not trace.removed:
                await self._remove(trace_id)
            return
        if trace is None or trace.removed or trace.state is TraceState.UPLOADING:
            waited_for = watcher.waits_for
            quiet = watcher.is_quiet(tree, time.monotonic(), for_s=QUIET_SHARE * self._interval_s)
            for fact in await watcher.scanned(tree, trace, _now(), quiet=quiet):
                await self._append(fact)
            if watcher.waits_for and watcher.waits_for != waited_for:
                _logger.info("upload waits", trace_id=trace_id, reason=watcher.waits_for)
        trace = self._traces.get(trace_id)
        if trace is not None and trace.state is TraceState.PROCESSING:
            self._processing.add(trace_id)
            self._together.create(self._process(watcher, tree))

    async def _told_by_others(self, trace_id: str) -> Trace | None:
        """The trace after every fact that the log holds of it, whoever wrote it."""
        self._traces.pop(trace_id, None)
        self._traces |= await self._stored([subjects.trace_filter(trace_id)])
        return self._traces.get(trace_id)

    async def _stored(self, filters: list[str]) -> dict[str, Trace]:
        """The fold of what the log holds, page by page: the metadata of many traces is large. Raises LogUnavailable."""
        traces: dict[str, Trace] = {}
        async for page in self._log.pages(filters):
            for record in page:
                if isinstance(record.fact, TraceFact):
                    _fold(traces, record.fact)
        return traces

    async def _process(self, watcher: Watcher, tree: Tree) -> None:
        trace_id = watcher.trace_id
        try:
            async with self._slots:
                await self._append(await self._outcome(watcher, tree))
            self._retry_waits_s.pop(trace_id, None)
        except (Unavailable, Refused, OSError) as error:
            # The trace stays `processing`; a later scan starts the step again.
            wait_s = min(self._retry_waits_s.get(trace_id, self._interval_s), LONGEST_RETRY_WAIT_S)
            self._retry_waits_s[trace_id] = 2 * wait_s
            self._not_before[trace_id] = time.monotonic() + wait_s
            _logger.warning("processing is tried again", trace_id=trace_id, in_s=wait_s, error=str(error))
        finally:
            self._processing.discard(trace_id)
            self.hint.set()

    async def _outcome(self, watcher: Watcher, tree: Tree) -> TraceFactUnion:
        try:
            if not tree.has_processed_list:
                _logger.info("post-processing", trace_id=watcher.trace_id)
                await self._postprocessor.run(self._bucket, watcher.trace_id, watcher.root, tree)
                tree = await self._tree(watcher)
            return await watcher.ready(tree, _now())
        except PostprocessError as error:
            return TraceFailed(trace_id=watcher.trace_id, occurred_at=_now(), error=str(error))

    async def _look_at_settled(self, names: list[str]) -> None:
        settled = [
            (name, trace)
            for name in names
            if (trace := self._traces.get(name)) is not None and is_settled(trace) and not trace.sample
        ]
        for _ in range(min(SETTLED_LOOKS_PER_SCAN, len(settled))):
            trace_id, trace = settled[self._turn % len(settled)]
            self._turn += 1  # also past one that ends the scan
            await self._looked_at(trace_id, self._look_at_one_settled(trace_id, trace))

    async def _look_at_one_settled(self, trace_id: str, trace: Trace) -> None:
        watcher = self._watcher(trace_id)
        objects, _ = await self._bucket.level(watcher.root)
        top = tree_of(watcher.root, objects)
        if not top.files and time.monotonic() >= self._not_before.get(trace_id, 0.0):
            # Its metadata is gone. Whether all of it is, only a whole listing tells, so not in every scan.
            self._not_before[trace_id] = time.monotonic() + GONE_CHECK_EVERY_S
            await self._remove(trace_id)
            return
        size = (await self._tree(watcher)).size_bytes if watcher.top_differs(top) else trace.size_bytes
        for fact in await watcher.side_files_seen(top, trace, _now(), size_bytes=size):
            await self._append(fact)
        watcher.remember_top(top)

    async def _notice_removed(self, names: set[str]) -> None:
        for trace_id, trace in list(self._traces.items()):
            if trace.removed or trace.sample or trace_id in names or trace_id in self._processing:
                continue
            await self._looked_at(trace_id, self._remove(trace_id))

    async def _remove(self, trace_id: str) -> None:
        """Say that a trace is gone, once a listing of its own has shown that it is."""
        if not (await self._tree(self._watcher(trace_id))).files:
            await self._append(TraceRemoved(trace_id=trace_id, occurred_at=_now()))
            self._watchers.pop(trace_id, None)
            self._not_before.pop(trace_id, None)

    async def _tree(self, watcher: Watcher) -> Tree:
        objects = [entry async for page in self._bucket.objects(watcher.root) for entry in page]
        return tree_of(watcher.root, objects)

    def _watcher(self, trace_id: str) -> Watcher:
        if trace_id not in self._watchers:
            self._watchers[trace_id] = Watcher.of(self._bucket, self._prefix, trace_id)
        return self._watchers[trace_id]

    async def _append(self, fact: TraceFactUnion) -> None:
        await self._log.append(fact)
        _fold(self._traces, fact)


def _fold(traces: dict[str, Trace], fact: TraceFact) -> None:
    after = trace_state.apply(traces.get(fact.trace_id), fact)  # type: ignore[arg-type]  # a union member
    if after is not None:
        traces[fact.trace_id] = after


def _now() -> datetime:
    return datetime.now(UTC)
