"""What happens to one sim. The launcher, the gateway and the parser each write their own part."""

from typing import Annotated, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from cascade_core.fact_base import Fact
from cascade_core.ids import RunId, SimId
from cascade_core.sims.transitions import SimState

Engine = Literal["accel-sim", "replay", "estimate"]
"""What made a sim's numbers: a simulation, a recorded log played again, or the analytical estimate."""


class SimMetrics(BaseModel):
    """The newest totals of a sim. None where the log holds no finite number."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, ser_json_inf_nan="null")

    gpu_tot_sim_cycle: float | None = None
    gpu_tot_sim_insn: float | None = None
    gpu_tot_ipc: float | None = None
    sim_rate_ips: float | None = None
    """`gpgpu_simulation_rate`, its first line: simulated instructions per wall-clock second."""


class SimFact(Fact):
    """A fact about one sim of one run."""

    run_id: RunId
    sim_id: SimId


class SimLaunchStarted(SimFact):
    """A launcher took the sim. Appended only as the first of its subject, so no sim is ever taken twice."""

    type: Literal["sim.launch-started"] = "sim.launch-started"
    attempt: str
    """Names this launch. The simulator sends it back, so that a second start by the platform is recognised."""


class SimLaunched(SimFact):
    """The backend started the sim."""

    type: Literal["sim.launched"] = "sim.launched"
    launcher_ref: str
    """What the backend calls the sim: a process id, a job, a sandbox."""


class SimLaunchFailed(SimFact):
    """The sim could not be started, or ended before its first heartbeat."""

    type: Literal["sim.launch-failed"] = "sim.launch-failed"
    error: str
    """Why; the sim's error from here on."""


class SimWentSilent(SimFact):
    """No heartbeat for the timeout. Set aside by the fold if a later heartbeat had already arrived."""

    type: Literal["sim.went-silent"] = "sim.went-silent"
    heartbeat_seen_at: AwareDatetime | None = None
    """The heartbeat that the launcher had seen last when it judged; None when it had seen none."""
    error: str | None = None
    """How long it has been silent; the sim's error until it reports again. None in what older launchers wrote."""


class SimGivenUp(SimFact):
    """Lost for ten times the timeout, or its process is gone. The backend's sandbox is stopped."""

    type: Literal["sim.given-up"] = "sim.given-up"
    error: str
    """Why; the sim's error from here on."""
    heartbeat_seen_at: AwareDatetime | None = None
    """As in `sim.went-silent`."""


class SimReported(SimFact):
    """The simulator sent a heartbeat."""

    type: Literal["sim.reported"] = "sim.reported"
    state: Literal[SimState.RUNNING, SimState.SUCCEEDED, SimState.FAILED]
    """What the simulator says of itself."""
    exit_code: int | None = None
    error: str | None = None
    attempt: str | None = None
    """Which start of the sim spoke, where the simulator says so."""
    engine: Engine | None = None


class SimProgressed(SimFact):
    """The parser has read the sim's log up to chunk `through_seq`. Carries the whole progress, not a delta."""

    type: Literal["sim.progressed"] = "sim.progressed"
    through_seq: int = Field(ge=-1)
    """The last chunk in unbroken order that was parsed; -1 before the first."""
    kernels_done: int = Field(ge=0)
    """Kernels that are stored already."""
    current_kernel: str | None = None
    """Named by the last `launching kernel name:` line."""
    latest: SimMetrics = SimMetrics()
    """The newest totals."""
    log_clock_mhz: float | None = None
    """Core clock from the log's own `clock freqs` line."""
    engine: str | None = None
    """The log's own `engine = ...` line, where it has one."""
    partial_kernel: int | None = None
    """Index of the kernel that a simulation limit cut, known only after its block was read."""
    final: bool = False
    """True once the sim had ended and its open block, if any, was closed."""


class SimOutputStored(SimFact):
    """The simulator uploaded an output file, which lies in the bucket under `object_key`."""

    type: Literal["sim.output-stored"] = "sim.output-stored"
    name: str
    size: int = Field(ge=0)
    content_type: str
    object_key: str
    """In the internal bucket."""


class SimStepTimelineStored(SimFact):
    """The simulator sent its step timing."""

    type: Literal["sim.step-timeline-stored"] = "sim.step-timeline-stored"
    simulated: dict[str, JsonValue]
    """The simulated timeline, as it was sent."""
    compare: dict[str, JsonValue] | None = None
    """The comparison with the real one, as it was sent."""


class SimOutcome(BaseModel):
    """How a sim ended, as the whole log told it. Kept because some of the facts that decided it are purged."""

    model_config = ConfigDict(frozen=True)

    state: SimState
    error: str | None = None
    exit_code: int | None = None
    attempt: str | None = None
    engine: str | None = None
    started_at: AwareDatetime | None = None
    finished_at: AwareDatetime | None = None


class SimLogArchived(SimFact):
    """The ended sim's log lies in the bucket and was purged from the stream, as were its repeated heartbeats."""

    type: Literal["sim.log-archived"] = "sim.log-archived"
    object_key: str
    """In the internal bucket, compressed with zstd."""
    chunk_count: int = Field(ge=0)
    line_count: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    """Uncompressed bytes of the log, line ends included."""
    log_tail: list[str]
    """The last 20 lines."""
    last_heartbeat_at: AwareDatetime | None = None
    outcome: SimOutcome | None = None
    """What a fold without the purged chunks and heartbeats might decide otherwise."""


SimFactUnion: TypeAlias = Annotated[
    SimLaunchStarted
    | SimLaunched
    | SimLaunchFailed
    | SimWentSilent
    | SimGivenUp
    | SimReported
    | SimProgressed
    | SimOutputStored
    | SimStepTimelineStored
    | SimLogArchived,
    Field(discriminator="type"),
]
