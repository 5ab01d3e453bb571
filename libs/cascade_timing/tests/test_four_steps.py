"""The four-step example of the seed's `GET /api/runs/{run_id}/step-timelines`, number for number.

The page shows every wall, gap, request and summary of it, and enough of the kernels to rebuild them: five kernels of
the prefill (20,128 ns measured) and one of the first decode step (4,768 ns) are replaced by the six kernels of the demo
log (76,713 cycles) at 1132 MHz. Tolerance 1e-9.
"""

import pytest
from cascade_timing import compare, durations_from_kernels, simulate
from cascade_timing.fields import JsonObject
from cascade_timing.testing import at, kernel_row, number_at, request_row, step_row, timeline_document

REL = 1e-9

# (uid, name, cycles): the page gives the first three, the sum of the first five and the last.
LOG = [
    (1, "_Z11init_kernelIdEvPT_S1_S1_S0_S0_S0_", 6174),
    (2, "_Z11copy_kernelIdEvPKT_PS0_", 5923),
    (3, "_Z10mul_kernelIdEvPT_PKS0_", 6216),
    (4, "_Z10add_kernelIdEvPKT_S2_PS0_", 6300),
    (5, "_Z12triad_kernelIdEvPT_PKS0_S3_", 6391),
    (6, "_Z10dot_kernelIdEvPKT_S2_PS0_i", 45709),
]


def mapping() -> list[JsonObject]:
    return [
        {"uid": uid, "name": name, "repeat": 0, "step": 0 if uid <= 5 else 1, "seq": uid}
        for uid, name, _ in LOG
    ]


def four_steps() -> JsonObject:
    prefill = [
        kernel_row(seq, duration_ns, 10_000 * seq)
        for seq, duration_ns in [(1, 2016), (2, 4000), (3, 4000), (4, 5000), (5, 5112)]
    ]
    return timeline_document(
        [
            step_row(-1, repeat=-1, warmup=True, kind="prefill", wall_ns=9_000_000, start_ns=100_000_000),
            step_row(
                0,
                kind="prefill",
                wall_ns=6_500_000,
                busy_ns=536_835,
                start_ns=1_000_200_000,
                kernels=prefill,
            ),
            step_row(
                1,
                wall_ns=4_790_000,
                busy_ns=564_801,
                start_ns=1_007_500_000,
                gap_ns=800_000,
                kernels=[kernel_row(6, 4768, 300)],
            ),
            step_row(2, wall_ns=4_650_000, busy_ns=563_393, start_ns=1_013_290_000, gap_ns=1_000_000),
            step_row(3, wall_ns=4_900_000, busy_ns=563_394, start_ns=1_019_140_000, gap_ns=1_200_000),
        ],
        [
            request_row(-1, warmup=True, queued_ms=0, ttft_ms=9, e2e_ms=9),
            request_row(
                0,
                queued_ms=0.2,
                ttft_ms=6.7,
                itl_ms_mean=5.78,
                itl_ms_p50=5.65,
                e2e_ms=24.04,
                arrival_ns=1_000_000_000,
                pre_first_step_ns=200_000,
                post_last_step_ns=0,
            ),
        ],
    )


def replayed() -> JsonObject:
    return simulate(four_steps(), durations_from_kernels(mapping(), LOG, 1132.0))


def test_the_replaced_steps_have_the_published_times() -> None:
    result = replayed()
    prefill, decode = at(result, "steps", 1), at(result, "steps", 2)
    assert number_at(prefill, "baseline_wall_ns") == pytest.approx(6507260.692579505, rel=REL)
    assert number_at(prefill, "gpu_busy_ns") == pytest.approx(544095.6925795053, rel=REL)
    assert at(prefill, "host_ns") == 5963165
    assert at(prefill, "cuda_api_ns") is None
    assert number_at(prefill, "profiled_wall_end_ns") == pytest.approx(1006707260.6925795, rel=REL)
    assert number_at(decode, "baseline_wall_ns") == pytest.approx(4825610.975265018, rel=REL)
    assert number_at(decode, "gpu_busy_ns") == pytest.approx(600411.9752650177, rel=REL)


