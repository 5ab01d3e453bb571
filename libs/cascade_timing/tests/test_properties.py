"""Properties of the replay over random timelines: nothing lost, nothing invented."""

import json

import pytest
from cascade_timing import compare, simulate
from cascade_timing.fields import JsonObject
from cascade_timing.testing import (
    at,
    durations_document,
    kernel_row,
    number_at,
    request_row,
    rows_at,
    step_row,
    timeline_document,
)
from hypothesis import given, settings
from hypothesis import strategies as st

RELAXED = settings(max_examples=40, deadline=None)
nanoseconds = st.integers(0, 10_000)


@st.composite
def timelines(draw: st.DrawFn) -> JsonObject:
    """A consistent measurement: disjoint kernels, timestamps that add up, gaps between steps."""
    steps: list[JsonObject] = []
    requests: list[JsonObject] = [request_row(0, warmup=True, ttft_ms=1)]
    for repeat in range(1, 1 + draw(st.integers(1, 2))):
        arrival = now = repeat * 10**9
        pre = draw(nanoseconds)
        now += pre
        for step in range(draw(st.integers(1, 4))):
            gap = draw(nanoseconds) if step else None
            now += gap or 0
            kernels, offset = [], 0
            for seq in range(draw(st.integers(0, 5))):
                offset += draw(nanoseconds)
                duration = draw(nanoseconds)
                kernels.append(kernel_row(seq, duration, offset))
                offset += duration
            busy = sum(number_at(k, "duration_ns") for k in kernels) + draw(nanoseconds)
            wall = int(busy) + draw(nanoseconds)
            kind = "decode" if step else "prefill"
            row = step_row(
                step,
                repeat=repeat,
                kind=kind,
                wall_ns=wall,
                busy_ns=busy,
                kernels=kernels,
                start_ns=now,
                gap_ns=gap,
                profiled_wall_ns=offset + draw(nanoseconds),
            )
            steps.append(row)
            now += wall
        post = draw(st.integers(-100, 100))
        requests.append(
            request_row(
                repeat, arrival_ns=arrival, pre_first_step_ns=pre, post_last_step_ns=post, queued_ms=0
            )
        )
    return timeline_document(steps, requests)


def kernel_keys(document: object) -> list[tuple[int, int, int]]:
    return [
        (int(number_at(step, "repeat")), int(number_at(step, "step")), int(number_at(kernel, "seq")))
        for step in rows_at(document, "steps")
        for kernel in rows_at(step, "kernels")
    ]


def draw_durations(draw: st.DataObject, timeline: JsonObject) -> JsonObject:
    keys = kernel_keys(timeline)
    chosen = draw.draw(st.lists(st.sampled_from(keys), unique=True)) if keys else []
    return durations_document(*[(*key, draw.draw(st.integers(0, 30_000))) for key in chosen])


def scaled(durations: JsonObject, factor: int) -> JsonObject:
    rows = rows_at(durations, "durations")
    return {"durations": [{**row, "duration_ns": number_at(row, "duration_ns") * factor} for row in rows]}


@RELAXED
@given(timeline=timelines(), draw=st.data())
def test_no_kernel_step_or_request_is_lost_or_renamed(timeline: JsonObject, draw: st.DataObject) -> None:
    result = simulate(timeline, draw_durations(draw, timeline))
    assert kernel_keys(result) == kernel_keys(timeline)
    for before, after in zip(rows_at(timeline, "steps"), rows_at(result, "steps"), strict=True):
        assert after.keys() == before.keys()
    repeats = [row["repeat"] for row in rows_at(timeline, "requests")]
    assert [row["repeat"] for row in rows_at(result, "requests")] == repeats


