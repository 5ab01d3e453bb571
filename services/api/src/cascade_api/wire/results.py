"""Bodies of results, comparison, files and step timing. spec: types, Results."""

from datetime import datetime

from cascade_core.kernels.facts import KernelFinished
from cascade_core.sims.facts import SimMetrics
from pydantic import BaseModel, Field, JsonValue

from cascade_api.wire.runs import RunSummary, SimSummary
from cascade_api.wire.traces import GpuConfig, TraceDetail


def _is_false(value: object) -> bool:
    return value is False


class KernelStat(BaseModel):
    """One per-kernel stats block parsed from Accel-Sim output."""

    sim_id: str = Field(description="The sim that ran this kernel.")
    kernel_index: int = Field(description="0-based order of completion within the sim.")
    kernel_name: str = Field(description="The block's `kernel_name`.")
    kernel_launch_uid: int | None = Field(description="The block's `kernel_launch_uid`.")
    gpu_sim_cycle: int | None = Field(description="Cycles this kernel took on the simulated GPU.")
    gpu_sim_insn: int | None = Field(description="Instructions this kernel ran.")
    gpu_ipc: float | None = Field(description="This kernel's instructions per cycle.")
    sim_time_ns: float | None = Field(description="gpu_sim_cycle / core_clock_mhz * 1000.")
    stats: dict[str, float | str] = Field(description='Every "key = value" line in the block.')
    since_last_completion: bool = Field(
        default=False,
        exclude_if=_is_false,
        description="True where kernels overlapped: the cycles count from the previous completion and are no "
        "duration. Left out otherwise.",
    )
    partial: bool = Field(
        default=False,
        exclude_if=_is_false,
        description="True where a simulation limit cut the kernel. Left out otherwise.",
    )


def kernel_stat(fact: KernelFinished, clock_mhz: float | None, *, with_stats: bool) -> KernelStat:
    """The stat of a finished kernel. `clock_mhz` turns its cycles into time [ns]; None leaves the time out."""
    cycles = fact.gpu_sim_cycle
    return KernelStat(
        sim_id=fact.sim_id,
        kernel_index=fact.index,
        kernel_name=fact.kernel_name,
        kernel_launch_uid=fact.kernel_launch_uid,
        gpu_sim_cycle=cycles,
        gpu_sim_insn=fact.gpu_sim_insn,
        gpu_ipc=fact.gpu_ipc,
        # spec: reading-results, simulated time per kernel
        sim_time_ns=cycles / clock_mhz * 1000 if cycles is not None and clock_mhz else None,
        stats=fact.stats if with_stats else {},
        since_last_completion=fact.since_last_completion,
    )


class ComparisonRow(BaseModel):
    """One kernel position."""

    kernel_index: int = Field(description="Row position. Kernels are matched by order.")
    kernel_name: str = Field(
        description="From real timing if present, otherwise from the first sim that finished this kernel."
    )
    real_ns: float | None = Field(description="`duration_ns` from real timing. `null` without real timing.")
    sim_ns: dict[str, float | None] = Field(description="gpu_config -> median sim_time_ns over replicas.")


class Comparison(BaseModel):
    """Real time against simulated time per config."""

    has_real_timing: bool = Field(description="False until the trace has real timing.")
    configs: list[str] = Field(description="The run's configs, in entry order, without repeats.")
    rows: list[ComparisonRow] = Field(description="One row per kernel position.")


class SimResults(BaseModel):
    """One sim's results."""

    sim: SimSummary
    trace_id: str = Field(description="The trace the sim ran.")
    gpu_config: GpuConfig = Field(
        description="The full config. `arch` is `unknown` and the clock is 0 if the config disappeared."
    )
    kernels: list[KernelStat] = Field(description="Every kernel the sim finished, with the full `stats` map.")
    totals: SimMetrics = Field(description="Same as `sim.latest`.")


class RunResults(BaseModel):
    """Everything about a run."""

    run: RunSummary = Field(description="The run without its trace and sims, which are below.")
    trace: TraceDetail = Field(description="The full trace.")
    sims: list[SimResults] = Field(description="One entry per sim.")
    comparison: Comparison = Field(description="Real against simulated time.")


class SimStepTimeline(BaseModel):
    """One sim's step timing as it was sent."""

    sim_id: str
    gpu_config: str
    replica: int
    simulated: dict[str, JsonValue] = Field(description="As sent in `StepTimelineUpload.simulated`.")
    compare: dict[str, JsonValue] | None = Field(description="As sent in `StepTimelineUpload.compare`.")


class ChromeTrace(BaseModel):
    """A Chrome trace for ui.perfetto.dev."""

    traceEvents: list[dict[str, JsonValue]] = Field(  # noqa: N815 - the format's own names
        description="Processes, threads and one slice a kernel. spec: reading-results, the Perfetto trace."
    )
    displayTimeUnit: str  # noqa: N815
    otherData: dict[str, JsonValue] = Field(description="What the trace says of itself.")  # noqa: N815


class SimFile(BaseModel):
    """An output file a sim uploaded."""

    name: str = Field(description="Accel-Sim's name, plus .gz when the worker gzipped it.")
    size: int = Field(description="Bytes as stored.")
    content_type: str = Field(description="From the name.")
    created_at: datetime = Field(description="When this version was stored; a re-put replaces the file.")


class RunFile(SimFile):
    """A file and the sim it came from."""

    sim_id: str = Field(description="The sim that uploaded the file.")
    gpu_config: str = Field(description="The sim's config.")
    replica: int = Field(description="The sim's replica.")
