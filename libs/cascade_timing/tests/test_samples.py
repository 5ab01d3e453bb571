"""The published figures and the computed ones of the step-timing page, from the bundled samples.

The samples are reconstructed from published statistics, they are not raw captures; so this shows that the model
reproduces the published tables, not that it is right about a GPU.
"""

import pytest
from cascade_timing import compare, durations_from_kernels, parse_timeline, simulate, time_steps
from cascade_timing.errors import UnknownKernelError
from cascade_timing.fields import JsonObject
from cascade_timing.matching import KernelDuration
from cascade_timing.testing import Sample, at, number_at, rows_at

REL = 1e-9
"""Tolerance of whole documents: both sides are double arithmetic in slightly different order."""
COMPUTED_REL = 1e-6
"""Tolerance that the page states for its computed values."""


def assert_same_json(actual: object, expected: object, where: str = "") -> None:
    if isinstance(expected, dict):
        assert isinstance(actual, dict), where
        assert actual.keys() == expected.keys(), where
        for name in expected:
            assert_same_json(actual[name], expected[name], f"{where}.{name}")
    elif isinstance(expected, list):
        assert isinstance(actual, list), where
        assert len(actual) == len(expected), where
        for index, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
            assert_same_json(mine, theirs, f"{where}[{index}]")
    elif isinstance(expected, float) or (isinstance(expected, int) and not isinstance(expected, bool)):
        assert isinstance(actual, int | float), where
        # Errors are differences of large numbers: 1e-9 of 250 ms is the absolute floor.
        assert actual == pytest.approx(expected, rel=REL, abs=2.5e-7), where
    else:
        assert actual == expected, where


def replay_h100(h100: Sample, rows: tuple[KernelDuration, ...]) -> tuple[JsonObject, JsonObject]:
    measured = h100.timeline
    simulated = simulate(measured, rows)
    return simulated, compare(parse_timeline(simulated), measured)


def test_the_replay_reproduces_the_sample_timeline_and_comparison(sample: Sample) -> None:
    measured = sample.timeline
    simulated = simulate(measured, sample.durations)
    assert_same_json(simulated, sample.expected("simulated_timeline.json.gz"))
    assert_same_json(compare(parse_timeline(simulated), measured), sample.expected("compare.json.gz"))


def test_full_durations_give_the_published_h100_figures(h100: Sample) -> None:
    simulated, compared = replay_h100(h100, h100.durations)
    coverage = at(simulated, "summary", "simulation", "coverage")
    assert at(coverage, "kernels") == 17_088
    assert at(coverage, "simulated_kernels") == 17_088
    assert at(coverage, "kernel_fraction") == 1
    assert round(100 * number_at(coverage, "gpu_time_fraction"), 2) == 98.13
    per_kind = at(simulated, "summary", "per_kind")
    assert at(per_kind, "decode", "steps") == 93
    assert at(per_kind, "prefill", "steps") == 3
    assert round(number_at(per_kind, "decode", "gpu_busy_ns_mean") / 1e3, 3) == 816.980
    assert round(number_at(per_kind, "prefill", "gpu_busy_ns_mean") / 1e3, 3) == 822.679
    wall, busy = at(compared, "summary", "wall_ns"), at(compared, "summary", "gpu_busy_ns")
    assert round(number_at(wall, "mean_abs_error") / 1e3, 3) == 240.307
    assert round(number_at(wall, "mean_abs_error_pct"), 3) == 3.040
    assert round(number_at(busy, "mean_abs_error") / 1e3, 3) == 240.307
    assert round(number_at(busy, "mean_abs_error_pct"), 3) == 41.676


PUBLISHED_H100_REQUESTS = [
    {"repeat": 1, "ttft_ms": 8.987, "itl_ms_mean": 8.141, "e2e_ms": 261.133918, "e2e_error_ms": 7.698534},
    {"repeat": 2, "ttft_ms": 8.710, "itl_ms_mean": 8.187, "e2e_ms": 262.302298, "e2e_error_ms": 7.688938},
    {"repeat": 3, "ttft_ms": 9.302, "itl_ms_mean": 8.191, "e2e_ms": 262.987898, "e2e_error_ms": 7.680107},
]


def test_full_durations_give_the_published_h100_request_figures(h100: Sample) -> None:
    simulated, compared = replay_h100(h100, h100.durations)
    requests = [row for row in rows_at(simulated, "requests") if not row["warmup"]]
    found = [
        {
            "repeat": request["repeat"],
            "ttft_ms": round(number_at(request, "ttft_ms"), 3),
            "itl_ms_mean": round(number_at(request, "itl_ms_mean"), 3),
            "e2e_ms": round(number_at(request, "e2e_ms"), 6),
            "e2e_error_ms": round(number_at(row, "e2e_ms", "error"), 6),
        }
        for request, row in zip(requests, rows_at(compared, "requests"), strict=True)
    ]
    assert found == PUBLISHED_H100_REQUESTS


def test_a_median_that_was_not_measured_has_no_error(h100: Sample) -> None:
    _, compared = replay_h100(h100, h100.durations)
    cell = at(compared, "requests", 0, "itl_ms_p50")
    assert at(cell, "real") is None
    assert number_at(cell, "simulated") > 8
    assert at(cell, "error") is None
    assert at(cell, "error_pct") is None


