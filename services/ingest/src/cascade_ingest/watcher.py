"""One trace under watch: what the last scan saw and what follows from it, as facts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from cascade_core.ports import Bucket
from cascade_core.traces import state as trace_state
from cascade_core.traces.facts import (
    TraceDiscovered,
    TraceFactUnion,
    TraceFailed,
    TraceObserved,
    TraceReady,
    TraceUploadCompleted,
)
from cascade_core.traces.state import Trace, TraceState

from cascade_ingest.completeness import Complete, Incomplete, ReportedFailed, assess
from cascade_ingest.contents import Contents
from cascade_ingest.tree import File, Tree


@dataclass(slots=True)
class Watcher:
    """Turns scans of one trace's directory into facts. Knows nothing of the log."""

    trace_id: str
    root: str
    contents: Contents
    waits_for: str = ""
    _tree: Tree | None = None
    _unchanged_since: float = 0.0
    _top: Mapping[str, File] | None = None

    @classmethod
    def of(cls, bucket: Bucket, prefix: str, trace_id: str) -> "Watcher":
        """A watcher of `<prefix>/<trace id>/`."""
        root = f"{prefix}/{trace_id}/" if prefix else f"{trace_id}/"
        return cls(trace_id, root, Contents(bucket, root))

    def is_quiet(self, tree: Tree, at: float, *, for_s: float) -> bool:
        """Whether an earlier scan, at least `for_s` before `at`, saw the same files, and no scan since saw others.

        Size and ETag are compared, never an object's time. at: any clock that only goes forward. [s]
        """
        if self._tree is None or self._tree.files != tree.files:
            self._tree, self._unchanged_since = tree, at
            return False
        return at - self._unchanged_since >= for_s

    async def scanned(
        self, tree: Tree, trace: Trace | None, now: datetime, *, quiet: bool
    ) -> list[TraceFactUnion]:
        """The facts that a whole scan of an uploading trace gives rise to."""
        facts: list[TraceFactUnion] = []
        if trace is None or trace.removed:
            facts.append(TraceDiscovered(trace_id=self.trace_id, occurred_at=now))
        metadata = await self.contents.metadata(tree)
        observed = TraceObserved(
            trace_id=self.trace_id,
            occurred_at=now,
            kernel_count=tree.raw_kernel_count,
            size_bytes=tree.size_bytes,
            metadata=metadata,
            has_step_timeline=tree.has_step_timeline,
            real_timing=await self.contents.real_timing(tree, metadata),
        )
        facts.extend(_news(trace, observed))
        match assess(tree, metadata, root=self.root, quiet=quiet):
            case Complete():
                self.waits_for = ""
                facts.append(TraceUploadCompleted(trace_id=self.trace_id, occurred_at=now))
            case ReportedFailed(error):
                facts.append(TraceFailed(trace_id=self.trace_id, occurred_at=now, error=error))
            case Incomplete(reason):
                self.waits_for = reason
        return facts

    def top_differs(self, root_level: Tree) -> bool:
        """Whether the files in the top folder are others than those seen last, so that the trace's size is another.

        Not known at the first look after a start, which would cost a whole listing of every trace there is.
        """
        return self._top is not None and self._top != root_level.files

    def remember_top(self, tree: Tree) -> None:
        """Take the top folder's files in `tree` for those seen last."""
        self._top = {path: file for path, file in tree.files.items() if "/" not in path}

    async def side_files_seen(
        self, root_level: Tree, trace: Trace, now: datetime, *, size_bytes: int
    ) -> list[TraceFactUnion]:
        """The facts of a cheap look at a settled trace's top folder: late timing files, changed metadata.

        size_bytes: of the whole trace.
        """
        metadata = await self.contents.metadata(root_level) or trace.metadata
        observed = TraceObserved(
            trace_id=self.trace_id,
            occurred_at=now,
            kernel_count=trace.kernel_count,
            size_bytes=size_bytes,
            metadata=metadata,
            has_step_timeline=root_level.has_step_timeline,
            real_timing=await self.contents.real_timing(
                await self.contents.with_named_timing(root_level, metadata), metadata
            ),
        )
        return [*_news(trace, observed)]

    async def ready(self, tree: Tree, now: datetime) -> TraceReady:
        """The fact that runs can launch, with the kernels of the statistics files."""
        self.remember_top(tree)
        return TraceReady(
            trace_id=self.trace_id,
            occurred_at=now,
            kernel_count=await self.contents.processed_kernel_count(),
            size_bytes=tree.size_bytes,
            kernels=await self.contents.kernels(tree),
        )


def _news(trace: Trace | None, observed: TraceObserved) -> Iterator[TraceObserved]:
    """The observation, where it tells of a change, without the documents that the trace has already."""
    if trace is None or trace.removed:
        yield observed
        return
    after = trace_state.apply(trace, observed)
    if after is None or after is trace:
        return
    if (after.metadata, after.real_timing) == (trace.metadata, trace.real_timing):
        yield observed.model_copy(update={"metadata": None, "real_timing": None, "documents_unchanged": True})
    else:
        yield observed


def is_settled(trace: Trace | None) -> bool:
    """Whether the upload is over, one way or the other."""
    return trace is not None and not trace.removed and trace.state in (TraceState.READY, TraceState.FAILED)
