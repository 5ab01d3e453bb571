"""The published figures, and the unpublished ones computed by an independent implementation of the same rules."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from cascade_core.scenarios.request import ScenarioRequest, SchedulerBody
from cascade_requestsim.estimate import estimate_request, timing_row
from cascade_requestsim.groups import Group, group_step
from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.roofline import BatchSums
from cascade_requestsim.scenario import resolve_settings, run_scenario

Profiles = Callable[[str], PerfProfile]
Documents = Callable[[str], dict[str, dict[str, object]]]

close = pytest.approx


@pytest.mark.parametrize(
    ("config", "prompt", "output", "ttft", "itl", "e2e"),
    [
        ("SM90_H100", 6, 32, 8.946, 8.125, 260.593),
        ("SM90_H100", 128, 128, 8.946, 8.125, 1040.662),
        ("SM90_H100", 1024, 256, 8.956, 8.125, 2080.732),
        ("SM90_H100", 1800, 200, 9.228, 8.125, 1625.977),
        ("SM80_A100", 6, 32, 8.190, 7.139, 229.340),
        ("SM80_A100", 128, 128, 8.190, 7.139, 914.664),
        ("SM80_A100", 1024, 256, 8.398, 7.139, 1828.637),
        ("SM80_A100", 1800, 200, 9.371, 7.139, 1429.838),
    ],
)
def test_single_request_estimates_round_to_the_published_figures(
    sample_profile: Profiles, *, config: str, prompt: int, output: int, ttft: float, itl: float, e2e: float
) -> None:
    estimate = estimate_request(sample_profile(config), prompt, output)
    assert estimate.ttft_ms is not None
    assert estimate.itl_ms_mean is not None
    assert (round(estimate.ttft_ms, 3), round(estimate.itl_ms_mean, 3), round(estimate.e2e_ms, 3)) == (
        ttft,
        itl,
        e2e,
    )


@pytest.mark.parametrize(
    ("count", "ttft", "itl", "e2e", "throughput"),
    [
        (1, 8.946, 8.125, 1040.662, 123.00),
        (8, 9.799, 8.125, 1041.514, 983.18),
        (64, 33.824, 8.549, 1122.326, 7194.53),
    ],
)
def test_concurrent_requests_round_to_the_published_figures(
    h100: PerfProfile, *, count: int, ttft: float, itl: float, e2e: float, throughput: float
) -> None:
    request = ScenarioRequest(trace_id="t", num_requests=count, prompt_tokens=512, output_tokens=128)
    aggregate = run_scenario(h100, request).aggregate
    rounded = {name: round(value, 3) for name, value in aggregate.items() if isinstance(value, float)}
    assert (rounded["p50_ttft_ms"], rounded["p50_itl_ms"], rounded["p50_e2e_ms"]) == (ttft, itl, e2e)
    assert round(rounded["throughput_output_tokens_s"], 2) == throughput


def test_eight_requests_take_128_extrapolated_steps(h100: PerfProfile) -> None:
    request = ScenarioRequest(trace_id="t", num_requests=8, prompt_tokens=512, output_tokens=128)
    response = run_scenario(h100, request)
    assert response.provenance_counts == {
        "measured": 0,
        "interpolated": 0,
        "extrapolated:roofline": 128,
        "assumed-host": 128,
    }
    assert response.aggregate["p99_ttft_ms"] == close(9.799, abs=5e-4)
    assert response.aggregate["p99_e2e_ms"] == close(1041.514, abs=5e-4)


def test_the_published_stress_preempts_as_published(h100: PerfProfile) -> None:
    request = ScenarioRequest(
        trace_id="t",
        num_requests=3,
        prompt_tokens=8,
        output_tokens=8,
        scheduler=SchedulerBody(block_size=4, num_kv_blocks=4),
    )
    response = run_scenario(h100, request)
    assert response.steps_total == 23
    assert [row["emitted_tokens"] for row in response.requests] == [8, 8, 8]
    assert [row["preemptions"] for row in response.requests] == [0, 3, 2]


def test_the_h100_profile_has_the_published_medians(h100: PerfProfile) -> None:
    assert (h100.host_prefill_ns, h100.host_decode_ns) == close((7843303, 7271840), rel=1e-6)
    assert (h100.gap_prefill_ns, h100.gap_decode_ns) == (0, 35911)
    assert (h100.pre_ns, h100.post_ns) == (279947, -219215)
    assert h100.prefill.floors == close(
        (240678.788, 91703.030, 49872.727, 26263.636, 14506.566, 388870.202), rel=1e-6
    )
    for point in h100.decode:
        assert point.floors == close(
            (240678.788, 83915.152, 48618.182, 26263.636, 14506.566, 392198.990), rel=1e-6
        )
    residuals = (h100.prefill.residual, h100.decode[0].residual, h100.decode[-1].residual)
    assert residuals == close((10760, 10797, 11539), rel=1e-6)
    assert h100.calibration_range == ((6, 6), (7, 37))


def test_prefill_steps_cost_the_published_walls(h100: PerfProfile) -> None:
    eight = BatchSums(query_tokens=8 * 512, context_tokens=8 * 512, query_context=8 * 512 * 512, sampling=8)
    assert h100.prefill_model.wall(eight) == close(9518609.680, rel=1e-6)
    assert h100.prefill_model.busy(eight) == close(1675306.680, rel=1e-6)
    chunk = BatchSums(query_tokens=300, context_tokens=300, query_context=300 * 300, sampling=0)
    assert h100.prefill_model.wall(chunk) == close(8625187.747, rel=1e-6)


def test_only_the_lm_head_is_anchored_below_its_roofline(h100: PerfProfile) -> None:
    anchor = h100.decode_model(37).anchor
    assert [round(factor, 2) for factor in anchor] == [1, 1, 1, 0.91, 1, 1]


@pytest.mark.parametrize(
    ("config", "prompt", "output", "ttft", "mean", "p50", "e2e"),
    [
        ("SM90_H100", 64, 0, None, None, None, 8.726689949),
        ("SM90_H100", 64, 1, 8.945904949, None, None, 8.726689949),
        ("SM90_H100", 6, 5, 8.945904949, 8.124709563, 8.124717313, 41.225528202),
        ("SM90_H100", 1500, 3, 9.101386728, 8.125471313, 8.125471313, 25.133114354),
        ("SM90_H200", 6, 32, 8.946361515, 8.125362212, None, 260.613375091),
    ],
)
def test_unpublished_estimates_agree(
    sample_profile: Profiles,
    *,
    config: str,
    prompt: int,
    output: int,
    ttft: float | None,
    mean: float | None,
    p50: float | None,
    e2e: float,
) -> None:
    estimate = estimate_request(sample_profile(config), prompt, output)
    assert estimate.ttft_ms == (None if ttft is None else close(ttft, rel=1e-6))
    assert estimate.itl_ms_mean == (None if mean is None else close(mean, rel=1e-6))
    assert estimate.e2e_ms == close(e2e, rel=1e-6)
    if p50 is not None:
        assert estimate.itl_ms_p50 == close(p50, rel=1e-6)


def test_timing_of_one_token_has_no_interval(h100: PerfProfile) -> None:
    one, two = (timing_row(estimate_request(h100, 64, output)) for output in (1, 2))
    assert one["itl"] is None
    assert one["itl_ms_mean"] is None
    assert two["itl"] == {"mean_ms": two["itl_ms_mean"], "p50_ms": two["itl_ms_p50"]}
    assert two["provenance_counts"] == {
        "measured": 0,
        "interpolated": 0,
        "extrapolated:roofline": 2,
        "assumed-host": 2,
    }
    assert json.loads(json.dumps(two, allow_nan=False)) == two


def test_kv_capacity_is_as_published(sample_profile: Profiles) -> None:
    def blocks(config: str, utilization: float | None = None) -> int:
        body = SchedulerBody(gpu_memory_utilization=utilization)
        return resolve_settings(sample_profile(config), body)[0].num_kv_blocks

    assert blocks("SM90_H100") == 106_267
    assert blocks("SM90_H100", 0.9) == 119_830
    assert blocks("SM90_H200") == 189_004


def test_an_h100_step_splits_into_the_published_group_counts(
    sample_documents: Callable[[str], dict[str, dict[str, list[dict[str, list[dict[str, str]]]]]]],
) -> None:
    steps = sample_documents("SM90_H100")["timeline"]["steps"]
    kernels = [step["kernels"] for step in steps if step["kernels"]][1]
    groups = group_step([kernel["name"] for kernel in kernels], [kernel["grid"] for kernel in kernels])
    assert [groups.count(group) for group in Group] == [48, 13, 12, 1, 1, 103]


@pytest.mark.parametrize(
    "name",
    [
        "g1_steady_arrivals",
        "g2_chunked_long_prompts",
        "g3_memory_pressure",
        "g4_unchunked_budget",
        "g5_idle_gaps_edge_outputs",
    ],
)
def test_golden_scenarios_agree(h100: PerfProfile, samples: Path, name: str) -> None:
    request = ScenarioRequest.model_validate_json((samples / "golden" / f"{name}.request.json").read_bytes())
    expected = json.loads((samples / "golden" / f"{name}.response.json").read_bytes())
    actual = json.loads(run_scenario(h100, request).model_dump_json())
    assert set(actual) - set(expected) == {"run_id", "sim_id", "cached", "steps_sampling", "assumptions"}
    _assert_same(actual, expected, name)


def _assert_same(actual: object, expected: object, where: str) -> None:
    """Equal, floats within 1e-6 relative; `actual` may have more keys at the top."""
    if isinstance(expected, dict):
        assert isinstance(actual, dict)
        for key, value in expected.items():
            _assert_same(actual[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert isinstance(actual, list)
        assert len(actual) == len(expected), where
        for index, (one, other) in enumerate(zip(actual, expected, strict=True)):
            _assert_same(one, other, f"{where}[{index}]")
    elif isinstance(expected, float) and isinstance(actual, float | int):
        assert math.isclose(actual, expected, rel_tol=1e-6, abs_tol=1e-9), where
    else:
        assert actual == expected, where
