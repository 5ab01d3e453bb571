"""Bodies of the trace routes. spec: types, Traces."""

from datetime import datetime

from cascade_core.traces.facts import KernelLaunch
from cascade_core.traces.state import Trace, TraceState
from pydantic import BaseModel, Field, JsonValue


class GpuConfig(BaseModel):
    """One GPU that a trace can be simulated on."""

    name: str = Field(description='Accel-Sim tested-cfgs directory name, e.g. "SM90_H100".')
    arch: str = Field(description='For example, "sm_90".')
    core_clock_mhz: float = Field(description="First value of -gpgpu_clock_domains in gpgpusim.config.")


class TraceSummary(BaseModel):
    """One trace without its kernels."""

    id: str = Field(description="The profiler's run_name.")
    state: TraceState = Field(description="Where the trace is in its lifecycle.")
    error: str | None = Field(description="Why the trace failed. `null` unless `state` is `failed`.")
    created_at: datetime = Field(description="When the first file of the trace landed.")
    updated_at: datetime = Field(description="When the app last changed this trace.")
    model: str | None = Field(description="`metadata.json` `model`, such as `facebook/opt-125m`.")
    layers: list[str] = Field(description="`metadata.json` `layers`. Empty if missing or not a list.")
    source_gpu: str | None = Field(description='metadata.json "gpu".')
    trace_gpu_arch: str = Field(description='metadata.json "trace_gpu_arch", default "sm_90".')
    suggested_sim_config: str | None = Field(
        description="`metadata.json` `suggested_sim_config`. The UI preselects it on the New run screen."
    )
    real_gpu_config: str | None = Field(
        default=None, description="metadata.json: config of the GPU it was captured on."
    )
    sample_sim_configs: list[str] = Field(default_factory=list, description="metadata.json: preselected.")
    sample_set: str | None = Field(default=None, description="metadata.json: traces compared side by side.")
    kernel_count: int = Field(description="Traced kernels seen so far.")
    bytes: int = Field(description="Bytes in the bucket under the trace's directory.")
    has_real_timing: bool = Field(
        description="True when the trace has real per-kernel timings (`real_timing.json`)."
    )
    has_step_timeline: bool = Field(
        description="corrected_timeline.json + kernel_mapping.json are in the trace's directory."
    )
    sample: bool = Field(
        description="True for the bundled sample traces. They are `ready` but have no instruction traces, "
        "so they can't start a run."
    )


class TraceDetail(TraceSummary):
    """One trace with its metadata and kernels."""

    metadata: dict[str, JsonValue] | None = Field(
        description="The trace's `metadata.json`, parsed. `null` until it arrives."
    )
    kernels: list[KernelLaunch] = Field(
        description="Kernel launches from the trace's `stats_ctx_*` files, by `kernel_id`. "
        "Filled in when the trace becomes `ready`."
    )


def summary_of(trace: Trace) -> TraceSummary:
    """The summary of a folded trace."""
    return TraceSummary(**_summary_fields(trace))


def detail_of(trace: Trace) -> TraceDetail:
    """Everything of a folded trace."""
    return TraceDetail(**_summary_fields(trace), metadata=trace.metadata, kernels=list(trace.kernels))


def _summary_fields(trace: Trace) -> "dict[str, object]":
    return {
        "id": trace.trace_id,
        "state": trace.state,
        "error": trace.error,
        "created_at": trace.created_at,
        "updated_at": trace.updated_at,
        "model": trace.text("model"),
        "layers": trace.texts("layers"),
        "source_gpu": trace.text("gpu"),
        "trace_gpu_arch": trace.gpu_arch,
        "suggested_sim_config": trace.text("suggested_sim_config"),
        "real_gpu_config": trace.text("real_gpu_config"),
        "sample_sim_configs": trace.texts("sample_sim_configs"),
        "sample_set": trace.text("sample_set"),
        "kernel_count": trace.kernel_count,
        "bytes": trace.size_bytes,
        "has_real_timing": trace.has_real_timing,
        "has_step_timeline": trace.has_step_timeline,
        "sample": trace.sample,
    }
