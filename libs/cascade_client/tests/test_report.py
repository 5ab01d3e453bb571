"""The report of a run: numbers, order, and what must be said above them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from cascade_client import gathering
from cascade_client.calls import Call
from cascade_client.errors import NotFound
from cascade_client.report import Report, build_report
from cascade_client.report_text import duration, headline, markdown, ranking
from cascade_client.wire.results import Comparison, ComparisonRow, KernelStat
from cascade_client.wire.runs import RunDetail, RunEntry, RunState, SimMetrics, SimState, SimSummary
from cascade_client.wire.traces import KernelLaunch, TraceDetail, TraceState, TraceSummary
from pydantic import JsonValue

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MANGLED = "_Z11copy_kernelIdEvPKT_PS0_"


def sim(
    config: str,
    replica: int = 0,
    *,
    state: SimState = SimState.SUCCEEDED,
    engine: str | None = "accel-sim",
    done: int = 2,
    total: int = 2,
    error: str | None = None,
    exit_code: int | None = None,
    tail: Sequence[str] = (),
    clock_mhz: float | None = None,
) -> SimSummary:
    return SimSummary(
        id=f"sim-{config}-{replica}", run_id="run-1", gpu_config=config, replica=replica, state=state, error=error,
        launcher_ref=None, created_at=NOW, started_at=NOW, finished_at=NOW, last_heartbeat_at=NOW,
        exit_code=exit_code, kernels_done=done, kernels_total=total, current_kernel=MANGLED,
        latest=SimMetrics(gpu_tot_sim_cycle=1000.0 + replica, gpu_tot_ipc=2.0), log_tail=list(tail), engine=engine,
        log_clock_mhz=clock_mhz,
    )  # fmt: skip


def trace(
    *, model: str | None = None, real_gpu_config: str | None = None, sample: bool = False
) -> TraceSummary:
    return TraceSummary(
        id="demo", state=TraceState.READY, error=None, created_at=NOW, updated_at=NOW, model=model, layers=[],
        source_gpu=None, trace_gpu_arch="sm_80", suggested_sim_config=None, real_gpu_config=real_gpu_config,
        kernel_count=2, bytes=1, has_real_timing=False, has_step_timeline=False, sample=sample,
    )  # fmt: skip


def detail(
    summary: TraceSummary, *, kernels: Sequence[str] = (), metadata: dict[str, JsonValue] | None = None
) -> TraceDetail:
    launches = [
        KernelLaunch(kernel_id=i, name=name, grid=(1, 1, 1), block=(1, 1, 1))
        for i, name in enumerate(kernels)
    ]
    return TraceDetail(**summary.model_dump(), metadata=metadata, kernels=launches)


def a_run(
    *sims: SimSummary,
    of: TraceSummary | None = None,
    state: RunState = RunState.SUCCEEDED,
    sample: bool = False,
    replay: bool = False,
) -> RunDetail:
    names = list(dict.fromkeys(one.gpu_config for one in sims))
    counts = {s: sum(one.state is s for one in sims) for s in SimState}
    return RunDetail(
        id="run-1", trace_id="demo", created_at=NOW, state=state,
        entries=[RunEntry(gpu_config=name, count=sum(one.gpu_config == name for one in sims)) for name in names],
        sim_counts={s: count for s, count in counts.items() if count}, sample=sample, replay=replay,
        trace=of or trace(), sims=list(sims),
    )  # fmt: skip


def times(one: SimSummary, *values: float | None, name: str = MANGLED) -> list[KernelStat]:
    return [
        KernelStat(
            sim_id=one.id, kernel_index=index, kernel_name=name, kernel_launch_uid=index + 1, gpu_sim_cycle=10,
            gpu_sim_insn=10, gpu_ipc=1.0, sim_time_ns=value, stats={},
        )
        for index, value in enumerate(values)
    ]  # fmt: skip


def compared(
    rows: Sequence[tuple[float | None, dict[str, float | None]]], *, real: bool = False
) -> Comparison:
    return Comparison(
        has_real_timing=real,
        configs=list(rows[0][1]) if rows else [],
        rows=[
            ComparisonRow(kernel_index=index, kernel_name=MANGLED, real_ns=real_ns, sim_ns=sim_ns)
            for index, (real_ns, sim_ns) in enumerate(rows)
        ],
    )


NOTHING_COMPARED = Comparison(has_real_timing=False, configs=[], rows=[])


def kinds(report: Report) -> list[str]:
    return [statement.kind for statement in report.statements]


def test_a_configs_time_is_the_median_of_its_replicas_sums() -> None:
    sims = [sim("A", 0), sim("A", 1), sim("A", 2), sim("B")]
    stats = [
        *times(sims[0], 10, 20),
        *times(sims[1], 10, 24),
        *times(sims[2], 11, 40),
        *times(sims[3], 20, 48),
    ]
    report = build_report(a_run(*sims), kernels=stats, comparison=NOTHING_COMPARED)
    first, second = report.configs
    assert (first.gpu_config, first.median_ns, first.lowest_ns, first.highest_ns) == ("A", 34, 30, 51)
    assert first.gpu_tot_sim_cycle == 1001
    assert second.times_fastest == 2.0
    assert report.fastest == ["A"]
    assert ranking(report) == "A is the fastest; B takes 2.00× as long."


def test_configs_within_one_percent_tie() -> None:
    sims = [sim("A"), sim("B"), sim("C")]
    stats = [*times(sims[0], 100, 100), *times(sims[1], 102, 100), *times(sims[2], 150, 154)]
    report = build_report(a_run(*sims), kernels=stats, comparison=NOTHING_COMPARED)
    assert report.fastest == ["A", "B"]
    assert report.ties == [["A", "B"]]
    assert ranking(report) == "A and B tie (within 1 %); C takes 1.52× as long."


def test_a_sim_that_did_not_succeed_does_not_count() -> None:
    sims = [sim("A", 0), sim("A", 1, state=SimState.FAILED, done=1), sim("B", state=SimState.FAILED, done=1)]
    stats = [*times(sims[0], 10, 20), *times(sims[1], 1), *times(sims[2], 1)]
    report = build_report(a_run(*sims, state=RunState.PARTIAL), kernels=stats, comparison=NOTHING_COMPARED)
    assert [(config.median_ns, config.succeeded) for config in report.configs] == [(30, 1), (None, 0)]
    assert report.not_comparable_because == "fewer than two configs have a time"
    assert report.fastest == []


def test_nothing_finished_is_no_time_of_zero() -> None:
    sims = [sim("A", done=0), sim("B")]
    report = build_report(a_run(*sims), kernels=times(sims[1], 10, 20), comparison=NOTHING_COMPARED)
    assert {config.gpu_config: config.median_ns for config in report.configs} == {"A": None, "B": 30}
    assert not report.comparable


def test_unequal_numbers_of_kernels_are_not_ranked() -> None:
    sims = [sim("A"), sim("B", done=1)]
    stats = [*times(sims[0], 10, 20), *times(sims[1], 10)]
    report = build_report(a_run(*sims), kernels=stats, comparison=NOTHING_COMPARED)
    assert report.not_comparable_because == "the sims finished different numbers of kernels"


def test_a_missing_time_is_not_taken_as_zero_in_a_ranking() -> None:
    sims = [sim("A"), sim("B")]
    stats = [*times(sims[0], 10, None), *times(sims[1], 10, 20)]
    report = build_report(a_run(*sims), kernels=stats, comparison=NOTHING_COMPARED)
    assert not report.comparable
    assert "incomplete" in (report.not_comparable_because or "")


def test_the_stand_ins_numbers_are_named_first_and_never_ranked() -> None:
    sims = [sim("A", engine="replay"), sim("B", engine="replay")]
    stats = [*times(sims[0], 10, 20), *times(sims[1], 20, 20)]
    report = build_report(a_run(*sims), kernels=stats, comparison=NOTHING_COMPARED)
    assert kinds(report) == ["stand-in"]
    assert report.statements[0].text.startswith("Every sim's numbers were replayed by the stand-in")
    assert not report.comparable
    text = markdown(report)
    assert text.index("stand-in") < text.index("## Replayed time")
    assert "The configs cannot be compared from this run" in text


def test_estimates_are_called_estimates_and_may_be_ranked() -> None:
    sims = [sim("A", engine="estimate"), sim("B", engine="estimate")]
    stats = [*times(sims[0], 10, 20), *times(sims[1], 20, 20)]
    report = build_report(a_run(*sims), kernels=stats, comparison=NOTHING_COMPARED)
    assert kinds(report) == ["estimate"]
    assert "No simulator ran" in report.statements[0].text
    assert report.fastest == ["A"]


@pytest.mark.parametrize(
    ("engines", "title", "column"),
    [
        (("accel-sim", "accel-sim"), "Simulated time", "median, simulated"),
        (("estimate", "estimate"), "Estimated time", "median, estimated"),
        (("replay", "replay"), "Replayed time", "median, replayed"),
        (("estimate", "accel-sim"), "Time of mixed origin", "median, mixed"),
    ],
)
def test_times_are_called_by_what_made_them(engines: tuple[str, str], title: str, column: str) -> None:
    sims = [sim("A", engine=engines[0]), sim("B", engine=engines[1])]
    stats = [*times(sims[0], 10, 20), *times(sims[1], 20, 20)]
    rows: list[tuple[float | None, dict[str, float | None]]] = [(None, {"A": 10.0, "B": 20.0})]
    text = markdown(build_report(a_run(*sims), kernels=stats, comparison=compared(rows)))
    assert f"## {title}\n" in text
    assert f"| {column} |" in text
    assert ("simulated" in text.partition("## ")[2].lower()) is (title == "Simulated time")


def test_a_sim_without_a_kernel_does_not_change_the_word() -> None:
    sims = [sim("A", engine="estimate"), sim("A", 1, engine=None, state=SimState.FAILED, done=0)]
    report = build_report(a_run(*sims), kernels=times(sims[0], 10, 20), comparison=NOTHING_COMPARED)
    assert report.time_word == "estimated"


def test_estimates_and_simulations_are_not_ranked_against_each_other() -> None:
    sims = [sim("A", engine="estimate"), sim("B")]
    stats = [*times(sims[0], 10, 20), *times(sims[1], 20, 20)]
    report = build_report(a_run(*sims), kernels=stats, comparison=NOTHING_COMPARED)
    assert report.statements[0].text.startswith("The numbers of 1 of 2 sims were estimated")
    assert report.not_comparable_because == "the sims' numbers were not all made in the same way"


def test_a_reconstructed_trace_says_so_in_its_own_words() -> None:
    summary = trace(sample=True)
    run = a_run(sim("A", engine="replay"), of=summary, sample=True)
    told = detail(summary, metadata={"provenance": "Reconstructed from published statistics."})
    report = build_report(run, trace=told, kernels=[], comparison=NOTHING_COMPARED)
    assert kinds(report) == ["sample", "reconstructed"]
    assert "Reconstructed from published statistics." in report.statements[1].text


def test_a_samples_recorded_results_may_be_ranked() -> None:
    sims = [sim("A", engine="replay"), sim("B", engine="replay")]
    stats = [*times(sims[0], 10, 20), *times(sims[1], 20, 20)]
    report = build_report(a_run(*sims, replay=True), kernels=stats, comparison=NOTHING_COMPARED)
    assert kinds(report) == ["recorded"]
    assert report.fastest == ["A"]


@pytest.mark.parametrize(
    ("model", "own", "kernel", "done", "sign"),
    [
        (None, [], MANGLED, 6, "finished 6 kernels where the trace has 2"),
        (None, ["gemm_kernel"], MANGLED, 2, "none of its kernels is in the trace"),
        (None, [], MANGLED, 2, "BabelStream"),
    ],
)
def test_an_undeclared_stand_in_is_recognised_by_its_signs(
    model: str | None, own: list[str], kernel: str, done: int, sign: str
) -> None:
    summary = trace(model=model)
    one = sim("A", engine=None, done=done)
    report = build_report(
        a_run(one, of=summary),
        trace=detail(summary, kernels=own),
        kernels=times(one, 1, 2, name=kernel),
        comparison=NOTHING_COMPARED,
    )
    assert kinds(report)[0] == "stand-in"
    assert sign in report.statements[0].text


def test_a_simulator_that_does_not_name_itself_is_not_called_a_stand_in() -> None:
    summary = trace()
    one = sim("A", engine=None)
    report = build_report(
        a_run(one, of=summary),
        trace=detail(summary, kernels=[MANGLED]),
        kernels=times(one, 1, 2),
        comparison=NOTHING_COMPARED,
    )
    assert kinds(report) == ["unknown"]


def test_a_clock_that_differs_is_said() -> None:
    report = build_report(a_run(sim("A", clock_mhz=1132.0)), kernels=[], comparison=NOTHING_COMPARED)
    assert kinds(report) == ["clock"]
    assert "1132 MHz" in report.statements[0].text


def test_mape_is_over_the_rows_that_have_both_times() -> None:
    rows: list[tuple[float | None, dict[str, float | None]]] = [
        (100.0, {"A": 110.0}),
        (200.0, {"A": 180.0}),
        (None, {"A": 5.0}),
        (50.0, {"A": None}),
    ]
    one = sim("A")
    report = build_report(a_run(one), kernels=times(one, 110, 180), comparison=compared(rows, real=True))
    (error,) = report.accuracy
    assert error.mape_percent == pytest.approx(10.0)
    assert (error.rows, error.rows_left_out) == (2, 2)
    assert "A: MAPE 10.0 % over 2 rows; 2 rows lack one of the two" in markdown(report)


def test_another_gpus_measurement_gives_a_difference_and_no_error() -> None:
    summary = trace(real_gpu_config="A")
    sims = [sim("A"), sim("B")]
    comparison = compared([(100.0, {"A": 101.0, "B": 10.0}), (100.0, {"A": 150.0, "B": 100.0})], real=True)
    report = build_report(a_run(*sims, of=summary), kernels=[], comparison=comparison)
    assert [error.counterfactual for error in report.accuracy] == [False, True]
    # B is 90 % away at index 0, but only A was measured.
    assert [kernel.kernel_index for kernel in report.worst_kernels] == [1, 0]
    assert report.worst_kernels[0].error_percent == {"A": 50.0, "B": 0.0}
    assert "## Kernels with the largest error" in markdown(report)


def test_where_only_other_gpus_were_measured_no_error_is_spoken_of() -> None:
    # spec: sample-analysis, H200 predictions are counterfactual: there is no real baseline.
    comparison = compared([(100.0, {"B": 150.0})], real=True)
    run = a_run(sim("B"), of=trace(real_gpu_config="A"))
    text = markdown(build_report(run, kernels=[], comparison=comparison))
    assert "## Kernels that differ most from the GPU that was measured, which is another one" in text
    assert "largest error" not in text
    assert "MAPE" not in text


def test_a_stand_ins_times_are_not_held_against_measured_ones() -> None:
    comparison = compared([(100.0, {"A": 300.0}), (100.0, {"A": 700.0})], real=True)
    one = sim("A", engine="replay")
    report = build_report(a_run(one), kernels=times(one, 300, 700), comparison=comparison)
    assert report.accuracy == []
    assert "stand-in" in (report.no_accuracy_because or "")
    assert report.worst_by == "share"
    assert [kernel.kernel_index for kernel in report.worst_kernels] == [1, 0]
    assert report.worst_kernels[0].error_percent == {}
    text = markdown(report)
    assert "MAPE" not in text
    assert "largest error" not in text
    assert "do not describe the trace, so this report covers replayed time only." in text


def test_without_real_timing_the_worst_kernels_are_the_longest() -> None:
    rows: list[tuple[float | None, dict[str, float | None]]] = [
        (None, {"A": 10.0, "B": 10.0}),
        (None, {"A": 70.0, "B": 35.0}),
        (None, {"A": 20.0, "B": 5.0}),
    ]
    report = build_report(a_run(sim("A"), sim("B")), kernels=[], comparison=compared(rows))
    assert [kernel.kernel_index for kernel in report.worst_kernels] == [1, 0, 2]
    worst = report.worst_kernels[0]
    assert worst.name == "copy_kernel"
    assert worst.share_percent == pytest.approx(70.0)
    assert worst.slowest_over_fastest == 2.0
    assert (
        "`copy_kernel` (index 1): simulated A 70 ns, B 35 ns; 70.0 % of the time; 2.00× between configs"
        in (markdown(report))
    )
    assert "no real timing" in markdown(report)


def test_at_most_five_kernels_are_named() -> None:
    report = build_report(
        a_run(sim("A")), kernels=[], comparison=compared([(None, {"A": float(i)}) for i in range(1, 9)])
    )
    assert [kernel.kernel_index for kernel in report.worst_kernels] == [7, 6, 5, 4, 3]


def test_failed_sims_come_with_their_cause() -> None:
    sims = [
        sim(
            "A",
            0,
            state=SimState.FAILED,
            exit_code=134,
            error="exit code 134",
            tail=["x", "y: Assertion `z' failed"],
        ),
        sim("A", 1, state=SimState.LOST),
        sim("A", 2, state=SimState.CANCELLED),
        sim("A", 3),
    ]
    report = build_report(
        a_run(*sims, state=RunState.PARTIAL),
        kernels=[],
        comparison=NOTHING_COMPARED,
        log_findings={"sim-A-1": ["ERROR: no such file"]},
    )
    assert [failed.sim_id for failed in report.failed_sims] == ["sim-A-0", "sim-A-1", "sim-A-2"]
    first, second, _ = report.failed_sims
    assert (first.signal, first.cause_lines) == ("SIGABRT", ["y: Assertion `z' failed"])
    assert second.cause_lines == ["ERROR: no such file"]
    assert first.last_kernel == "copy_kernel"
    assert "exit code 134 (SIGABRT)" in markdown(report)


def test_an_empty_run_has_a_report() -> None:
    report = build_report(a_run(state=RunState.ACTIVE), kernels=[], comparison=NOTHING_COMPARED)
    assert headline(report) == "Run run-1 of trace demo: active, no sims"
    assert "No kernel finished." in markdown(report)


@pytest.mark.parametrize(
    ("ns", "text"),
    [(None, "–"), (0.0, "0 ns"), (0.5, "0.5 ns"), (999.0, "999 ns"), (5200.0, "5.2 µs"), (3.1e6, "3.1 ms"),
     (999_600.0, "1000 µs"), (2.5e9, "2.5 s"), (7.2e12, "7200 s")],
)  # fmt: skip
def test_times_come_in_the_largest_unit_above_one(ns: float | None, text: str) -> None:
    assert duration(ns) == text


def test_a_run_that_ended_just_now_is_read_until_two_readings_agree() -> None:
    one = sim("A", done=1)
    early, late = a_run(one), a_run(one.model_copy(update={"kernels_done": 2}))
    steps = gathering.gather_report("run-1", NOW + timedelta(seconds=1))
    asked: list[str] = []
    answers = iter([early, times(one, 1), None, late, times(one, 1, 2), None, late])
    step = next(steps)
    for answer in answers:
        asked.append(step.route if isinstance(step, Call) else type(step).__name__)
        step = steps.send(answer)
    assert asked.count("Pause") == 2
    assert isinstance(step, Call)
    assert step.route == "/api/traces/{trace_id}"


def readings(run: RunDetail) -> int:
    """How often a report of this run, which changes no more, reads it."""
    steps = gathering.gather_report("run-1", NOW + timedelta(seconds=1))
    step, count = next(steps), 0
    while not (isinstance(step, Call) and step.route == "/api/traces/{trace_id}"):
        is_run = isinstance(step, Call) and step.route == "/api/runs/{run_id}"
        count += is_run
        kernels = [kernel for one in run.sims for kernel in times(one, *[1.0] * one.kernels_done)]
        step = steps.send(None if isinstance(step, gathering.Pause) else run if is_run else kernels)
    return count


def test_a_sim_that_succeeded_has_all_its_kernels_or_is_read_again_for_a_bounded_time() -> None:
    # A parser that stands still gives two readings that agree.
    for engine in ("accel-sim", "estimate"):
        assert readings(a_run(sim("A", done=2, engine=engine))) == 2
        assert readings(a_run(sim("A", done=1, engine=engine))) == gathering.MOST_READS + 1
    assert readings(a_run(sim("A", done=1, engine="replay"))) == 2
    assert readings(a_run(sim("A", done=1, state=SimState.FAILED), state=RunState.FAILED)) == 2


def test_a_removed_trace_does_not_hide_the_report() -> None:
    one = sim("A", state=SimState.FAILED)
    steps = gathering.gather_report("run-1", NOW + timedelta(hours=1))
    next(steps)
    steps.send(a_run(one, state=RunState.FAILED))
    steps.send(times(one, 1))
    comparison = steps.throw(NotFound(404, "trace demo not found"))
    assert isinstance(comparison, Call)
    search = steps.send(NOTHING_COMPARED)
    assert search == gathering.SearchLog(one.id)
    with pytest.raises(StopIteration) as end:
        steps.send(["ERROR"])
    assert end.value.value.failed_sims[0].cause_lines == ["ERROR"]


def test_a_sims_statements_are_of_its_own_kernels() -> None:
    one, other = sim("A"), sim("A", 1, engine="estimate")
    overlapping = [kernel.model_copy(update={"since_last_completion": True}) for kernel in times(other, 1)]
    for sim_id, said in ((None, ["estimate", "overlap"]), (one.id, []), (other.id, ["estimate", "overlap"])):
        steps = gathering.gather_statements(a_run(one, other), sim_id)
        next(steps)
        steps.throw(NotFound(404, "trace demo not found"))
        with pytest.raises(StopIteration) as end:
            steps.send([*times(one, 1), *overlapping])
        assert [statement.kind for statement in end.value.value] == said


def test_before_a_kernel_is_finished_none_are_asked_for() -> None:
    steps = gathering.gather_statements(a_run(sim("A", done=0)), None)
    next(steps)
    with pytest.raises(StopIteration):
        steps.send(detail(trace()))
