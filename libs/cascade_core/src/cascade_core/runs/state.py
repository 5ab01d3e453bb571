"""A run's own facts and the state that follows from its sims."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cascade_core.runs.facts import RunEntry, RunRequested
from cascade_core.sims.transitions import TERMINAL_SIM_STATES, SimState


class RunState(StrEnum):
    """Derived from the sims each time a run is read; never stored."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it was asked for."""

    run_id: str
    trace_id: str
    created_at: datetime
    entries: tuple[RunEntry, ...]
    kernels_total: int
    sample: bool = False
    replay: bool = False


def run_of(fact: RunRequested) -> Run:
    """The run that `fact` created."""
    return Run(
        run_id=fact.run_id,
        trace_id=fact.trace_id,
        created_at=fact.occurred_at,
        entries=tuple(fact.entries),
        kernels_total=fact.kernels_total,
        sample=fact.sample,
        replay=fact.replay,
    )


def run_state(sim_states: Iterable[SimState]) -> RunState:
    """The run's state from its sims' states. A run without sims counts as active."""
    states = set(sim_states)
    if not states or states - TERMINAL_SIM_STATES:
        return RunState.ACTIVE
    if states == {SimState.SUCCEEDED}:
        return RunState.SUCCEEDED
    if SimState.SUCCEEDED in states:
        return RunState.PARTIAL
    return RunState.CANCELLED if SimState.CANCELLED in states else RunState.FAILED


def sim_counts(sim_states: Iterable[SimState]) -> dict[SimState, int]:
    """How many sims are in each state, in lifecycle order; states without sims are left out."""
    counted = Counter(sim_states)
    return {state: counted[state] for state in SimState if counted[state]}
