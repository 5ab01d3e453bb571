"""A run folded from its events: what `watch` shows and what decides that watching is over. Pure."""

from cascade_client.wire.events import KernelEvent, LogEvent, RunEvent, SimEvent, SnapshotEvent
from cascade_client.wire.runs import RunDetail, RunState, SimState, SimSummary

TERMINAL_SIM_STATES = frozenset({SimState.SUCCEEDED, SimState.FAILED, SimState.CANCELLED})


class RunProgress:
    """The newest state of every sim. Before the first snapshot it holds none."""

    def __init__(self) -> None:
        self.run: RunDetail | None = None
        """As the last snapshot gave it; `sims` below is newer."""
        self.sims: dict[str, SimSummary] = {}

    def take(self, event: RunEvent) -> None:
        """Apply one event."""
        match event:
            case SnapshotEvent(run=run):
                self.run = run
                self.sims = {sim.id: sim for sim in run.sims}
            case SimEvent(sim=sim):
                self.sims[sim.id] = sim
            case LogEvent() | KernelEvent():
                pass  # the sim event behind them carries the progress

    @property
    def state(self) -> RunState:
        """The run's state as its sims' states add up; active before the first snapshot."""
        states = {sim.state for sim in self.sims.values()}
        if not states or states - TERMINAL_SIM_STATES:
            return RunState.ACTIVE
        if states == {SimState.SUCCEEDED}:
            return RunState.SUCCEEDED
        if SimState.SUCCEEDED in states:
            return RunState.PARTIAL
        return RunState.CANCELLED if SimState.CANCELLED in states else RunState.FAILED

    @property
    def finished(self) -> bool:
        """Whether no sim will change any more."""
        return self.state is not RunState.ACTIVE
