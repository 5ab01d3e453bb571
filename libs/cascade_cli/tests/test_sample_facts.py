"""The samples as facts, folded as every service folds them."""

import json
from datetime import UTC, datetime

import pytest
from cascade_cli import bundled
from cascade_cli.sample_facts import (
    RUNS,
    TRACES,
    Results,
    SampleRun,
    SampleTrace,
    StoredFile,
    Told,
    discovered,
    run_facts,
    trace_facts,
)
from cascade_cli.sample_replay import opening, results
from cascade_cli.samples import read_results
from cascade_core import facts as codec
from cascade_core.kernels.facts import KernelFinished
from cascade_core.runs.facts import PlannedSim, RunEntry, RunRequested
from cascade_core.sims import state as sim_state
from cascade_core.sims.facts import SimFact, SimLaunchStarted, SimStepTimelineStored
from cascade_core.sims.state import Sim
from cascade_core.sims.transitions import SimState
from cascade_core.traces import state as trace_state
from cascade_core.traces.facts import TraceFact
from cascade_core.traces.state import Trace, TraceState

LOG = StoredFile("x.log.zst", 400, "application/zstd", "logs/x.log.zst")
NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: run.name)
def run(request: pytest.FixtureRequest) -> SampleRun:
    assert isinstance(request.param, SampleRun)
    return request.param


@pytest.fixture(scope="module")
def recorded(run: SampleRun) -> Results:
    return read_results(bundled.SAMPLES, run)


@pytest.fixture(scope="module")
def told(run: SampleRun, recorded: Results) -> list[Told]:
    return run_facts(run, recorded, [StoredFile("sim_kernels.csv", 3, "text/csv", "k")], LOG)


def folded(told: list[Told]) -> Sim:
    sim: Sim | None = None
    for fact, _ in told:
        if isinstance(fact, RunRequested):
            (sim,) = sim_state.sims_of(fact)
        elif isinstance(fact, SimFact):
            assert sim is not None
            sim = sim_state.apply(sim, fact)
    assert sim is not None
    return sim


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.directory)
def test_a_sample_trace_is_ready_and_says_where_it_comes_from(trace: SampleTrace) -> None:
    directory = bundled.SAMPLES / trace.directory
    metadata = json.loads((directory / "metadata.json").read_bytes())
    timing = json.loads((directory / "real_timing.json").read_bytes())
    state: Trace | None = None
    for fact, _ in [discovered(trace), *trace_facts(trace, metadata, timing, 1234)]:
        assert isinstance(fact, TraceFact)
        state = trace_state.apply(state, fact)
    assert state is not None
    assert (state.state, state.sample, state.has_step_timeline) == (TraceState.READY, True, True)
    assert state.kernel_count == len(state.kernels) == len(state.real_timing or ()) == len(timing)
    assert "Reconstructed from published statistics" in str(metadata["provenance"])
    assert state.metadata == metadata


def test_a_sample_run_has_succeeded_with_every_traced_kernel(run: SampleRun, told: list[Told]) -> None:
    sim = folded(told)
    assert (sim.state, sim.exit_code, sim.engine) == (SimState.SUCCEEDED, 0, "replay")
    assert sim.kernels_done == sim.kernels_total == {"sm_90": 712, "sm_80": 624}[run.arch]
    assert sim.parsed_to_end
    assert sim.archive_key == LOG.object_key
    assert "Reconstructed from published statistics" in sim.tail.lines()[1]
    assert sim.finished_at is not None
    assert sim.started_at is not None
    assert (sim.finished_at - sim.started_at).total_seconds() == pytest.approx(run.wall_s)


def test_kernels_line_up_with_the_measured_ones_and_name_their_source(
    run: SampleRun, told: list[Told]
) -> None:
    kernels = [fact for fact, _ in told if isinstance(fact, KernelFinished)]
    measured = json.loads((bundled.SAMPLES / run.trace.directory / "real_timing.json").read_bytes())
    assert [kernel.kernel_launch_uid for kernel in kernels] == [row["kernel_id"] for row in measured]
    assert [kernel.index for kernel in kernels] == list(range(len(measured)))
    exact = [kernel for kernel in kernels if kernel.stats["result_source"] == "exact"]
    rows = (bundled.SAMPLES / run.directory / "sim_kernels.csv").read_text().strip().split("\n")[1:]
    assert {(str(kernel.kernel_launch_uid), str(kernel.gpu_sim_cycle)) for kernel in exact} == {
        (row.split(",", 1)[0], row.rsplit(",", 1)[1]) for row in rows
    }


def test_a_config_that_was_never_measured_is_labelled(run: SampleRun, told: list[Told]) -> None:
    (timing,) = [fact for fact, _ in told if isinstance(fact, SimStepTimelineStored)]
    assert timing.compare is not None
    labelled = "Counterfactual" in str(timing.compare.get("note"))
    assert labelled is run.counterfactual is (run.name == "opt125m-h200")
    assert labelled is any("Counterfactual" in line for line in folded(told).tail.lines())


def test_event_ids_are_fixed_and_facts_survive_the_log(
    run: SampleRun, recorded: Results, told: list[Told]
) -> None:
    again = run_facts(run, recorded, [StoredFile("sim_kernels.csv", 3, "text/csv", "k")], LOG)
    assert [event_id for _, event_id in again] == [event_id for _, event_id in told]
    assert len({event_id for _, event_id in told}) == len(told)
    for fact, _ in (told[0], told[5], told[-2], told[-3]):
        assert codec.decode(codec.encode(fact)) == fact


def test_facts_told_twice_change_nothing(told: list[Told]) -> None:
    assert folded([*told, *told[1:]]) == folded(told)


def test_a_replay_ends_as_the_sample_did_under_its_own_ids(run: SampleRun, told: list[Told]) -> None:
    asked = RunRequested(
        run_id="run-new",
        occurred_at=NOW,
        trace_id=run.trace.trace_id,
        entries=[RunEntry(gpu_config="X", count=1)],
        sims=[PlannedSim(sim_id="sim-new", gpu_config="X", replica=0)],
        kernels_total=folded(told).kernels_total,
        replay=True,
    )
    taken = SimLaunchStarted(run_id="run-new", sim_id="sim-new", occurred_at=NOW, attempt="replay")
    played: list[Told] = [
        (asked, "asked"),
        (taken, "taken"),
        *opening("run-new", "sim-new", NOW),
        *results("run-new", "sim-new", [fact for fact, _ in told], NOW),
    ]
    sim, sample = folded(played), folded(told)
    assert (sim.state, sim.engine, sim.attempt) == (SimState.SUCCEEDED, "replay", "replay")
    assert (sim.kernels_done, sim.latest, sim.tail) == (sample.kernels_done, sample.latest, sample.tail)
    assert sim.finished_at == NOW
    assert {fact.sim_id for fact, _ in played if isinstance(fact, SimFact)} == {"sim-new"}
    kernels = [fact for fact, _ in played if isinstance(fact, KernelFinished)]
    recorded = [fact for fact, _ in told if isinstance(fact, KernelFinished)]
    assert [kernel.gpu_sim_cycle for kernel in kernels] == [kernel.gpu_sim_cycle for kernel in recorded]