@RELAXED
@given(timeline=timelines(), draw=st.data())
def test_host_time_gaps_and_unexplained_activity_are_preserved(
    timeline: JsonObject, draw: st.DataObject
) -> None:
    result = simulate(timeline, draw_durations(draw, timeline))
    previous_end: dict[object, float] = {}
    for before, after in zip(rows_at(timeline, "steps"), rows_at(result, "steps"), strict=True):
        assert after["host_ns"] == before["host_ns"]
        unexplained = [
            number_at(step, "gpu_busy_ns")
            - sum(number_at(k, "duration_ns") for k in rows_at(step, "kernels"))
            for step in (before, after)
        ]
        assert unexplained[1] == pytest.approx(unexplained[0], abs=1e-6)
        wall_change = number_at(after, "baseline_wall_ns") - number_at(before, "baseline_wall_ns")
        busy_change = number_at(after, "gpu_busy_ns") - number_at(before, "gpu_busy_ns")
        assert wall_change == pytest.approx(busy_change, abs=1e-6)
        start, end = number_at(after, "baseline_wall_start_ns"), number_at(after, "baseline_wall_end_ns")
        assert end - start == pytest.approx(number_at(after, "baseline_wall_ns"), abs=1e-6)
        gap = before["baseline_gap_before_ns"]
        if isinstance(gap, int):
            assert start - previous_end[after["repeat"]] == pytest.approx(gap, abs=1e-6)
        previous_end[after["repeat"]] = end


@RELAXED
@given(timeline=timelines())
def test_replaying_the_measured_durations_gives_the_measured_timeline(timeline: JsonObject) -> None:
    same = durations_document(
        *[
            (*key, number_at(kernel, "duration_ns"))
            for key, kernel in zip(
                kernel_keys(timeline),
                [kernel for step in rows_at(timeline, "steps") for kernel in rows_at(step, "kernels")],
                strict=True,
            )
        ]
    )
    result = simulate(timeline, same)
    for before, after in zip(rows_at(timeline, "steps"), rows_at(result, "steps"), strict=True):
        for name in ("baseline_wall_ns", "gpu_busy_ns", "baseline_wall_start_ns", "baseline_wall_end_ns"):
            assert after[name] == before[name]
    for field in ("wall_ns", "gpu_busy_ns"):
        assert at(compare(result, timeline), "summary", field, "mean_abs_error") == 0


@RELAXED
@given(timeline=timelines(), draw=st.data())
def test_slower_kernels_never_make_a_step_or_a_request_faster(
    timeline: JsonObject, draw: st.DataObject
) -> None:
    durations = draw_durations(draw, timeline)
    fast, slow = simulate(timeline, durations), simulate(timeline, scaled(durations, 2))
    for quick, late in zip(rows_at(fast, "steps"), rows_at(slow, "steps"), strict=True):
        for name in ("baseline_wall_ns", "gpu_busy_ns", "baseline_wall_start_ns", "baseline_wall_end_ns"):
            assert number_at(late, name) >= number_at(quick, name)
    for quick, late in zip(rows_at(fast, "requests")[1:], rows_at(slow, "requests")[1:], strict=True):
        assert number_at(late, "ttft_ms") >= number_at(quick, "ttft_ms") - 1e-9
        assert number_at(late, "e2e_ms") >= number_at(quick, "e2e_ms") - 1e-9


@RELAXED
@given(timeline=timelines(), draw=st.data())
def test_latencies_add_up_and_the_result_is_strict_json(timeline: JsonObject, draw: st.DataObject) -> None:
    result = simulate(timeline, draw_durations(draw, timeline))
    for request in rows_at(result, "requests")[1:]:
        steps = [step for step in rows_at(result, "steps") if step["repeat"] == request["repeat"]]
        intervals = (len(steps) - 1) * (number_at(request, "itl_ms_mean") if len(steps) > 1 else 0)
        post_ms = number_at(request, "post_last_step_ns") / 1e6
        total = number_at(request, "ttft_ms") + intervals + post_ms
        assert number_at(request, "e2e_ms") == pytest.approx(total, abs=1e-9)
        assert request["last_token_ns"] == steps[-1]["baseline_wall_end_ns"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert simulate(timeline) == simulate(json.loads(json.dumps(timeline)))
