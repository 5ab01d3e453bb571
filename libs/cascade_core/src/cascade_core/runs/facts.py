"""What is asked of a run. Written by the gateway."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from cascade_core.fact_base import Fact
from cascade_core.ids import RunId, SimId


class RunEntry(BaseModel):
    """One config and how many replicas of it."""

    model_config = ConfigDict(frozen=True)

    gpu_config: str
    count: int = Field(ge=1, le=64)


class PlannedSim(BaseModel):
    """One sim of a run as it was asked for, with the config facts that held then."""

    model_config = ConfigDict(frozen=True)

    sim_id: SimId
    gpu_config: str
    replica: int = Field(ge=0)
    """Counts within its entry."""
    arch: str = "unknown"
    core_clock_mhz: float = 0.0
    """The registry's core clock, which turns cycles into time; 0 where it is not known."""


class RunFact(Fact):
    """A fact about one run."""

    run_id: RunId


class RunRequested(RunFact):
    """Somebody asked for a run. Its sims exist, pending, from here on."""

    type: Literal["run.requested"] = "run.requested"
    trace_id: str
    """The trace that is simulated."""
    entries: list[RunEntry]
    """The configs and counts as they were asked for."""
    sims: list[PlannedSim]
    """Every sim of the run, by entry and replica."""
    kernels_total: int = Field(ge=0)
    """The trace's kernel count when the run was requested."""
    sample: bool = False
    """True for the run that comes with a bundled sample trace."""
    replay: bool = False
    """True where the sims replay a sample's recorded results."""


class RunCancelRequested(RunFact):
    """Somebody asked to cancel the run. Sims that have not finished become cancelled."""

    type: Literal["run.cancel-requested"] = "run.cancel-requested"


RunFactUnion: TypeAlias = Annotated[RunRequested | RunCancelRequested, Field(discriminator="type")]
