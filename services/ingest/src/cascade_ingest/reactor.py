"""Scans the bucket, folds its own facts back, and drives each trace from its first object to `ready`.

The listing is the truth; a bucket notification only hastens the next scan. Everything that is remembered between
scans can be lost: the state of a trace is the fold of its facts, and a new process just scans again.
"""

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime

import structlog
from cascade_core import subjects
from cascade_core.errors import LogUnavailable, NotFound, Unavailable
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.ports import Bucket
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
LISTING_SHARE = 5.0
"""A listing that took t is not repeated before LISTING_SHARE * t: a huge upload must not keep the store busy."""


class Ingest:
    """All traces of one bucket prefix."""

    def __init__(
        self,
        log: JetStreamLog,
        bucket: Bucket,
        *,
        prefix: str,
        postprocessor: Postprocessor,
        scan_interval_s: float,
    ) -> None:
        self._log = log
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        self._postprocessor = postprocessor
        self._interval_s = scan_interval_s
        self._traces: dict[str, Trace] = {}
        self._watchers: dict[str, Watcher] = {}
        self._processing: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        self._slots = asyncio.Semaphore(PROCESSING_AT_ONCE)
        self._turn = 0
        self.hint = asyncio.Event()

    async def run(self) -> None:
        """Scan for ever."""
        await self._load()
        try:
            while True:
                await self._scan_safely()
                await self._wait()
        finally:
            for task in self._processing.values():
                task.cancel()
            await asyncio.gather(*self._processing.values(), return_exceptions=True)

    async def _load(self) -> None:
        while True:
            try:
                records = await self._log.read([subjects.ALL_TRACES])
            except LogUnavailable as error:
                _logger.warning("waiting for the event log", error=str(error))
                await asyncio.sleep(self._interval_s)
                continue
            for record in records:
                if isinstance(record.fact, TraceFact):
                    self._fold(record.fact)
            return

    async def _catch_up(self, trace_id: str) -> None:
        """Fold what others have told of a trace that is new here: the bundled samples are told by their seeder."""
        for record in await self._log.read([subjects.trace_filter(trace_id)]):
            if isinstance(record.fact, TraceFact):
                self._fold(record.fact)

    async def _wait(self) -> None:
        self.hint.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval_s):
                await self.hint.wait()

    async def _scan_safely(self) -> None:
        try:
            await self.scan()
        except Unavailable as error:
            _logger.warning("scan is tried again", error=str(error))

    async def scan(self) -> None:
        """One look at the whole prefix. Raises BucketUnavailable, LogUnavailable; a half-done scan does no harm."""
        found = await self._bucket.directories(f"{self._prefix}/" if self._prefix else "")
        names = [name for name in found if is_visible(name)]
        for trace_id in names:
            if trace_id not in self._traces:
                await self._catch_up(trace_id)
            trace = self._traces.get(trace_id)
            if (trace is not None and trace.sample) or trace_id in self._processing:
                continue
            if is_settled(trace):
                continue
            await self._scan_upload(trace_id)
        await self._look_at_settled(names)
        await self._notice_removed(set(names))

    async def _scan_upload(self, trace_id: str) -> None:
        if time.monotonic() < self._not_before.get(trace_id, 0.0):
            return
        watcher = self._watcher(trace_id)
        started = time.monotonic()
        tree = await self._tree(watcher)
        took = time.monotonic() - started
        self._not_before[trace_id] = time.monotonic() + (
            LISTING_SHARE * took if took > self._interval_s / 4 else 0
        )
        if not tree.files:
            return  # directory markers and dotfiles alone are no trace
        trace = self._traces.get(trace_id)
        if trace is None or trace.removed or trace.state is TraceState.UPLOADING:
            waited_for = watcher.waits_for
            for fact in await watcher.scanned(tree, trace, _now()):
                await self._append(fact)
            if watcher.waits_for and watcher.waits_for != waited_for:
                _logger.info("upload waits", trace_id=trace_id, reason=watcher.waits_for)
        trace = self._traces.get(trace_id)
        if trace is not None and trace.state is TraceState.PROCESSING:
            self._start_processing(watcher, tree)

    def _start_processing(self, watcher: Watcher, tree: Tree) -> None:
        task = asyncio.create_task(self._process(watcher, tree))
        self._processing[watcher.trace_id] = task
        task.add_done_callback(lambda _: self._processing.pop(watcher.trace_id, None))
        task.add_done_callback(lambda _: self.hint.set())

    async def _process(self, watcher: Watcher, tree: Tree) -> None:
        async with self._slots:
            try:
                if not tree.has_processed_list:
                    _logger.info("post-processing", trace_id=watcher.trace_id)
                    await self._postprocessor.run(self._bucket, watcher.trace_id, watcher.root, tree)
                    tree = await self._tree(watcher)
                fact: TraceFactUnion = await watcher.ready(tree, _now())
            except PostprocessError as error:
                fact = TraceFailed(trace_id=watcher.trace_id, occurred_at=_now(), error=str(error))
            except (Unavailable, NotFound, OSError) as error:
                # The trace stays `processing`; the next scan starts the step again.
                _logger.warning("processing is tried again", trace_id=watcher.trace_id, error=str(error))
                return
            try:
                await self._append(fact)
            except LogUnavailable as error:
                _logger.warning("processing is tried again", trace_id=watcher.trace_id, error=str(error))

    async def _look_at_settled(self, names: list[str]) -> None:
        settled = [
            name
            for name in names
            if is_settled(trace := self._traces.get(name)) and trace is not None and not trace.sample
        ]
        count = min(SETTLED_LOOKS_PER_SCAN, len(settled))
        for offset in range(count):
            trace_id = settled[(self._turn + offset) % len(settled)]
            watcher = self._watcher(trace_id)
            objects, _ = await self._bucket.level(watcher.root)
            facts = await watcher.side_files_seen(
                tree_of(watcher.root, objects), self._traces[trace_id], _now()
            )
            for fact in facts:
                await self._append(fact)
        self._turn = (self._turn + count) % max(len(settled), 1)

    async def _notice_removed(self, names: set[str]) -> None:
        for trace_id, trace in list(self._traces.items()):
            if trace.removed or trace.sample or trace_id in names or trace_id in self._processing:
                continue
            tree = await self._tree(self._watcher(trace_id))
            if not tree.files:
                await self._append(TraceRemoved(trace_id=trace_id, occurred_at=_now()))
                self._watchers.pop(trace_id, None)

    async def _tree(self, watcher: Watcher) -> Tree:
        objects = [entry async for page in self._bucket.objects(watcher.root) for entry in page]
        return tree_of(watcher.root, objects)

    def _watcher(self, trace_id: str) -> Watcher:
        if trace_id not in self._watchers:
            self._watchers[trace_id] = Watcher.of(self._bucket, self._prefix, trace_id)
        return self._watchers[trace_id]

    async def _append(self, fact: TraceFactUnion) -> None:
        await self._log.append(fact)
        self._fold(fact)

    def _fold(self, fact: TraceFact) -> None:
        after = trace_state.apply(self._traces.get(fact.trace_id), fact)  # type: ignore[arg-type]  # a union member
        if after is not None:
            self._traces[fact.trace_id] = after


def _now() -> datetime:
    return datetime.now(UTC)
