"""The bundled samples as facts. Pure: documents in, facts and their event ids out.

The samples are reconstructed from published statistics. Their own words on that travel in `metadata.json`, `run.json`,
the timelines and each sim's log, so that whoever looks at a number meets them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cascade_accelsim.traces.real_timing import parse_real_timing
from cascade_core.facts import AnyFact
from cascade_core.kernels.facts import KernelFinished
from cascade_core.runs.facts import PlannedSim, RunEntry, RunRequested
from cascade_core.sims.facts import (
    SimLaunched,
    SimLaunchStarted,
    SimLogArchived,
    SimMetrics,
    SimOutcome,
    SimOutputStored,
    SimProgressed,
    SimReported,
    SimStepTimelineStored,
)
from cascade_core.sims.transitions import SimState
from cascade_core.traces.facts import (
    KernelLaunch,
    RealKernel,
    TraceDiscovered,
    TraceObserved,
    TraceReady,
    TraceUploadCompleted,
)
from pydantic import BaseModel, ConfigDict, JsonValue

Told = tuple[AnyFact, str]
"""A fact and its event id."""

RECORDED = "recorded results"
"""Launcher reference and attempt of a sim that nobody started here."""


@dataclass(frozen=True, slots=True)
class SampleTrace:
    """One bundled trace: a directory below `samples/` with its side files."""

    trace_id: str
    directory: str
    captured_at: datetime


@dataclass(frozen=True, slots=True)
class SampleRun:
    """One recorded run of a bundled trace on one config."""

    name: str
    trace: SampleTrace
    directory: str
    arch: str
    recorded_at: datetime
    wall_s: float
    """Published wall time of the simulations. [s]"""
    counterfactual: bool = False
    """No measurement on the simulated GPU exists: errors against the trace's GPU are no accuracy."""

    @property
    def run_id(self) -> str:
        """Fixed, as the pages name it."""
        return f"run-sample-{self.name}"

    @property
    def sim_id(self) -> str:
        """Fixed, as the pages name it."""
        return f"sim-sample-{self.name}"


H100 = SampleTrace(
    "sample__facebook_opt-125m__h100-e2e", "opt125m-h100-e2e", datetime(2026, 11, 8, 6, 19, 57, tzinfo=UTC)
)
A100 = SampleTrace(
    "sample__facebook_opt-125m__a100-e2e", "opt125m-a100-e2e", datetime(2026, 11, 8, 6, 19, 56, tzinfo=UTC)
)
TRACES = (H100, A100)
RUNS = (
    SampleRun(
        "opt125m-h100-e2e",
        H100,
        "opt125m-h100-e2e",
        "sm_90",
        datetime(2026, 11, 8, 6, 50, 10, tzinfo=UTC),
        804.429,
    ),
    SampleRun(
        "opt125m-h200",
        H100,
        "opt125m-h200",
        "sm_90",
        datetime(2026, 11, 8, 6, 50, 9, tzinfo=UTC),
        777.060,
        counterfactual=True,
    ),
    SampleRun(
        "opt125m-a100-e2e",
        A100,
        "opt125m-a100-e2e",
        "sm_80",
        datetime(2026, 11, 8, 6, 50, 8, tzinfo=UTC),
        565.086,
    ),
)


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class MappedKernel(_Row):
    """One row of `kernel_mapping.json`."""

    uid: int
    name: str
    repeat: int
    step: int
    seq: int


class SimulatedDuration(_Row):
    """One row of `sim_durations.json`."""

    repeat: int
    step: int
    seq: int
    cycles: int
    source: str


