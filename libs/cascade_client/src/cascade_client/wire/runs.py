"""Bodies of the run routes."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from cascade_client.wire.base import Body
from cascade_client.wire.traces import TraceSummary

MOST_REPLICAS = 64
MOST_ENTRIES = 1000


class SimState(StrEnum):
    """Where a sim is in its lifecycle."""

    PENDING = "pending"
    LAUNCHING = "launching"
    RUNNING = "running"
    LOST = "lost"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    """Where a run is, as its sims' states add up."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunEntry(Body):
    """One config and how many replicas of it."""

    gpu_config: str = Field(description="A `GpuConfig.name` of the trace's architecture.")
    count: int = Field(ge=1, le=MOST_REPLICAS, description="How many sims run this config.")


class RunCreate(Body):
    """What to launch."""

    trace_id: str = Field(description="A trace in state `ready`.")
    entries: Annotated[list[RunEntry], Field(min_length=1, max_length=MOST_ENTRIES)] = Field(
        description="One entry a config; each becomes `count` sims."
    )


class SimMetrics(Body):
    """The newest totals of a sim; `null` where its log holds no finite number."""

    gpu_tot_sim_cycle: float | None = Field(
        default=None, description="Simulated cycles over every finished kernel. [cycles]"
    )
    gpu_tot_sim_insn: float | None = Field(
        default=None, description="Simulated instructions over every finished kernel."
    )
    gpu_tot_ipc: float | None = Field(default=None, description="Instructions per cycle so far.")
    sim_rate_ips: float | None = Field(
        default=None, description="Speed of the simulator itself. [simulated instructions per second]"
    )


class SimSummary(Body):
    """One sim."""

    id: str = Field(description="`sim-` and 12 hex digits.")
    run_id: str = Field(description="The run that it belongs to.")
    gpu_config: str = Field(description="The config that it simulates.")
    replica: int = Field(description="Number among the sims of its entry, from 0.")
    state: SimState = Field(description="Where it is in its lifecycle.")
    error: str | None = Field(description="Why it failed or went `lost`.")
    launcher_ref: str | None = Field(description="The sandbox, job or process that runs it.")
    created_at: datetime = Field(description="When the run was created.")
    started_at: datetime | None = Field(description="Its first `running` heartbeat.")
    finished_at: datetime | None = Field(description="When it reached a terminal state.")
    last_heartbeat_at: datetime | None = Field(description="Its last heartbeat; `null` before the first.")
    exit_code: int | None = Field(description="The simulator's exit code, where it sent one.")
    kernels_done: int = Field(description="Kernels whose results were read from the log so far.")
    kernels_total: int = Field(description="Kernels of the trace when the run was created.")
    current_kernel: str | None = Field(description="The kernel that the log last said it launches.")
    latest: SimMetrics = Field(description="The newest totals from the log.")
    log_tail: list[str] = Field(description="The last 20 lines of its output.")
    engine: str | None = Field(
        default=None,
        description="What makes the numbers: `accel-sim`, `replay` (a recorded log played again, whatever the "
        "trace) or `estimate` (the analytical model). Left out while nobody has said so.",
    )
    log_clock_mhz: float | None = Field(
        default=None, description="The clock that the log states, where it is not the config's. [MHz]"
    )


class RunSummary(Body):
    """One run with its sims counted by state."""

    id: str = Field(description="`run-` and 12 hex digits.")
    trace_id: str = Field(description="The trace that it simulates.")
    created_at: datetime = Field(description="When it was created.")
    state: RunState = Field(description="Follows from its sims.")
    entries: list[RunEntry] = Field(description="What it was created with.")
    sim_counts: dict[SimState, int] = Field(description="Sims by state; states without sims are left out.")
    sample: bool = Field(description="True for a run that came with Cascade. Nothing ran in this workspace.")
    replay: bool = Field(
        default=False, description="True where the sims play a sample's recorded results again."
    )
    engines: list[str] = Field(
        default=[],
        description="What made the numbers: the engines of the sims, each once. Empty while nobody has said so.",
    )


class RunDetail(RunSummary):
    """One run with its trace and every sim."""

    trace: TraceSummary = Field(description="The trace.")
    sims: list[SimSummary] = Field(description="Every sim, by config and then replica.")
