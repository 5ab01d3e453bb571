"""What the replay changes, what it keeps, and what it does without timestamps or gaps."""

import copy

import pytest
from cascade_timing import simulate
from cascade_timing.errors import ImpossibleReplayError
from cascade_timing.fields import JsonObject
from cascade_timing.testing import (
    at,
    durations_document,
    kernel_row,
    number_at,
    request_row,
    step_row,
    timeline_document,
)


def two_steps(*, timestamps: bool = True, gap_ns: int | None = 50) -> JsonObject:
    kernels = [kernel_row(0, 100, 10), kernel_row(1, 200, 150)]
    return timeline_document(
        [
            step_row(
                0,
                kind="prefill",
                wall_ns=1000,
                busy_ns=300,
                kernels=kernels,
                start_ns=5000 if timestamps else None,
                profiled_wall_ns=1000,
            ),
            step_row(
                1,
                wall_ns=800,
                busy_ns=300,
                kernels=kernels,
                start_ns=6050 if timestamps else None,
                gap_ns=gap_ns,
                profiled_wall_ns=800,
            ),
        ],
        [request_row(0, queued_ms=0.002)],
    )


def test_replacing_a_kernel_moves_wall_and_busy_alike_and_keeps_the_host() -> None:
    result = simulate(two_steps(), durations_document((0, 0, 1, 260)))
    step = at(result, "steps", 0)
    assert at(step, "baseline_wall_ns") == at(step, "profiled_wall_ns") == 1060
    assert at(step, "gpu_busy_ns") == 360
    assert at(step, "host_ns") == 700
    assert at(step, "kernels", 0, "duration_ns") == 100
    assert at(step, "kernels", 1, "duration_ns") == 260
    assert at(step, "kernels", 1, "grid") == "24x1x1"


def test_a_longer_step_shifts_the_later_ones_and_keeps_the_gap() -> None:
    result = simulate(two_steps(), durations_document((0, 0, 1, 260)))
    first, second = at(result, "steps", 0), at(result, "steps", 1)
    assert at(first, "baseline_wall_start_ns") == at(first, "profiled_wall_start_ns") == 5000
    assert at(first, "baseline_wall_end_ns") == 6060
    assert at(second, "baseline_wall_start_ns") == at(second, "profiled_wall_start_ns") == 6110
    assert at(second, "baseline_gap_before_ns") == at(second, "profiled_gap_before_ns") == 50


def test_a_replay_without_durations_leaves_every_measured_number_an_integer() -> None:
    step = at(simulate(two_steps()), "steps", 0)
    for name in ("baseline_wall_ns", "gpu_busy_ns", "host_ns", "baseline_wall_end_ns"):
        assert isinstance(at(step, name), int), name


def test_warm_up_and_unprofiled_steps_and_warm_up_requests_are_copied_unchanged() -> None:
    warm = step_row(-1, repeat=-1, warmup=True, wall_ns=9000, kind="prefill", start_ns=1)
    unprofiled = step_row(2, wall_ns=700, start_ns=6900, gap_ns=50)
    last = step_row(3, wall_ns=10, busy_ns=5, start_ns=7650, gap_ns=50)
    warm_request = request_row(-1, warmup=True, queued_ms=1.5, ttft_ms=3, note="kept")
    document = two_steps()
    document["steps"] = [warm, *_list(document["steps"]), unprofiled, last]
    document["requests"] = [warm_request, *_list(document["requests"])]
    result = simulate(document, durations_document((0, 0, 1, 260)))
    assert at(result, "steps", 0) == warm
    assert at(result, "steps", 3) == unprofiled
    assert at(result, "requests", 0) == warm_request
    # The unprofiled step still passes its measured time: 5000 + 1060 + 50 + 800 + 50 + 700 + 50.
    assert at(result, "steps", 4, "baseline_wall_start_ns") == 7710
    assert at(result, "summary", "per_kind", "decode", "steps") == 2
    assert [row["step"] for row in _list(at(result, "summary", "simulation", "coverage", "steps"))] == [
        0,
        1,
        3,
    ]


def test_without_timestamps_a_request_starts_from_pre_and_has_no_ns_fields() -> None:
    document = two_steps(timestamps=False)
    document["requests"] = [request_row(0, queued_ms=9, pre_first_step_ns=3000, post_last_step_ns=-100)]
    request = at(simulate(document), "requests", 0)
    assert at(request, "ttft_ms") == pytest.approx(4000 / 1e6)
    assert at(request, "e2e_ms") == pytest.approx((3000 + 1000 + 50 + 800 - 100) / 1e6)
    assert isinstance(request, dict)
    assert not [name for name in request if name.endswith("_ns")]
    assert at(simulate(document), "steps", 1, "baseline_wall_start_ns") is None


def test_without_timestamps_or_pre_a_request_starts_from_the_queueing_time() -> None:
    request = at(simulate(two_steps(timestamps=False)), "requests", 0)
    assert at(request, "ttft_ms") == pytest.approx(0.002 + 1000 / 1e6)
    assert at(request, "e2e_ms") == pytest.approx(0.002 + 1850 / 1e6)


def test_without_gaps_the_summary_says_that_walls_are_laid_end_to_end() -> None:
    simulation = at(simulate(two_steps(gap_ns=None)), "summary", "simulation")
    assert isinstance(simulation, dict)
    assert simulation["request_assumption"] == "one request per repeat; queue + prefill/decode walls"
    assert "gap_model" not in simulation
    assert "gap_fit" not in simulation
    assert at(simulate(two_steps(gap_ns=None)), "steps", 1, "baseline_wall_start_ns") == 6000


