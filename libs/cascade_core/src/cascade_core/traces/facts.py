"""What happens to a trace, from its first object in the bucket until it can be simulated. Written by ingest."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from cascade_core.fact_base import Fact


class KernelLaunch(BaseModel):
    """One kernel launch of the trace, on the original hardware."""

    model_config = ConfigDict(frozen=True)

    kernel_id: int
    """Matches `kernel-<id>` in the trace's file names."""
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    instructions: int | None = None
    """Warp instructions that the tracer counted; None where the kernel's trace was cut short."""


class RealKernel(BaseModel):
    """One measured kernel of `real_timing.json`."""

    model_config = ConfigDict(frozen=True)

    kernel_id: int
    kernel_name: str
    duration_ns: float | None = None
    """None where the row has no finite duration. [ns]"""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None


class TraceFact(Fact):
    """A fact about one trace. `trace_id` is the directory's name, kept as it is."""

    trace_id: str
    """The directory's name under the prefix, as it is."""


class TraceDiscovered(TraceFact):
    """The first object of the trace appeared under the prefix."""

    type: Literal["trace.discovered"] = "trace.discovered"
    sample: bool = False
    """True for the bundled samples, which hold no instruction traces."""


class TraceObserved(TraceFact):
    """A scan saw the trace differ from the scan before: size, kernel files, metadata or side files."""

    type: Literal["trace.observed"] = "trace.observed"
    kernel_count: int = Field(ge=0)
    """Raw kernel files that have arrived."""
    size_bytes: int = Field(ge=0)
    """Every visible file of the trace."""
    metadata: dict[str, JsonValue] | None = None
    """`metadata.json`, parsed; None until it is there and whole."""
    has_step_timeline: bool = False
    """Whether both files of step timing are there."""
    real_timing: list[RealKernel] | None = None
    """Measured kernels in kernel_id order; None where the trace has no valid real timing."""
    documents_unchanged: bool = False
    """Whether metadata and measured kernels are as the observation before said. They may have megabytes, so they are
    left out here."""


class TraceUploadCompleted(TraceFact):
    """Every file that belongs to the upload is in the bucket."""

    type: Literal["trace.upload-completed"] = "trace.upload-completed"


class TraceReady(TraceFact):
    """`traces/kernelslist.g` exists: runs can launch."""

    type: Literal["trace.ready"] = "trace.ready"
    kernel_count: int = Field(ge=0)
    """Kernel lines of `kernelslist.g`."""
    size_bytes: int = Field(ge=0)
    """Every visible file of the trace, the processed ones included."""
    kernels: list[KernelLaunch] = Field(default_factory=list)
    """The rows of the statistics files, by kernel_id."""


class TraceFailed(TraceFact):
    """The profiler said that tracing failed, or post-processing failed."""

    type: Literal["trace.failed"] = "trace.failed"
    error: str
    """What the trace shows as its error."""


class TraceRemoved(TraceFact):
    """Every object of the trace is gone from the bucket. A later upload under the same id starts anew."""

    type: Literal["trace.removed"] = "trace.removed"


TraceFactUnion: TypeAlias = Annotated[
    TraceDiscovered | TraceObserved | TraceUploadCompleted | TraceReady | TraceFailed | TraceRemoved,
    Field(discriminator="type"),
]
