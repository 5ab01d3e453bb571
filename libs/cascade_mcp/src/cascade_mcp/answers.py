"""What the tools answer: the app's bodies cut down to what an agent needs. Pure."""

from collections.abc import Sequence
from typing import Final

from cascade_accelsim.demangle import readable_name
from cascade_client.progress import TERMINAL_SIM_STATES
from cascade_client.provenance import Statement, TimeWord, time_word
from cascade_client.wire.results import Comparison, SimStepTimeline
from cascade_client.wire.runs import RunDetail, RunEntry, RunState, SimState, SimSummary
from cascade_client.wire.scenarios import AggregateRow, CalibrationRow, ScenarioResponse, SchedulerRow
from cascade_client.wire.traces import TraceDetail, TraceState, TraceSummary
from pydantic import BaseModel, Field, JsonValue

MOST_SIMS: Final = 100
MOST_ROWS: Final = 200


class TraceLine(BaseModel):
    """One trace."""

    id: str
    state: TraceState
    error: str | None
    model: str | None
    layers: list[str]
    source_gpu: str | None
    trace_gpu_arch: str
    suggested_sim_config: str | None
    kernel_count: int
    created_at: str
    has_real_timing: bool
    has_step_timeline: bool
    sample: bool = Field(description="True for bundled samples: they have no instructions and cannot run.")


class TraceAnswer(BaseModel):
    """One trace with what it says of its own origin and its kernels by name."""

    trace: TraceLine
    provenance: str | None = Field(description="What the trace's metadata says of where its data come from.")
    kernels: dict[str, int] = Field(description="Launches by readable kernel name.")


class SimLine(BaseModel):
    """One sim."""

    id: str
    gpu_config: str
    replica: int
    state: SimState
    engine: str | None = Field(description="accel-sim, replay (the stand-in), estimate, or unknown.")
    kernels_done: int
    kernels_total: int
    gpu_tot_sim_cycle: float | None
    gpu_tot_ipc: float | None
    error: str | None
    exit_code: int | None


class RunAnswer(BaseModel):
    """One run. Read `statements` before any number."""

    id: str
    trace_id: str
    state: RunState
    entries: list[RunEntry]
    sim_counts: dict[str, int]
    statements: list[Statement] = Field(description="What must be said before the numbers.")
    sims: list[SimLine]
    sims_left_out: int = Field(description="Succeeded sims that are not listed because there are too many.")
    next: str = Field(description="What to do now.")


class KernelRow(BaseModel):
    """One kernel position."""

    kernel_index: int
    name: str
    real_ns: float | None
    sim_ns: dict[str, float | None]


class ComparisonAnswer(BaseModel):
    """Kernels by position, real time against the sims'."""

    run_id: str
    statements: list[Statement]
    time_word: TimeWord = Field(description="What the times of `sim_ns` are. Call them so.")
    has_real_timing: bool
    rows: list[KernelRow]
    rows_left_out: int


class StepTiming(BaseModel):
    """One sim's step timing, without its steps."""

    sim_id: str
    gpu_config: str
    replica: int
    counterfactual: bool = Field(description="The measured steps are another GPU's: compare holds no error.")
    summary: dict[str, JsonValue]
    compare: JsonValue


class StepTimingAnswer(BaseModel):
    """A run's step timing. Read `statements` before any number."""

    run_id: str
    statements: list[Statement]
    sims: list[StepTiming]


class ScenarioAnswer(BaseModel):
    """A serving scenario's outcome."""

    statements: list[str] = Field(description="What must be said before the numbers.")
    trace_id: str
    gpu_config: str
    run_id: str | None
    sim_id: str | None
    cached: bool
    aggregate: AggregateRow
    steps_total: int
    provenance_counts: dict[str, int]
    calibration_range: CalibrationRow
    scheduler: SchedulerRow
    assumptions: list[str]


def trace_line(trace: TraceSummary) -> TraceLine:
    """A trace in a list."""
    return TraceLine(
        id=trace.id,
        state=trace.state,
        error=trace.error,
        model=trace.model,
        layers=trace.layers,
        source_gpu=trace.source_gpu,
        trace_gpu_arch=trace.trace_gpu_arch,
        suggested_sim_config=trace.suggested_sim_config,
        kernel_count=trace.kernel_count,
        created_at=trace.created_at.isoformat(),
        has_real_timing=trace.has_real_timing,
        has_step_timeline=trace.has_step_timeline,
        sample=trace.sample,
    )


def trace_answer(trace: TraceDetail) -> TraceAnswer:
    """One trace."""
    kernels: dict[str, int] = {}
    for kernel in trace.kernels:
        name = readable_name(kernel.name)
        kernels[name] = kernels.get(name, 0) + 1
    provenance = (trace.metadata or {}).get("provenance")
    return TraceAnswer(
        trace=trace_line(trace),
        provenance=provenance if isinstance(provenance, str) else None,
        kernels=kernels,
    )


def run_answer(run: RunDetail, statements: list[Statement]) -> RunAnswer:
    """One run with its sims: those that need a look first."""
    ordered = sorted(run.sims, key=lambda sim: sim.state is SimState.SUCCEEDED)
    return RunAnswer(
        id=run.id,
        trace_id=run.trace_id,
        state=run.state,
        entries=run.entries,
        sim_counts={state.value: count for state, count in run.sim_counts.items()},
        statements=statements,
        sims=[_sim_line(sim) for sim in ordered[:MOST_SIMS]],
        sims_left_out=max(0, len(ordered) - MOST_SIMS),
        next=_next(run),
    )