def test_full_durations_give_the_published_h200_and_a100_figures(sample: Sample) -> None:
    measured = sample.timeline
    simulated = simulate(measured, sample.durations)
    compared = compare(parse_timeline(simulated), measured)
    requests = [row for row in rows_at(simulated, "requests") if not row["warmup"]]
    e2e = [round(number_at(row, "e2e_ms"), 6) for row in requests]
    per_kind = at(simulated, "summary", "per_kind")
    busy_us = [
        round(number_at(per_kind, kind, "gpu_busy_ns_mean") / 1e3, 3) for kind in ("decode", "prefill")
    ]
    errors = [
        round(number_at(compared, "summary", field, "mean_abs_error_pct"), 3)
        for field in ("wall_ns", "gpu_busy_ns")
    ]
    match sample.result_dir.name:
        case "opt125m-h200":
            assert e2e == [261.154211, 262.322591, 263.008191]
            assert busy_us == [817.620, 823.136]
        case "opt125m-a100-e2e":
            assert e2e == [229.943469, 229.440732, 229.355994]
            assert errors == [3.394, 24.141]
            coverage = at(simulated, "summary", "simulation", "coverage")
            assert number_at(coverage, "simulated_kernels") == number_at(coverage, "kernels") == 14_724
            assert round(100 * number_at(coverage, "gpu_time_fraction"), 4) == 98.2570
        case _:
            assert errors == [3.040, 41.676]


def test_full_durations_give_the_computed_h100_percentiles(h100: Sample) -> None:
    simulated, compared = replay_h100(h100, h100.durations)
    wall = at(compared, "summary", "wall_ns")
    assert number_at(wall, "p50_abs_error") == pytest.approx(241325.313, rel=COMPUTED_REL)
    assert number_at(wall, "p95_abs_error") == pytest.approx(242587.313, rel=COMPUTED_REL)
    assert number_at(wall, "p95_abs_error_pct") == pytest.approx(3.147422493, rel=COMPUTED_REL)
    gaps = at(simulated, "summary", "per_kind", "decode", "gap_before_ns")
    assert number_at(gaps, "p95") == pytest.approx(42116.8, rel=COMPUTED_REL)


def test_only_the_712_mapped_kernels_give_the_computed_figures(h100: Sample) -> None:
    mapped = {row.kernel for row in h100.mapping}
    rows = tuple(row for row in h100.durations if row.kernel in mapped)
    assert len(rows) == 712
    simulated, compared = replay_h100(h100, rows)
    coverage = at(simulated, "summary", "simulation", "coverage")
    assert at(coverage, "simulated_kernels") == 712
    assert number_at(coverage, "gpu_time_fraction") == pytest.approx(0.041489275639, rel=COMPUTED_REL)
    wall = at(compared, "summary", "wall_ns")
    assert number_at(wall, "mean_abs_error") == pytest.approx(9717.290509, rel=COMPUTED_REL)
    assert at(wall, "p95_abs_error") == 0
    request = rows_at(simulated, "requests")[1]
    assert number_at(request, "ttft_ms") == pytest.approx(8.986962949, rel=COMPUTED_REL)
    assert number_at(request, "e2e_ms") == pytest.approx(254.367597889, rel=COMPUTED_REL)


def test_no_durations_give_the_computed_request_figures(h100: Sample) -> None:
    simulated, _ = replay_h100(h100, ())
    request = rows_at(simulated, "requests")[1]
    assert number_at(request, "ttft_ms") == pytest.approx(8.779432, rel=COMPUTED_REL)
    assert number_at(request, "itl_ms_mean") == pytest.approx(7.899316613, rel=COMPUTED_REL)
    assert number_at(request, "e2e_ms") == pytest.approx(253.434738, rel=COMPUTED_REL)


def test_a_log_with_every_mapped_kernel_gives_what_the_mapped_durations_give(h100: Sample) -> None:
    mapping, measured = h100.mapping, h100.timeline
    by_kernel = {row.kernel: row for row in h100.durations}
    # A log of all 712 traced kernels: the sample's own cycles, which are durations at 1980 MHz.
    log = [(row.uid, row.name, round(by_kernel[row.kernel].duration_ns * 1.98)) for row in mapping]
    timing = time_steps(measured, mapping, log, 1980.0)
    expected, expected_compare = replay_h100(h100, tuple(by_kernel[row.kernel] for row in mapping))
    assert_same_json(timing.simulated, expected)
    assert_same_json(timing.compare, expected_compare)


def test_the_representatives_cycles_are_the_exact_durations(sample: Sample) -> None:
    log = sample.representatives
    simulated_uids = {uid for uid, _, _ in log}
    mapping = [row for row in sample.mapping if row.uid in simulated_uids]
    by_kernel = {row.kernel: row.duration_ns for row in sample.durations}
    clock_mhz = 1410 if sample.result_dir.name == "opt125m-a100-e2e" else 1980
    for row in durations_from_kernels(mapping, log, clock_mhz):
        assert row.duration_ns == pytest.approx(by_kernel[row.kernel], rel=REL)


def test_a_log_of_only_the_representatives_lacks_mapped_kernels(h100: Sample) -> None:
    with pytest.raises(UnknownKernelError, match="no finished kernel with that uid; it has 31 finished"):
        durations_from_kernels(h100.mapping, h100.representatives, 1980)


def test_the_reconstructed_label_travels_with_the_result(sample: Sample) -> None:
    label = at(simulate(sample.timeline), "meta", "fixture_provenance")
    assert isinstance(label, str)
    assert label.startswith("Reconstructed from published statistics")
