"""Bodies of results, comparison, step timing and files."""

from datetime import datetime

from pydantic import Field, JsonValue

from cascade_client.wire.base import Body
from cascade_client.wire.runs import RunSummary, SimMetrics, SimSummary
from cascade_client.wire.traces import GpuConfig, TraceDetail


class KernelStat(Body):
    """One kernel that a sim finished."""

    sim_id: str = Field(description="The sim that ran it.")
    kernel_index: int = Field(description="Order of completion within the sim, from 0.")
    kernel_name: str = Field(description="The kernel's name, mangled as the log has it.")
    kernel_launch_uid: int | None = Field(description="The log's `kernel_launch_uid`.")
    gpu_sim_cycle: int | None = Field(description="Cycles on the simulated GPU. [cycles]")
    gpu_sim_insn: int | None = Field(description="Instructions that it ran.")
    gpu_ipc: float | None = Field(description="Its instructions per cycle.")
    sim_time_ns: float | None = Field(description="Its cycles over the config's core clock. [ns]")
    stats: dict[str, float | str] = Field(
        description='Every "key = value" line of its block. Empty in lists and snapshots.'
    )
    since_last_completion: bool = Field(
        default=False,
        description="True where kernels overlapped: the cycles count from the previous completion and are no "
        "duration. Left out otherwise.",
    )
    partial: bool = Field(
        default=False, description="True where a simulation limit cut the kernel. Left out otherwise."
    )


class ComparisonRow(Body):
    """One kernel position."""

    kernel_index: int = Field(description="The position. Kernels are matched by their order.")
    kernel_name: str = Field(description="From the measured times, else from the first sim that got there.")
    real_ns: float | None = Field(description="Measured time; `null` without real timing. [ns]")
    sim_ns: dict[str, float | None] = Field(
        description="Simulated time by config: the median of the replicas that finished the kernel. [ns]"
    )


class Comparison(Body):
    """Real time against simulated time by config."""

    has_real_timing: bool = Field(description="Whether the trace has measured kernel times.")
    configs: list[str] = Field(description="The run's configs in the order of its entries.")
    rows: list[ComparisonRow] = Field(description="One row a kernel position.")


class SimResults(Body):
    """Everything that one sim found."""

    sim: SimSummary = Field(description="The sim.")
    trace_id: str = Field(description="The trace that it ran.")
    gpu_config: GpuConfig = Field(
        description="Its config; `arch` is `unknown` and the clock 0 where the app no longer has it."
    )
    kernels: list[KernelStat] = Field(description="Every finished kernel with its full `stats`.")
    totals: SimMetrics = Field(description="Same as `sim.latest`.")


class RunResults(Body):
    """Everything about a run in one document."""

    run: RunSummary = Field(description="The run.")
    trace: TraceDetail = Field(description="Its trace.")
    sims: list[SimResults] = Field(description="One entry a sim.")
    comparison: Comparison = Field(description="Real against simulated time.")


class SimStepTimeline(Body):
    """One sim's predicted step timeline."""

    sim_id: str = Field(description="The sim that sent it.")
    gpu_config: str = Field(description="Its config.")
    replica: int = Field(description="Its replica.")
    simulated: dict[str, JsonValue] = Field(description="The predicted timeline: `steps` and `summary`.")
    compare: dict[str, JsonValue] | None = Field(description="Its comparison with the measured timeline.")


class SimFile(Body):
    """An output file of a sim."""

    name: str = Field(description="The file's name; `.gz` files are stored compressed.")
    size: int = Field(description="Size as stored. [bytes]")
    content_type: str = Field(description="Follows from the name.")
    created_at: datetime = Field(description="When this version was stored.")


class RunFile(SimFile):
    """An output file and the sim that it came from."""

    sim_id: str = Field(description="The sim.")
    gpu_config: str = Field(description="Its config.")
    replica: int = Field(description="Its replica.")