def test_the_request_has_the_published_latencies_and_timestamps() -> None:
    request = at(replayed(), "requests", 1)
    expected = {
        "ttft_ms": 6.707260692579508,
        "itl_ms_mean": 5.79187032508834,
        "itl_ms_p50": 5.65,
        "e2e_ms": 24.082871667844532,
        "first_step_start_ns": 1000200000,
        "last_step_end_ns": 1024082871.6678445,
        "first_token_ns": 1006707260.6925795,
        "last_token_ns": 1024082871.6678445,
    }
    for name, value in expected.items():
        assert number_at(request, name) == pytest.approx(value, rel=REL), name


def test_the_summary_has_the_published_means_and_gaps() -> None:
    summary = at(replayed(), "summary")
    decode = at(summary, "per_kind", "decode")
    assert number_at(decode, "wall_ns_mean") == pytest.approx(4791870.325088339, rel=REL)
    assert number_at(decode, "gpu_busy_ns_mean") == pytest.approx(575732.9917550059, rel=REL)
    gaps = {"n": 3, "mean": 1_000_000, "p50": 1_000_000, "p95": pytest.approx(1_180_000, rel=REL)}
    assert at(decode, "gap_before_ns") == gaps
    assert at(summary, "per_kind", "prefill", "steps") == 1
    assert "gap_before_ns" not in str(at(summary, "per_kind", "prefill"))
    simulation = at(summary, "simulation")
    assert at(simulation, "coverage", "covered_measured_gpu_ns") == 24896
    assert at(simulation, "coverage", "measured_gpu_ns") == 2228423
    assert number_at(simulation, "coverage", "gpu_time_fraction") == pytest.approx(
        0.011172026136868988, rel=REL
    )
    assert at(simulation, "request_assumption") == (
        "one request per repeat; queued (or arrival) + pre/steps/inter-step gaps/post"
    )


def test_the_comparison_has_the_published_errors() -> None:
    compared = compare(replayed(), four_steps())
    assert at(compared, "summary", "wall_ns") == {
        "count": 4,
        "mean_error": pytest.approx(10717.916961130686, rel=REL),
        "mean_abs_error": pytest.approx(10717.916961130686, rel=REL),
        "p50_abs_error": pytest.approx(3630.346289752517, rel=REL),
        "p95_abs_error": pytest.approx(31358.4328621908, rel=REL),
        "mean_error_pct": pytest.approx(0.2137867806957156, rel=REL),
        "mean_abs_error_pct": pytest.approx(0.2137867806957156, rel=REL),
        "p50_abs_error_pct": pytest.approx(0.05585148138080795, rel=REL),
        "p95_abs_error_pct": pytest.approx(0.6486829804323018, rel=REL),
    }
    busy = at(compared, "summary", "gpu_busy_ns")
    assert number_at(busy, "mean_error_pct") == pytest.approx(1.914387012110562, rel=REL)
    assert number_at(busy, "p50_abs_error_pct") == pytest.approx(0.6762499259088236, rel=REL)
    assert number_at(busy, "p95_abs_error_pct") == pytest.approx(5.562165944903556, rel=REL)
    request = at(compared, "requests", 0)
    assert number_at(request, "ttft_ms", "error_pct") == pytest.approx(0.10836854596280611, rel=1e-7)
    assert number_at(request, "itl_ms_mean", "error_pct") == pytest.approx(0.20536894616504162, rel=1e-7)
    assert number_at(request, "e2e_ms", "error_pct") == pytest.approx(0.1783347248108708, rel=1e-7)
    assert at(request, "itl_ms_p50", "error") == pytest.approx(0, abs=1e-9)
    assert at(compared, "steps", 1, "wall_ns", "error_pct") == pytest.approx(0.7434441600212466, rel=REL)