class Durations(_Row):
    """`sim_durations.json`: a duration for every kernel of the steady repeats."""

    gpu_config: str
    core_clock_mhz: float
    durations: tuple[SimulatedDuration, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """What was recorded of one run."""

    mapping: Sequence[MappedKernel]
    durations: Durations
    simulated: dict[str, JsonValue]
    compare: dict[str, JsonValue] | None
    provenance: str
    """The trace's own words on where its data comes from."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An output file that lies in the internal bucket."""

    name: str
    size: int
    content_type: str
    object_key: str


def discovered(trace: SampleTrace) -> Told:
    """The first fact of a sample: it keeps ingest from taking the side files for an upload."""
    fact = TraceDiscovered(trace_id=trace.trace_id, occurred_at=trace.captured_at, sample=True)
    return fact, f"sample:{trace.trace_id}:discovered"


def trace_facts(
    trace: SampleTrace, metadata: dict[str, JsonValue], real_timing: JsonValue, size_bytes: int
) -> list[Told]:
    """What makes a discovered sample ready. The last one is `trace.ready`.

    size_bytes: all side files in the bucket.
    """
    rows = parse_real_timing(real_timing).rows
    count = len(rows)
    at = trace.captured_at
    observed = TraceObserved(
        trace_id=trace.trace_id,
        occurred_at=at,
        kernel_count=count,
        size_bytes=size_bytes,
        metadata=metadata,
        has_step_timeline=True,
        real_timing=[
            RealKernel(
                kernel_id=row.kernel_id,
                kernel_name=row.kernel_name,
                duration_ns=row.duration_ns,
                grid=row.grid,
                block=row.block,
            )
            for row in rows
        ],
    )
    ready = TraceReady(
        trace_id=trace.trace_id,
        occurred_at=at,
        kernel_count=count,
        size_bytes=size_bytes,
        kernels=[
            KernelLaunch(
                kernel_id=row.kernel_id,
                name=row.kernel_name,
                grid=row.grid or (1, 1, 1),
                block=row.block or (1, 1, 1),
            )
            for row in rows
        ],
    )
    facts: list[AnyFact] = [observed, TraceUploadCompleted(trace_id=trace.trace_id, occurred_at=at), ready]
    return [(fact, f"sample:{trace.trace_id}:{number}") for number, fact in enumerate(facts)]


def run_facts(
    run: SampleRun, results: Results, files: Sequence[StoredFile], archived: StoredFile
) -> list[Told]:
    """A recorded run from its request to its end. The last fact is the sim's `succeeded`.

    files: the outputs. archived: the note of `log_lines`, which stands where a log would be.
    Kernels are the instruction-traced ones in launch order, so that they line up with the measured ones; each says
    whether it was simulated or shares a simulated kernel's result.
    """
    config, clock = results.durations.gpu_config, results.durations.core_clock_mhz
    started = run.recorded_at
    ended = started + timedelta(seconds=run.wall_s)
    kernels = _kernels(run, results, ended)
    cycles = sum(kernel.gpu_sim_cycle or 0 for kernel in kernels)
    ids = {"run_id": run.run_id, "sim_id": run.sim_id}
    planned = PlannedSim(sim_id=run.sim_id, gpu_config=config, replica=0, arch=run.arch, core_clock_mhz=clock)
    facts: list[AnyFact] = [
        RunRequested(
            run_id=run.run_id,
            occurred_at=started,
            trace_id=run.trace.trace_id,
            entries=[RunEntry(gpu_config=config, count=1)],
            sims=[planned],
            kernels_total=len(kernels),
            sample=True,
        ),
        SimLaunchStarted(**ids, occurred_at=started, attempt=RECORDED),
        SimLaunched(**ids, occurred_at=started, launcher_ref=RECORDED),
        SimReported(**ids, occurred_at=started, state=SimState.RUNNING, engine="replay"),
        *kernels,
        *[
            SimOutputStored(
                **ids,
                occurred_at=ended,
                name=file.name,
                size=file.size,
                content_type=file.content_type,
                object_key=file.object_key,
            )
            for file in files
        ],
        # Final before the sim has ended: there is no log that a parser could read.
        SimProgressed(
            **ids,
            occurred_at=ended,
            through_seq=-1,
            kernels_done=len(kernels),
            latest=SimMetrics(gpu_tot_sim_cycle=float(cycles)),
            final=True,
        ),
        SimStepTimelineStored(
            **ids, occurred_at=ended, simulated=results.simulated, compare=_compared(run, results.compare)
        ),
        # Archived before the end is told, so that no archiver finds an ended sim with its log still to be stored.
        SimLogArchived(
            **ids,
            occurred_at=ended,
            object_key=archived.object_key,
            chunk_count=1,
            line_count=len(log_lines(run, results)),
            size_bytes=archived.size,
            log_tail=log_lines(run, results),
            last_heartbeat_at=ended,
            outcome=SimOutcome(
                state=SimState.SUCCEEDED, exit_code=0, engine="replay", started_at=started, finished_at=ended
            ),
        ),
        SimReported(**ids, occurred_at=ended, state=SimState.SUCCEEDED, exit_code=0, engine="replay"),
    ]
    return [(fact, f"sample:{run.run_id}:{number}") for number, fact in enumerate(facts)]


def _kernels(run: SampleRun, results: Results, at: datetime) -> list[KernelFinished]:
    by_place: Mapping[tuple[int, int, int], SimulatedDuration] = {
        (row.repeat, row.step, row.seq): row for row in results.durations.durations
    }
    kernels = []
    for index, mapped in enumerate(results.mapping):
        row = by_place[(mapped.repeat, mapped.step, mapped.seq)]
        kernels.append(
            KernelFinished(
                run_id=run.run_id,
                sim_id=run.sim_id,
                occurred_at=at,
                index=index,
                kernel_name=mapped.name,
                kernel_launch_uid=mapped.uid,
                gpu_sim_cycle=row.cycles,
                stats={"gpu_sim_cycle": float(row.cycles), "result_source": row.source},
            )
        )
    return kernels


def log_lines(run: SampleRun, results: Results) -> list[str]:
    """What is said of the results where a simulator's log would be."""
    config = results.durations.gpu_config
    simulated = sum(1 for row in results.durations.durations if row.source == "exact")
    lines = [
        f"Cascade sample: {RECORDED} on {config} for {run.trace.trace_id}. No simulator ran here.",
        results.provenance,
        f"{simulated} kernels were simulated; the others share the cycles of one of them (stats: result_source).",
    ]
    if run.counterfactual:
        lines.append(_COUNTERFACTUAL)
    return lines


_COUNTERFACTUAL = (
    "Counterfactual: no measurement on this GPU exists. Errors are against the traced GPU, no accuracy."
)


def _compared(run: SampleRun, compare: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
    if compare is None or not run.counterfactual:
        return compare
    return compare | {"note": _COUNTERFACTUAL}
