"""Bodies of the trace and GPU config routes."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field, JsonValue

from cascade_client.wire.base import Body


class TraceState(StrEnum):
    """Where a trace is in its lifecycle."""

    UPLOADING = "uploading"
    PROCESSING = "processing"
    READY = "ready"
    FAILED = "failed"


class GpuConfig(Body):
    """One GPU that a trace can be simulated on."""

    name: str = Field(description="The config's directory name, such as `SM90_H100`.")
    arch: str = Field(description="Its architecture, such as `sm_90`. A trace runs on configs of its own.")
    core_clock_mhz: float = Field(description="The core clock that turns cycles into time. [MHz]")


class KernelLaunch(Body):
    """One kernel launch of the trace, on the original hardware."""

    kernel_id: int = Field(description="The `<id>` of the trace file `kernel-<id>`.")
    name: str = Field(description="Mangled kernel name.")
    grid: tuple[int, int, int] = Field(description="Grid size in x, y and z. [blocks]")
    block: tuple[int, int, int] = Field(description="Block size in x, y and z. [threads]")
    instructions: int | None = Field(
        default=None, description="Warp instructions traced; `null` where the kernel's trace was cut short."
    )


class TraceSummary(Body):
    """One trace without its kernels."""

    id: str = Field(description="The profiler's run name.")
    state: TraceState = Field(description="Where the trace is in its lifecycle. Only `ready` ones can run.")
    error: str | None = Field(description="Why the trace failed; `null` in every other state.")
    created_at: datetime = Field(description="When its first file arrived.")
    updated_at: datetime = Field(description="When the app last changed it.")
    model: str | None = Field(description="The traced model, such as `facebook/opt-125m`.")
    layers: list[str] = Field(description="The traced layers; empty where the profiler named none.")
    source_gpu: str | None = Field(description="The GPU that the workload was traced on.")
    trace_gpu_arch: str = Field(description="The architecture that a GPU config must share.")
    suggested_sim_config: str | None = Field(description="The config that the profiler proposes.")
    real_gpu_config: str | None = Field(
        default=None, description="The config of the GPU that the trace was captured on."
    )
    sample_sim_configs: list[str] = Field(
        default_factory=list, description="Configs that a sample has recorded results for."
    )
    sample_set: str | None = Field(default=None, description="Samples that are compared side by side.")
    kernel_count: int = Field(description="Traced kernels seen so far.")
    bytes: int = Field(description="Size of the trace in the bucket. [bytes]")
    has_real_timing: bool = Field(description="True where measured kernel times came with the trace.")
    has_step_timeline: bool = Field(
        description="True where a measured step timeline came with the trace, which scenarios need."
    )
    sample: bool = Field(
        description="True for the bundled samples: `ready`, but without the instructions that a run needs."
    )


class TraceDetail(TraceSummary):
    """One trace with its metadata and kernels."""

    metadata: dict[str, JsonValue] | None = Field(
        description="The trace's `metadata.json`; `null` until it arrives."
    )
    kernels: list[KernelLaunch] = Field(
        description="Its kernel launches by `kernel_id`, filled in when the trace becomes `ready`."
    )