def test_with_timestamps_arrival_decides_when_a_request_began() -> None:
    document = two_steps()
    document["requests"] = [
        request_row(0, queued_ms=9, arrival_ns=4000, pre_first_step_ns=1000, post_last_step_ns=-20)
    ]
    request = at(simulate(document), "requests", 0)
    assert request == {
        "repeat": 0,
        "warmup": False,
        "queued_ms": 9,
        "ttft_ms": 2000 / 1e6,
        "itl_ms_mean": 850 / 1e6,
        "itl_ms_p50": 850 / 1e6,
        "e2e_ms": (1000 + 1850 - 20) / 1e6,
        "num_output_tokens": 4,
        "arrival_ns": 4000,
        "pre_first_step_ns": 1000,
        "post_last_step_ns": -20,
        "first_step_start_ns": 5000,
        "last_step_end_ns": 6850,
        "first_token_ns": 6000,
        "last_token_ns": 6850,
    }


def test_latencies_keep_their_precision_at_the_unix_time_of_today() -> None:
    document = two_steps()
    now_ns = 1_790_000_000_123_456_789
    for index, start in enumerate([now_ns, now_ns + 1050]):
        _list(document["steps"])[index]["baseline_wall_start_ns"] = start
    document["requests"] = [request_row(0, arrival_ns=now_ns - 3, post_last_step_ns=0)]
    request = at(simulate(document, durations_document((0, 0, 1, 200.5))), "requests", 0)
    assert number_at(request, "ttft_ms") == pytest.approx(1003.5 / 1e6, rel=1e-12)


def test_a_request_of_one_step_has_no_inter_token_latency() -> None:
    document = two_steps()
    document["steps"] = _list(document["steps"])[:1]
    request = at(simulate(document), "requests", 0)
    assert at(request, "itl_ms_mean") is None
    assert at(request, "itl_ms_p50") is None
    assert number_at(request, "e2e_ms") == pytest.approx(0.003)


def test_a_request_without_steps_has_no_latency() -> None:
    document = timeline_document([], [request_row(0, queued_ms=1, ttft_ms=5, e2e_ms=9)])
    request = at(simulate(document), "requests", 0)
    assert at(request, "ttft_ms") is None
    assert at(request, "e2e_ms") is None
    assert at(request, "queued_ms") == 1


def test_an_empty_timeline_gives_the_empty_result_that_the_api_page_shows() -> None:
    empty = {"meta": {"run_name": "empty"}, "steps": [], "requests": [], "summary": {}}
    assert simulate(empty) == {
        "meta": {"run_name": "empty"},
        "steps": [],
        "requests": [],
        "summary": {
            "simulation": {
                "host_model": "scaled-gaps",
                "host_fit": {},
                "coverage": {
                    "kernels": 0,
                    "simulated_kernels": 0,
                    "kernel_fraction": 0,
                    "gpu_time_fraction": 0,
                    "measured_gpu_ns": 0.0,
                    "covered_measured_gpu_ns": 0.0,
                    "unmodeled_gpu_ns": 0.0,
                    "steps": [],
                },
                "request_assumption": "one request per repeat; queue + prefill/decode walls",
            },
            "per_kind": {},
        },
    }


def test_coverage_separates_overlap_from_activity_that_no_kernel_explains() -> None:
    kernels = [kernel_row(0, 100, 0), kernel_row(1, 100, 60), kernel_row(2, 10, 80), kernel_row(3, 5, 500)]
    document = timeline_document([step_row(0, wall_ns=1000, busy_ns=180, kernels=kernels)])
    coverage = at(simulate(document, durations_document((0, 0, 1, 90))), "summary", "simulation", "coverage")
    assert at(coverage, "steps", 0) == {
        "repeat": 0,
        "step": 0,
        "kernels": 4,
        "simulated_kernels": 1,
        "measured_gpu_ns": 180,
        "simulated_coverage_gpu_ns": 100,
        "unmodeled_gpu_ns": 15,  # 180 busy, of which kernels explain 0..160 and 500..505
        "measured_kernel_overlap_ns": 50,
    }
    assert at(coverage, "kernel_fraction") == 0.25
    assert at(coverage, "gpu_time_fraction") == pytest.approx(100 / 180)


def test_activity_that_no_kernel_explains_stays_in_the_replayed_step() -> None:
    document = timeline_document([step_row(0, wall_ns=1000, busy_ns=150, kernels=[kernel_row(0, 100, 0)])])
    assert at(simulate(document, durations_document((0, 0, 0, 1))), "steps", 0, "gpu_busy_ns") == 51


def test_a_result_shares_nothing_with_the_measurement() -> None:
    document = two_steps()
    before = copy.deepcopy(document)
    result = simulate(document)
    _list(at(result, "steps", 0, "kernels"))[0]["duration_ns"] = -1
    assert isinstance(result["meta"], dict)
    result["meta"]["run_name"] = "changed"
    assert document == before


def test_durations_that_would_make_a_step_negative_are_refused_with_the_step_named() -> None:
    overlapping = [kernel_row(0, 100, 0), kernel_row(1, 100, 0)]
    document = timeline_document([step_row(3, repeat=2, wall_ns=1000, busy_ns=100, kernels=overlapping)])
    with pytest.raises(ImpossibleReplayError, match=r"repeat 2, step 3: .* GPU busy -98 ns"):
        simulate(document, durations_document((2, 3, 0, 1), (2, 3, 1, 1)))


def _list(value: object) -> list[JsonObject]:
    assert isinstance(value, list)
    return value
