"""State diagrams. Moves come from the transition table and from trying every fact on every state of the fold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations_with_replacement

from cascade_core.runs.facts import PlannedSim, RunCancelRequested, RunEntry, RunRequested
from cascade_core.runs.state import RunState, run_state
from cascade_core.sims import state as sims
from cascade_core.sims.facts import (
    SimGivenUp,
    SimLaunched,
    SimLaunchFailed,
    SimLaunchStarted,
    SimReported,
    SimWentSilent,
)
from cascade_core.sims.transitions import SIM_TRANSITIONS, TERMINAL_SIM_STATES, SimState
from cascade_core.traces import state as traces
from cascade_core.traces.facts import (
    TraceDiscovered,
    TraceFactUnion,
    TraceFailed,
    TraceObserved,
    TraceReady,
    TraceUploadCompleted,
)
from cascade_core.traces.state import TraceState

from scripts.docs_reference.blocks import table

AT = datetime(2026, 1, 1, tzinfo=UTC)
RUN, SIM, TRACE = "run-000000000001", "sim-000000000001", "demo"

SAID: Mapping[str, Mapping[str, str]] = {
    "trace": {
        "uploading": "Files are arriving; `kernel_count` and `bytes` grow.",
        "processing": "The upload is complete and is being prepared for the simulator.",
        "ready": "`traces/kernelslist.g` exists: runs can launch, unless the trace is a sample.",
        "failed": "The profiler said so, or preparing it failed. `error` tells which.",
    },
    "sim": {
        "pending": "Created with its run, waiting for the launcher.",
        "launching": "The launcher is starting it.",
        "running": "It has sent a heartbeat.",
        "lost": "It has been silent for longer than the heartbeat timeout. A heartbeat brings it back.",
        "succeeded": "It reported success.",
        "failed": "It reported failure, could not be started, or stayed lost for ten times the timeout.",
        "cancelled": "Its run was cancelled before it ended.",
    },
    "run": {
        "active": "Some sim has not ended.",
        "succeeded": "Every sim succeeded.",
        "partial": "Every sim ended, and some succeeded.",
        "failed": "Every sim failed.",
        "cancelled": "Every sim ended, none succeeded, and at least one was cancelled.",
    },
}


def states(arguments: Sequence[str]) -> str:
    """Diagram and table of `trace`, `sim` or `run`."""
    (what,) = arguments
    match what:
        case "trace":
            return _page(what, [state.value for state in TraceState], list(_trace_moves()))
        case "sim":
            return _page(what, [state.value for state in SimState], list(_sim_moves()))
        case "run":
            rows = [[f"`{state.value}`", SAID[what][state.value]] for state in RunState]
            return table(["state", "meaning"], rows)
        case _:
            raise KeyError(what)


def run_table(_: Sequence[str]) -> str:
    """A run's state for every pair of its sims' states that matters."""
    shown = (SimState.RUNNING, SimState.SUCCEEDED, SimState.FAILED, SimState.CANCELLED)
    rows = [
        [f"`{first.value}`, `{second.value}`", f"`{run_state([first, second]).value}`"]
        for first, second in combinations_with_replacement(shown, 2)
    ]
    return table(["sims", "run"], rows)


Move = tuple[str, str, str]
"""From, to, the facts that do it."""


def _page(what: str, names: Sequence[str], moves: Sequence[Move]) -> str:
    leaving = {start for start, _, _ in moves}
    lines = ["```mermaid", "stateDiagram-v2", "    direction LR", f"    [*] --> {names[0]}"]
    lines += [f"    {start} --> {end}: {facts}" for start, end, facts in moves]
    lines += [f"    {name} --> [*]" for name in names if name not in leaving]
    lines += ["```", ""]
    rows = [
        [
            f"`{name}`",
            SAID[what][name],
            ", ".join(f"`{end}`" for start, end, _ in moves if start == name) or "–",
        ]
        for name in names
    ]
    return "\n".join(lines) + "\n" + table(["state", "meaning", "next"], rows)


def _sim_moves() -> Iterator[Move]:
    """Every allowed move with the facts that make it; all of `SIM_TRANSITIONS` can be made, and nothing else."""
    for start in SimState:
        found: dict[SimState, list[str]] = {}
        for label, fact in _sim_facts():
            end = sims.apply(_sim_in(start), fact).state
            if end is not start:
                found.setdefault(end, []).append(label)
        assert set(found) <= SIM_TRANSITIONS[start], (start, found)
        for end in SimState:
            if end in SIM_TRANSITIONS[start]:
                yield start.value, end.value, ", ".join(found.get(end, ["–"]))


def _sim_facts() -> Iterator[tuple[str, sims.SimInput]]:
    later = datetime(2026, 1, 2, tzinfo=UTC)
    yield "sim.launch-started", SimLaunchStarted(run_id=RUN, sim_id=SIM, occurred_at=later, attempt="a")
    yield "sim.launched", SimLaunched(run_id=RUN, sim_id=SIM, occurred_at=later, launcher_ref="1")
    yield "sim.launch-failed", SimLaunchFailed(run_id=RUN, sim_id=SIM, occurred_at=later, error="e")
    for state in (SimState.RUNNING, SimState.SUCCEEDED, SimState.FAILED):
        fact = SimReported.model_validate(
            {"run_id": RUN, "sim_id": SIM, "occurred_at": later, "state": state}
        )
        yield f"sim.reported {state.value}", fact
    seen = {"run_id": RUN, "sim_id": SIM, "occurred_at": later, "heartbeat_seen_at": AT}
    yield "sim.went-silent", SimWentSilent.model_validate(seen)
    yield "sim.given-up", SimGivenUp.model_validate(seen | {"error": "e"})
    yield "run.cancel-requested", RunCancelRequested(run_id=RUN, occurred_at=later)


def _sim_in(state: SimState) -> sims.Sim:
    planned = PlannedSim(sim_id=SIM, gpu_config="SM80_A100", replica=0)
    entry = RunEntry(gpu_config="SM80_A100", count=1)
    asked = RunRequested(
        run_id=RUN, occurred_at=AT, trace_id=TRACE, entries=[entry], sims=[planned], kernels_total=1
    )
    (sim,) = sims.sims_of(asked)
    heard = None if state in (SimState.PENDING, SimState.LAUNCHING) else AT
    return replace(
        sim, state=state, last_heartbeat_at=heard, finished_at=AT if state in TERMINAL_SIM_STATES else None
    )


def _trace_moves() -> Iterator[Move]:
    for start in TraceState:
        found: dict[TraceState, list[str]] = {}
        for fact in _trace_facts():
            end = traces.apply(traces.Trace(trace_id=TRACE, created_at=AT, updated_at=AT, state=start), fact)
            assert end is not None
            if end.state is not start:
                found.setdefault(end.state, []).append(fact.type)
        for end_state in TraceState:
            if end_state in found:
                yield start.value, end_state.value, ", ".join(found[end_state])


def _trace_facts() -> Iterator[TraceFactUnion]:
    yield TraceDiscovered(trace_id=TRACE, occurred_at=AT)
    yield TraceObserved(trace_id=TRACE, occurred_at=AT, kernel_count=1, size_bytes=1)
    yield TraceUploadCompleted(trace_id=TRACE, occurred_at=AT)
    yield TraceReady(trace_id=TRACE, occurred_at=AT, kernel_count=1, size_bytes=1)
    yield TraceFailed(trace_id=TRACE, occurred_at=AT, error="e")
