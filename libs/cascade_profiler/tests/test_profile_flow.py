"""The whole flow on stand-in tools: what a run directory holds, and what it holds when a stage fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cascade_profiler.engine import EngineFacts
from cascade_profiler.errors import CaptureError, OptionsError, StageFailedError
from cascade_profiler.options import ProfileOptions
from cascade_profiler.pipeline import Surroundings, profile
from cascade_profiler.testing.fake_engine import LAUNCHES_AT_START, STEP_KERNELS
from cascade_profiler.testing.fake_tools import CLOCKS
from cascade_profiler.workload import Workload
from cascade_timing.io import read_mapping, read_timeline
from cascade_timing.pipeline import time_steps


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_profile_leaves_every_document_and_says_how_long_each_stage_took(
    workload: Workload, around: Surroundings
) -> None:
    waiting = replace(around, environ={**around.environ, CLOCKS: "1"})

    run = profile(workload, ProfileOptions(run_name="my-run"), waiting)

    run_dir = around.runs_dir / "my-run"
    assert read(run_dir / "run.json") == run
    assert run["status"] == "ok"
    # Six prompt tokens: decodes reach context 8 in step 2 and 16 in step 10.
    assert (run["trace_repeat"], run["trace_steps"]) == (1, [0, 2, 10])
    assert (run["gpu"], run["trace_gpu_arch"]) == ("NVIDIA H100 80GB HBM3", "sm_90")
    assert (run["sm_clock_mhz_median"], run["mem_clock_mhz"]) == (1980, 2619)
    walls = run["stage_wall_s"]
    assert isinstance(walls, dict)
    assert list(walls) == ["baseline", "profiled", "trace", "postprocess", "align", "trace_collect"]
    assert read(run_dir / "workload.json")["prompt_tokens"] == 6
    assert Workload.from_dict(read(run_dir / "workload.json")) == workload
    assert sorted(path.name for path in run_dir.iterdir()) == [
        "baseline",
        "corrected_timeline.json",
        "kernel_mapping.json",
        "logs",
        "profiled",
        "real_timing.json",
        "run.json",
        "trace_alignment.json",
        "traced",
        "workload.json",
    ]
    assert not list(around.scratch_dir.iterdir()), "scratch is emptied"


def test_the_timeline_has_unprofiled_walls_and_profiled_kernels_and_leaves_warmups_without_kernels(
    workload: Workload, around: Surroundings
) -> None:
    profile(workload, ProfileOptions(run_name="r"), around)

    timeline = read(around.runs_dir / "r/corrected_timeline.json")
    baseline = [
        json.loads(line) for line in (around.runs_dir / "r/baseline/steps.jsonl").open(encoding="utf-8")
    ]
    assert [(s["repeat"], s["step"]) for s in timeline["steps"]] == [
        (r, s) for r in range(3) for s in range(12)
    ]
    assert [s["baseline_wall_ns"] for s in timeline["steps"]] == [
        row["end_ns"] - row["start_ns"] for row in baseline
    ]
    warmup, first, second = timeline["steps"][0], timeline["steps"][12], timeline["steps"][13]
    assert (warmup["warmup"], warmup["kernels"], warmup["gpu_busy_ns"]) == (True, [], None)
    assert [k["name"] for k in second["kernels"]] == [
        kernel.demangled if kernel.stream != 7 else kernel.name for kernel in STEP_KERNELS
    ]
    assert [k["seq"] for k in second["kernels"]] == list(range(7))
    # SIDE (6.0 us) starts 5 us before the next kernel: 1.0 us overlaps and counts once; a copy of 0.7 us
    # begins 0.1 us before the last kernel ends.
    assert sum(k["duration_ns"] for k in second["kernels"]) == 29_300
    assert second["gpu_busy_ns"] == 29_300 - 1_000 + 600
    assert second["host_ns"] == second["baseline_wall_ns"] - second["gpu_busy_ns"]
    assert first["baseline_gap_before_ns"] is None
    assert (
        second["baseline_gap_before_ns"] == second["baseline_wall_start_ns"] - first["baseline_wall_end_ns"]
    )
    assert (
        second["profiled_gap_before_ns"] == second["profiled_wall_start_ns"] - first["profiled_wall_end_ns"]
    )
    assert (first["kind"], second["kind"], first["num_scheduled_tokens"]) == ("prefill", "decode", 6)
    assert timeline["summary"]["per_kind"]["decode"]["gap_before_ns"]["n"] == 22
    steady = timeline["requests"][1]
    assert steady["arrival_ns"] + steady["pre_first_step_ns"] == steady["first_step_start_ns"]
    assert steady["last_step_end_ns"] + steady["post_last_step_ns"] == steady["last_token_ns"]
    assert "arrival_ns" not in timeline["requests"][0]


def test_leftovers_on_either_side_are_reported_and_the_mapping_counts_positions_in_the_processed_list(
    workload: Workload, around: Surroundings
) -> None:
    profile(workload, ProfileOptions(run_name="r", trace_steps=(0, 2)), around)

    run_dir = around.runs_dir / "r"
    alignment = read(run_dir / "trace_alignment.json")
    # The prefill has a fill only under Nsight and an autotuning kernel only under the tracer.
    assert alignment["summary"] == {
        "steps": 2,
        "matched": 14,
        "matched_by_full_name": 12,
        "matched_by_base_name": 2,
        "unmatched_traced": 1,
        "unmatched_measured": 1,
    }
    assert [k["name"] for k in alignment["steps"][0]["unmatched_traced"]] == ["_Z8autotunev"]
    assert [k["name"] for k in alignment["steps"][0]["unmatched_measured"]] == ["_ZN2at6native4fillIiEEvPT_i"]
    mapping = read(run_dir / "kernel_mapping.json")
    assert [row["uid"] for row in mapping] == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    assert [(row["step"], row["seq"]) for row in mapping][:3] == [(0, 0), (0, 2), (0, 3)]
    assert mapping[3]["name"] == "_Z10swiglu_actPK6__halfPS_i", "as the simulator's log will name it"
    lines = (run_dir / "traced/traces/kernelslist.g").read_text(encoding="utf-8").rstrip("\n").split("\n")
    assert len([line for line in lines if line.startswith("kernel")]) == 15
    timing = read(run_dir / "real_timing.json")
    assert [row["uid"] for row in timing] == list(range(1, 16))
    assert timing[4]["duration_ns"] is None, (
        "a row without a measurement stays, so that later rows keep their place"
    )
    # Warm-up and prefill of the traced run launch 7 each, and one more; tracing begins in repeat 1.
    assert timing[0]["kernel_id"] == LAUNCHES_AT_START + 12 * 7 + 1 + 1
    assert timing[0]["grid"] == "2x1x1"


def test_the_step_timing_model_takes_what_a_profile_leaves(workload: Workload, around: Surroundings) -> None:
    profile(workload, ProfileOptions(run_name="r", trace_steps=(0, 2)), around)
    run_dir = around.runs_dir / "r"
    timing = read(run_dir / "real_timing.json")

    # A simulator numbers launches by their position in the list and names them as the traces do.
    finished = [(position, row["kernel_name"], 4000) for position, row in enumerate(timing, start=1)]
    measured = read_timeline(run_dir / "corrected_timeline.json")
    result: Any = time_steps(measured, read_mapping(run_dir / "kernel_mapping.json"), finished, 2000)

    coverage = result.simulated["summary"]["simulation"]["coverage"]
    assert coverage["simulated_kernels"] == 14
    assert coverage["kernels"] == 2 * 12 * 7 + 2, (
        "two steady repeats of twelve steps, and a fill in each prefill"
    )
    assert result.compare["summary"]["wall_ns"]["count"] == 24
    replaced = result.simulated["steps"][12]
    # Every mapped kernel of the prefill now takes 4000 cycles at 2000 MHz, 2 us; the fill stays as measured.
    assert sorted({kernel["duration_ns"] for kernel in replaced["kernels"]}) == [1100, 2000.0]


def test_without_trace_steps_a_run_is_timing_only(workload: Workload, around: Surroundings) -> None:
    run = profile(workload, ProfileOptions(run_name="r", trace_steps=()), around)

    assert run["status"] == "ok"
    assert not (around.runs_dir / "r/traced").exists()
    assert not (around.runs_dir / "r/kernel_mapping.json").exists()
    assert (around.runs_dir / "r/corrected_timeline.json").exists()


def test_raw_traces_can_be_left_to_the_app(workload: Workload, around: Surroundings) -> None:
    profile(workload, ProfileOptions(run_name="r", trace_steps=(2,), postprocess=False), around)

    traces = around.runs_dir / "r/traced/traces"
    assert not (traces / "kernelslist.g").exists()
    assert len(list(traces.glob("*.trace.xz"))) == 7
    assert [row["uid"] for row in read(around.runs_dir / "r/kernel_mapping.json")] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("failing", "stage", "words", "kept"),
    [
        ("baseline", "baseline", "does not load", "logs/baseline.log"),
        ("nsys", "profiled", "no kernels", "baseline/steps.jsonl"),
        ("export", "profiled", "Failed to open the report", "logs/nsys-export.log"),
        ("tracer", "trace", "pretended tracer died", "corrected_timeline.json"),
        ("postprocess", "postprocess", "exited with 3", "traced/trace_steps.json"),
        ("postprocess-silent", "align", "did not finish", "traced/traces/kernelslist.g"),
    ],
)
def test_a_failed_stage_leaves_diagnostics_and_a_run_json_that_names_it(
    *, workload: Workload, around: Surroundings, failing: str, stage: str, words: str, kept: str
) -> None:
    failing_around = replace(around, environ={**around.environ, "CASCADE_FAKE_FAIL": failing})

    with pytest.raises(StageFailedError, match=words):
        profile(workload, ProfileOptions(run_name="r"), failing_around)

    run_dir = around.runs_dir / "r"
    run = read(run_dir / "run.json")
    assert (run["status"], run["failed_stage"]) == ("failed", stage)
    assert words in run["error"]
    assert (run_dir / kept).exists()
    assert not list(run_dir.rglob("kernel-*")), "instruction traces of a failed run are not collected"
    assert not list(run_dir.rglob("capture.*"))
    metadata = read(next(run_dir.rglob("metadata.json")))
    assert metadata["status"] == "failed"
    assert not list(around.scratch_dir.iterdir())


def test_secrets_reach_neither_the_profiled_processes_nor_the_files(
    workload: Workload, around: Surroundings
) -> None:
    secret = "s3cr3t-value-0123456789"
    environ = {
        **around.environ,
        "AWS_SECRET_ACCESS_KEY": secret,
        "HF_TOKEN": "hf_" + secret,
        "PYTHONSTARTUP": "/nonexistent",
    }

    profile(workload, ProfileOptions(run_name="r", keep_nsys_rep=True), replace(around, environ=environ))

    run_dir = around.runs_dir / "r"
    report = read(run_dir / "profiled/capture.nsys-rep")
    assert "PYTHONSTARTUP" in report["environment"]
    assert not {"AWS_SECRET_ACCESS_KEY", "HF_TOKEN"} & set(report["environment"])
    for path in run_dir.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


def test_an_error_that_quotes_a_log_loses_its_secrets(workload: Workload, around: Surroundings) -> None:
    secret = "s3cr3t-value-0123456789"
    failing = {"CASCADE_FAKE_FAIL": "tracer", "CASCADE_FAKE_SAYS": secret, "HF_TOKEN": secret}

    with pytest.raises(StageFailedError, match="removed by cascade-profiler") as failure:
        profile(
            workload, ProfileOptions(run_name="r"), replace(around, environ={**around.environ, **failing})
        )

    assert secret not in str(failure.value)
    assert all(
        secret.encode() not in path.read_bytes() for path in around.runs_dir.rglob("*") if path.is_file()
    )


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"compute_capability": [9]}'])
def test_damaged_engine_facts_are_a_driver_that_was_cut_off(text: str) -> None:
    with pytest.raises(CaptureError, match="cut off"):
        EngineFacts.from_json(text)


def test_the_capture_is_deleted_unless_it_is_kept_on_purpose(
    workload: Workload, around: Surroundings
) -> None:
    profile(workload, ProfileOptions(run_name="dropped", trace_steps=()), around)
    profile(workload, ProfileOptions(run_name="kept", trace_steps=(), keep_nsys_rep=True), around)

    assert not list((around.runs_dir / "dropped").rglob("capture.*"))
    names = sorted(path.name for path in (around.runs_dir / "kept").rglob("capture.*"))
    assert names == ["capture.nsys-rep", "capture.sqlite"]


def test_a_step_that_the_baseline_never_ran_is_refused_before_tracing(
    workload: Workload, around: Surroundings
) -> None:
    with pytest.raises(StageFailedError, match="no step 99"):
        profile(workload, ProfileOptions(run_name="r", trace_steps=(99,)), around)


def test_an_existing_run_is_not_overwritten(workload: Workload, around: Surroundings) -> None:
    (around.runs_dir / "r").mkdir(parents=True)

    with pytest.raises(StageFailedError, match="choose another run name"):
        profile(workload, ProfileOptions(run_name="r"), around)


def test_options_are_checked_before_anything_starts(workload: Workload, around: Surroundings) -> None:
    with pytest.raises(OptionsError, match="trace_repeat is 0"):
        profile(workload, ProfileOptions(trace_repeat=0), around)

    assert not around.runs_dir.exists()


def test_a_missing_tool_is_named(workload: Workload, around: Surroundings) -> None:
    tools = replace(around.tools, nsys="no-such-nsys")

    with pytest.raises(StageFailedError, match="cannot start 'no-such-nsys'"):
        profile(workload, ProfileOptions(run_name="r"), replace(around, tools=tools))


def test_clocks_are_null_on_a_machine_without_nvidia_smi(workload: Workload, around: Surroundings) -> None:
    tools = replace(around.tools, nvidia_smi="no-such-nvidia-smi")

    run = profile(workload, ProfileOptions(run_name="r", trace_steps=()), replace(around, tools=tools))

    assert (run["sm_clock_mhz_median"], run["mem_clock_mhz"]) == (None, None)


def test_several_prompts_are_one_batch_with_a_request_row_each(around: Surroundings) -> None:
    workload = Workload("m", ["Hello", "Hello, my name is"], max_tokens=4, repeats=2)

    profile(workload, ProfileOptions(run_name="r", trace_steps=()), around)

    timeline = read(around.runs_dir / "r/corrected_timeline.json")
    assert {step["num_reqs"] for step in timeline["steps"]} == {2}
    assert [(r["repeat"], r["prompt_index"]) for r in timeline["requests"]] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
