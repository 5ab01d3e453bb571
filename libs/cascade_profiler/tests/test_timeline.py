"""Reconciliation: the shared samples come out of it as they are, and runs that do not fit are refused."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cascade_profiler.alignment import TracedStep, align_steps, alignment_json, kernel_mapping_json
from cascade_profiler.attribution import ProfiledStep
from cascade_profiler.errors import ReconcileError
from cascade_profiler.nsys_export import KernelRow
from cascade_profiler.steps import RequestMark, StepMark
from cascade_profiler.timeline import percentile, reconcile, timeline_json
from cascade_profiler.traces_folder import TracedKernel

SAMPLES = Path(__file__).parents[3] / ".." / "shared/samples"


def dim(text: str) -> tuple[int, int, int]:
    x, y, z = map(int, text.split("x"))
    return (x, y, z)


def runs(sample: dict[str, Any]) -> tuple[list[StepMark], list[ProfiledStep]]:
    """Undo a sample: its baseline's marks and its capture's steps, with calls numbered in order."""
    marks: list[StepMark] = []
    captured: list[ProfiledStep] = []
    for call, step in enumerate(sample["steps"]):
        marks.append(
            StepMark(
                call=call,
                repeat=step["repeat"],
                step=step["step"],
                kind=step["kind"],
                num_reqs=step["num_reqs"],
                num_scheduled_tokens=step["num_scheduled_tokens"],
                start_ns=step["baseline_wall_start_ns"],
                end_ns=step["baseline_wall_end_ns"],
            )
        )
        if step["profiled_wall_start_ns"] is None:
            continue
        origin = step["profiled_wall_start_ns"]
        captured.append(
            ProfiledStep(
                call=call,
                repeat=step["repeat"],
                step=step["step"],
                start_ns=origin,
                end_ns=step["profiled_wall_end_ns"],
                kernels=tuple(
                    KernelRow(
                        origin + k["start_offset_ns"],
                        origin + k["start_offset_ns"] + k["duration_ns"],
                        k["name"],
                        dim(k["grid"]),
                        dim(k["block"]),
                        7,
                        None,
                    )
                    for k in step["kernels"]
                ),
                gpu_busy_ns=step["gpu_busy_ns"],
                cuda_api_ns=step["cuda_api_ns"],
            )
        )
    return marks, captured


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the shared samples are not beside this checkout")
@pytest.mark.parametrize(("name", "matched"), [("opt125m-h100-e2e", 712), ("opt125m-a100-e2e", 624)])
def test_a_published_sample_comes_out_of_reconciliation_and_alignment_unchanged(
    name: str, matched: int
) -> None:
    sample = json.loads(gzip.decompress((SAMPLES / name / "corrected_timeline.json.gz").read_bytes()))
    mapping = json.loads((SAMPLES / name / "kernel_mapping.json").read_text(encoding="utf-8"))
    marks, captured = runs(sample)
    requests = [
        RequestMark(
            repeat=r["repeat"],
            prompt_index=0,
            arrival_ns=r["arrival_ns"],
            first_token_ns=r["first_token_ns"],
            last_token_ns=r["last_token_ns"],
            token_times_ns=(),
            num_output_tokens=r["num_output_tokens"],
        )
        for r in sample["requests"]
        if not r["warmup"]
    ]

    steps = reconcile(baseline=marks, profiled=marks, captured=captured, warmup_repeats=1)
    ours = timeline_json(meta=sample["meta"], steps=steps, requests=requests, warmup_repeats=1)

    assert ours["steps"] == sample["steps"]
    assert ours["summary"] == sample["summary"]
    # The published end-to-end times are 646 ns longer than their own time stamps (see the samples' notes).
    published = [r for r in sample["requests"] if not r["warmup"]]
    for mine, theirs in zip(ours["requests"], published, strict=True):  # type: ignore[call-overload]
        for field, value in theirs.items():
            assert mine[field] == pytest.approx(value, abs=0.001), field

    kernels = {(s["repeat"], s["step"], k["seq"]): k for s in sample["steps"] for k in s["kernels"]}
    traced: dict[tuple[int, int], list[tuple[int, TracedKernel]]] = {}
    for row in mapping:
        k = kernels[row["repeat"], row["step"], row["seq"]]
        launched = TracedKernel(
            f"kernel-{row['uid']}", row["uid"], row["name"], dim(k["grid"]), dim(k["block"])
        )
        traced.setdefault((row["repeat"], row["step"]), []).append((row["uid"], launched))
    aligned = align_steps([TracedStep(r, s, tuple(own)) for (r, s), own in traced.items()], steps)
    summary: Any = alignment_json(aligned)["summary"]
    assert (summary["matched"], summary["unmatched_traced"], summary["unmatched_measured"]) == (matched, 0, 0)
    assert kernel_mapping_json(aligned) == mapping


def mark(step: int, *, repeat: int = 1, tokens: int = 1, call: int | None = None) -> StepMark:
    start_ns = repeat * 10_000 + step * 1000
    number = repeat * 10 + step if call is None else call
    return StepMark(
        number, repeat, step, "decode" if step else "prefill", 1, tokens, start_ns, start_ns + 900
    )


def seen(step: int, *, repeat: int = 1, call: int | None = None) -> ProfiledStep:
    start_ns = 500_000 + repeat * 10_000 + step * 1000
    number = repeat * 10 + step if call is None else call
    row = KernelRow(start_ns + 10, start_ns + 60, "k", (1, 1, 1), (32, 1, 1), 7, None)
    return ProfiledStep(number, repeat, step, start_ns, start_ns + 950, (row,), 50, 20)


def test_a_call_that_scheduled_nothing_does_not_shift_the_steps_after_it() -> None:
    # The profiled run made an idle call between its steps: its second step is call 99.
    profiled = [mark(0), mark(1, call=99)]
    captured = [seen(0), seen(1, call=50), seen(1, call=99)]

    steps = reconcile(baseline=[mark(0), mark(1)], profiled=profiled, captured=captured, warmup_repeats=0)

    assert [step.profiled.call if step.profiled else None for step in steps] == [10, 99]


def test_warmups_keep_their_walls_only_even_where_the_capture_has_them() -> None:
    baseline = [mark(0, repeat=0), mark(0)]
    captured = [seen(0, repeat=0), seen(0)]

    warmup, steady = reconcile(baseline=baseline, profiled=baseline, captured=captured, warmup_repeats=1)

    assert (warmup.profiled, warmup.kernels, warmup.mark.wall_ns) == (None, (), 900)
    assert [kernel.start_offset_ns for kernel in steady.kernels] == [10]


def test_gaps_are_within_a_repeat_and_null_where_the_step_before_was_not_captured() -> None:
    baseline = [mark(0), mark(1), mark(2), mark(0, repeat=2)]
    captured = [seen(0), seen(2), seen(0, repeat=2)]

    steps = reconcile(baseline=baseline, profiled=baseline, captured=captured, warmup_repeats=0)

    assert [step.gap_before_ns for step in steps] == [None, 100, 100, None]
    assert [step.profiled_gap_before_ns for step in steps] == [None, None, None, None]
    assert steps[1].to_json()["gpu_busy_ns"] is None


def test_runs_that_scheduled_different_work_are_refused() -> None:
    with pytest.raises(ReconcileError, match=r"step 0 was a prefill of 6 tokens .* but a prefill of 7"):
        reconcile(
            baseline=[mark(0, tokens=6)], profiled=[mark(0, tokens=7)], captured=[seen(0)], warmup_repeats=0
        )


def test_a_capture_without_any_steady_step_is_refused() -> None:
    with pytest.raises(ReconcileError, match="none of the steady steps"):
        reconcile(baseline=[mark(0)], profiled=[mark(0)], captured=[], warmup_repeats=0)


def test_request_times_are_relative_to_arrival_and_signed_at_the_end() -> None:
    request = RequestMark(1, 0, 9_000, 10_800, 11_850, (10_900, 11_900), prompt_tokens=6, num_output_tokens=2)
    steps = reconcile(
        baseline=[mark(0), mark(1)],
        profiled=[mark(0), mark(1)],
        captured=[seen(0), seen(1)],
        warmup_repeats=0,
    )
    document: Any = timeline_json(meta={}, steps=steps, requests=[request], warmup_repeats=0)

    assert document["requests"] == [
        {
            "repeat": 1,
            "warmup": False,
            "queued_ms": 0.001,
            "ttft_ms": 0.0018,
            "itl_ms_mean": 0.00105,
            "itl_ms_p50": 0.001,
            "e2e_ms": 0.00285,
            "num_output_tokens": 2,
            "arrival_ns": 9_000,
            "pre_first_step_ns": 1_000,
            "post_last_step_ns": -50,
            "first_step_start_ns": 10_000,
            "last_step_end_ns": 11_900,
            "first_token_ns": 10_800,
            "last_token_ns": 11_850,
        }
    ]


def test_one_token_has_no_inter_token_latency() -> None:
    request = replace(RequestMark(1, 0, 0, 10, 10, (12,)), num_output_tokens=1)
    steps = reconcile(baseline=[mark(0)], profiled=[mark(0)], captured=[seen(0)], warmup_repeats=0)
    document: Any = timeline_json(meta={}, steps=steps, requests=[request], warmup_repeats=0)

    assert (document["requests"][0]["itl_ms_mean"], document["requests"][0]["itl_ms_p50"]) == (None, None)
    assert document["summary"]["per_kind"]["prefill"] == {
        "steps": 1,
        "wall_ns_mean": 900.0,
        "gpu_busy_ns_mean": 50.0,
    }


def test_percentiles_interpolate_linearly() -> None:
    assert percentile([0.8, 1.0, 1.2], 0.95) == pytest.approx(1.18)
    assert percentile([5.0], 0.95) == 5.0
