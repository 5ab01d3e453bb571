"""A trace as the fold of its facts. Pure and total: no clock, no I/O, no raise."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from pydantic import JsonValue

from cascade_core.traces.facts import (
    KernelLaunch,
    RealKernel,
    TraceDiscovered,
    TraceFactUnion,
    TraceFailed,
    TraceObserved,
    TraceReady,
    TraceRemoved,
    TraceUploadCompleted,
)

DEFAULT_TRACE_ARCH = "sm_90"  # spec: types, TraceSummary.trace_gpu_arch


class TraceState(StrEnum):
    """Where a trace is in its lifecycle."""

    UPLOADING = "uploading"
    PROCESSING = "processing"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything the product shows of a trace."""

    trace_id: str
    created_at: datetime
    updated_at: datetime
    state: TraceState = TraceState.UPLOADING
    error: str | None = None
    sample: bool = False
    kernel_count: int = 0
    size_bytes: int = 0
    metadata: dict[str, JsonValue] | None = None
    has_step_timeline: bool = False
    real_timing: tuple[RealKernel, ...] | None = None
    kernels: tuple[KernelLaunch, ...] = field(default=())
    removed: bool = False

    @property
    def has_real_timing(self) -> bool:
        """Whether there are measured kernels to compare with."""
        return self.real_timing is not None

    def text(self, key: str) -> str | None:
        """`metadata.json[key]` where it is a non-empty string."""
        value = (self.metadata or {}).get(key)
        return value if isinstance(value, str) and value else None

    def texts(self, key: str) -> list[str]:
        """`metadata.json[key]` where it is a list; its strings."""
        value = (self.metadata or {}).get(key)
        return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []

    @property
    def gpu_arch(self) -> str:
        """The architecture that the trace was captured on."""
        return self.text("trace_gpu_arch") or DEFAULT_TRACE_ARCH


def apply(trace: Trace | None, fact: TraceFactUnion) -> Trace | None:
    """Fold one fact. Facts about a trace that was never discovered change nothing."""
    if isinstance(fact, TraceDiscovered):
        if trace is not None and not trace.removed:
            return trace
        at = fact.occurred_at
        return Trace(trace_id=fact.trace_id, created_at=at, updated_at=at, sample=fact.sample)
    if trace is None or trace.removed:
        return trace
    changed = _apply_known(trace, fact)
    return trace if changed == trace else replace(changed, updated_at=fact.occurred_at)


def _apply_known(
    trace: Trace, fact: TraceObserved | TraceUploadCompleted | TraceReady | TraceFailed | TraceRemoved
) -> Trace:
    match fact:
        case TraceObserved():
            settled = trace.state in (TraceState.READY, TraceState.FAILED)
            seen = replace(
                trace,
                kernel_count=trace.kernel_count if settled else fact.kernel_count,
                size_bytes=fact.size_bytes,
                has_step_timeline=fact.has_step_timeline,
            )
            if fact.documents_unchanged:
                return seen
            timing = tuple(fact.real_timing) if fact.real_timing is not None else None
            return replace(seen, metadata=fact.metadata, real_timing=timing)
        case TraceUploadCompleted():
            if trace.state is not TraceState.UPLOADING:
                return trace
            return replace(trace, state=TraceState.PROCESSING, error=None)
        case TraceReady():
            if trace.state not in (TraceState.PROCESSING, TraceState.UPLOADING):
                return trace
            return replace(
                trace,
                state=TraceState.READY,
                error=None,
                kernel_count=fact.kernel_count,
                size_bytes=fact.size_bytes,
                kernels=tuple(fact.kernels),
            )
        case TraceFailed():
            if trace.state is TraceState.READY:
                return trace
            return replace(trace, state=TraceState.FAILED, error=fact.error)
        case TraceRemoved():
            return replace(trace, removed=True)
        case _:
            assert_never(fact)