def comparison_answer(
    run: RunDetail, statements: list[Statement], comparison: Comparison, *, first: int, count: int
) -> ComparisonAnswer:
    """Rows `first` to `first + count`."""
    rows = comparison.rows[first : first + min(count, MOST_ROWS)]
    return ComparisonAnswer(
        run_id=run.id,
        statements=statements,
        time_word=time_word(run.sims),
        has_real_timing=comparison.has_real_timing,
        rows=[
            KernelRow(
                kernel_index=row.kernel_index,
                name=readable_name(row.kernel_name),
                real_ns=row.real_ns,
                sim_ns=row.sim_ns,
            )
            for row in rows
        ],
        rows_left_out=len(comparison.rows) - len(rows),
    )


def step_timing_answer(
    run: RunDetail, statements: list[Statement], timelines: Sequence[SimStepTimeline]
) -> StepTimingAnswer:
    """Step timing without steps: a real model's are megabytes."""
    return StepTimingAnswer(
        run_id=run.id,
        statements=statements,
        sims=[
            StepTiming(
                sim_id=one.sim_id,
                gpu_config=one.gpu_config,
                replica=one.replica,
                counterfactual=_measured_elsewhere(run, one.gpu_config),
                summary=_without_steps(one.simulated.get("summary")),
                compare=(one.compare or {}).get("summary"),
            )
            for one in timelines
        ],
    )


def _without_steps(summary: JsonValue) -> dict[str, JsonValue]:
    """The summary without its coverage of single steps. Whatever a custom simulator sent is left as it is."""
    if not isinstance(summary, dict):
        return {}
    simulation = summary.get("simulation")
    coverage = simulation.get("coverage") if isinstance(simulation, dict) else None
    if not isinstance(simulation, dict) or not isinstance(coverage, dict):
        return summary
    left = {name: value for name, value in coverage.items() if name != "steps"}
    return {**summary, "simulation": {**simulation, "coverage": left}}


def _measured_elsewhere(run: RunDetail, gpu_config: str) -> bool:
    return run.trace.real_gpu_config not in (None, gpu_config)


def scenario_answer(
    response: ScenarioResponse, base: RunDetail | None, statements: Sequence[Statement]
) -> ScenarioAnswer:
    """A scenario without its thousands of rows.

    base: the run whose sim it is built on. statements: of that sim.
    """
    said = [statement.text for statement in statements]
    return ScenarioAnswer(
        statements=[*said, *_counterfactual(response, base), *_scenario_statements(response)],
        trace_id=response.trace_id,
        gpu_config=response.gpu_config,
        run_id=response.run_id,
        sim_id=response.sim_id,
        cached=response.cached,
        aggregate=response.aggregate,
        steps_total=response.steps_total,
        provenance_counts=response.provenance_counts,
        calibration_range=response.calibration_range,
        scheduler=response.scheduler,
        assumptions=response.assumptions,
    )


def _counterfactual(response: ScenarioResponse, base: RunDetail | None) -> list[str]:
    if base is None or not _measured_elsewhere(base, response.gpu_config):
        return []
    measured_on, asked = base.trace.real_gpu_config, response.gpu_config
    return [
        f"Host times and gaps were measured on {measured_on}, not on {asked}: the answer is counterfactual."
    ]


def _scenario_statements(response: ScenarioResponse) -> list[str]:
    extrapolated = sum(
        count for label, count in response.provenance_counts.items() if label.startswith("extrapolated")
    )
    prefill, decode = response.calibration_range.prefill_tokens, response.calibration_range.decode_context
    found = ["These are predictions of a request model on top of one sim's profile, not measurements."]
    if extrapolated:
        found.append(
            f"{extrapolated} of {response.steps_total} steps lie outside what the profile was calibrated for "
            f"(prefill of {prefill[0]} to {prefill[-1]} tokens, decode contexts of {decode[0]} to {decode[-1]}) and "
            "are not validated."
            if prefill and decode
            else f"{extrapolated} of {response.steps_total} steps are extrapolated and not validated."
        )
    return found


def _sim_line(sim: SimSummary) -> SimLine:
    return SimLine(
        id=sim.id,
        gpu_config=sim.gpu_config,
        replica=sim.replica,
        state=sim.state,
        engine=sim.engine,
        kernels_done=sim.kernels_done,
        kernels_total=sim.kernels_total,
        gpu_tot_sim_cycle=sim.latest.gpu_tot_sim_cycle,
        gpu_tot_ipc=sim.latest.gpu_tot_ipc,
        error=sim.error,
        exit_code=sim.exit_code,
    )


def _next(run: RunDetail) -> str:
    if run.state is not RunState.ACTIVE:
        return "get_report tells what the run found."
    if any(sim.state is SimState.LOST for sim in run.sims):
        return "A lost sim may come back; wait_for_run."
    return "wait_for_run until the run is not active. A real simulation may take hours."


def unfinished(run: RunDetail) -> Sequence[SimSummary]:
    """Sims that may still change."""
    return [sim for sim in run.sims if sim.state not in TERMINAL_SIM_STATES]
