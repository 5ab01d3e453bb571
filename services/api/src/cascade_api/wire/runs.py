"""Bodies of the run routes. spec: types, Runs and sims."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from cascade_core.runs.facts import RunEntry
from cascade_core.runs.state import Run, RunState, run_state, sim_counts
from cascade_core.sims.facts import SimMetrics
from cascade_core.sims.state import Sim
from cascade_core.sims.transitions import SimState
from pydantic import BaseModel, Field

from cascade_api.wire.traces import TraceSummary

MOST_ENTRIES = 1000
"""No spec limit exists ("any number of entries"); this bounds what one request may create."""


def _is_unknown(value: object) -> bool:
    return value is None or value == []


class RunCreate(BaseModel):
    """The body of `POST /api/runs`."""

    trace_id: str = Field(description="A trace in state `ready`.")
    entries: list[RunEntry] = Field(
        min_length=1,
        max_length=MOST_ENTRIES,
        description="One entry per config. Each fans out to `count` sims.",
    )


class SimSummary(BaseModel):
    """One sim as cards and lists show it."""

    id: str = Field(description="Generated, `sim-` and 12 hex digits.")
    run_id: str = Field(description="The run this sim belongs to.")
    gpu_config: str = Field(description="The config this sim simulates.")
    replica: int = Field(description="0-based index within its {gpu_config, count} entry.")
    state: SimState = Field(description="Where the sim is in its lifecycle.")
    error: str | None = Field(
        description="Why the sim failed or went `lost`. A `running` heartbeat clears it."
    )
    launcher_ref: str | None = Field(description="Sandbox id, Job name or local pid.")
    created_at: datetime = Field(description="When the run was created.")
    started_at: datetime | None = Field(description="The first `running` heartbeat.")
    finished_at: datetime | None = Field(description="When the sim reached a terminal state.")
    last_heartbeat_at: datetime | None = Field(description="The last heartbeat. `null` before the first one.")
    exit_code: int | None = Field(description="From the final heartbeat, when the simulator sent one.")
    kernels_done: int = Field(description="Kernel stats blocks parsed from the log so far.")
    kernels_total: int = Field(description="The trace's kernel count when the run was created.")
    current_kernel: str | None = Field(
        description="Named by the last `launching kernel name:` line in the log."
    )
    latest: SimMetrics = Field(description="The most recent totals parsed from the log.")
    log_tail: list[str] = Field(description="Last 20 lines.")
    engine: str | None = Field(
        default=None,
        exclude_if=_is_unknown,
        description="What made the numbers: `accel-sim`, `replay` (a recorded log played again) or `estimate` "
        "(the analytical estimate). Left out while nothing has said so.",
    )
    log_clock_mhz: float | None = Field(
        default=None,
        exclude_if=_is_unknown,
        description="The core clock that the log itself states. Left out where it equals the config's.",
    )


class RunSummary(BaseModel):
    """One run with its per-state counts."""

    id: str = Field(description="Generated, `run-` and 12 hex digits.")
    trace_id: str = Field(description="The trace the run simulates.")
    created_at: datetime = Field(description="When the run was created.")
    state: RunState = Field(description="Derived from the sims.")
    entries: list[RunEntry] = Field(description="The entries the run was created with.")
    sim_counts: dict[SimState, int] = Field(
        description="How many sims are in each state. States with no sims are left out."
    )
    sample: bool = Field(
        description="True for the sample run seeded with the sample trace. Its results were recorded when the "
        "run was made, not in this workspace, and cancelling it changes nothing."
    )
    replay: bool = Field(default=False, description="Replays a sample's recorded Accel-Sim results.")
    engines: list[str] = Field(
        default=[],
        exclude_if=_is_unknown,
        description="What made the numbers: the `engine` of each sim that has one, each once, sorted. Left out while "
        "nothing has said so.",
    )


class RunDetail(RunSummary):
    """One run with its trace and every sim."""

    trace: TraceSummary = Field(description="The run's trace.")
    sims: list[SimSummary] = Field(description="Every sim, sorted by `gpu_config` and then `replica`.")


def sim_summary(sim: Sim) -> SimSummary:
    """The summary of a folded sim."""
    clock = sim.log_clock_mhz
    differs = clock is not None and sim.core_clock_mhz > 0 and abs(clock - sim.core_clock_mhz) > 1e-6 * clock
    return SimSummary(
        id=sim.sim_id,
        run_id=sim.run_id,
        gpu_config=sim.gpu_config,
        replica=sim.replica,
        state=sim.state,
        error=sim.error,
        launcher_ref=sim.launcher_ref,
        created_at=sim.created_at,
        started_at=sim.started_at,
        finished_at=sim.finished_at,
        last_heartbeat_at=sim.last_heartbeat_at,
        exit_code=sim.exit_code,
        kernels_done=sim.kernels_done,
        kernels_total=sim.kernels_total,
        current_kernel=sim.current_kernel,
        latest=sim.latest,
        log_tail=sim.tail.lines(),
        engine=sim.engine,
        log_clock_mhz=clock if differs else None,
    )


def run_summary(run: Run, sim_states: Iterable[SimState], engines: Iterable[str | None]) -> RunSummary:
    """The summary of a run whose sims are in `sim_states` and got their numbers from `engines`."""
    return RunSummary(**_summary_fields(run, list(sim_states), engines))


def run_detail(run: Run, trace: TraceSummary, sims: Sequence[Sim]) -> RunDetail:
    """The whole run. `sims` come sorted by config and replica."""
    return RunDetail(
        **_summary_fields(run, [sim.state for sim in sims], [sim.engine for sim in sims]),
        trace=trace,
        sims=[sim_summary(sim) for sim in sims],
    )


def _summary_fields(run: Run, states: list[SimState], engines: Iterable[str | None]) -> dict[str, Any]:
    return {
        "id": run.run_id,
        "trace_id": run.trace_id,
        "created_at": run.created_at,
        "state": run_state(states),
        "entries": list(run.entries),
        "sim_counts": sim_counts(states),
        "sample": run.sample,
        "replay": run.replay,
        "engines": sorted({engine for engine in engines if engine is not None}),
    }
