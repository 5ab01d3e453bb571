"""From a stored question to its answer, without a log: what is asked of the model, and what goes with it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, cast

import pytest
from cascade_core.scenarios.facts import ScenarioRequested
from cascade_requestsim.answering import Base, answer, profiled_metrics
from cascade_requestsim.errors import ScenarioRefused
from cascade_requestsim.profile import PerfProfile
from pydantic import JsonValue

Documents = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def base(h100: PerfProfile, sample_documents: Callable[[str], Documents]) -> Base:
    return Base(h100, profiled_metrics(h100, sample_documents("SM90_H100")["timeline"], None))


def asked(kind: Literal["scenario", "estimate"], **body: JsonValue) -> ScenarioRequested:
    return ScenarioRequested(
        scenario_id="scn-1",
        occurred_at=datetime(2026, 11, 8, tzinfo=UTC),
        kind=kind,
        trace_id="sample",
        run_id="run-1",
        sim_id="sim-1",
        gpu_config="SM90_H100",
        body=body,
    )


def test_a_scenario_is_answered_in_the_golden_files_names(base: Base) -> None:
    found = answer(
        base, asked("scenario", trace_id="sample", num_requests=8, prompt_tokens=512, output_tokens=128)
    )
    aggregate = cast("dict[str, float]", found["aggregate"])
    assert aggregate["p50_ttft_ms"] == pytest.approx(9.798556679935693)
    assert aggregate["throughput_output_tokens_s"] == pytest.approx(983.1839081274958)
    assert (found["run_id"], found["sim_id"], found["trace_id"]) == ("run-1", "sim-1", "sample")


def test_an_estimate_of_the_profiled_shape_says_that_it_matches(base: Base) -> None:
    found = answer(base, asked("estimate", prompt_tokens=6, output_tokens=32))
    timing = cast("dict[str, Any]", found["timing"])
    assert found["profile_match"] is True
    assert found["counterfactual"] is False
    assert round(timing["ttft_ms"], 3) == 8.946
    assert round(timing["e2e_ms"], 3) == 260.593
    assert timing["provenance_counts"]["measured"] == 32


def test_an_estimate_says_whether_it_is_counterfactual_as_its_assumptions_do(
    sample_profile: Callable[[str], PerfProfile], base: Base
) -> None:
    elsewhere = Base(sample_profile("SM90_H200"), base.profiled)
    found = answer(elsewhere, asked("estimate", prompt_tokens=6, output_tokens=32))
    assumptions = cast("dict[str, Any]", found["timing"])["assumptions"]
    assert found["counterfactual"] is any("counterfactual" in said for said in assumptions) is True


def test_an_estimate_of_another_shape_does_not_match(base: Base) -> None:
    assert answer(base, asked("estimate", prompt_tokens=7, output_tokens=32))["profile_match"] is False


def test_an_estimate_without_a_length_takes_the_workloads(base: Base) -> None:
    timing = cast("dict[str, Any]", answer(base, asked("estimate", prompt_tokens=6))["timing"])
    assert timing["output_tokens"] == 32


def test_where_no_length_is_stated_anywhere_the_assumed_one_is_disclosed(base: Base) -> None:
    bare = Base(replace(base.profile, workload_max_tokens=None), base.profiled)
    timing = cast("dict[str, Any]", answer(bare, asked("estimate", prompt_tokens=6))["timing"])
    assert timing["output_tokens"] == 16
    assert timing["assumptions"][-1] == "Output length stated nowhere: assumed 16 tokens"


def test_one_output_token_has_no_interval(base: Base) -> None:
    timing = cast(
        "dict[str, Any]", answer(base, asked("estimate", prompt_tokens=6, output_tokens=1))["timing"]
    )
    assert timing["itl"] is None
    assert timing["ttft_ms"] is not None


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompt_tokens": 0},
        {"prompt_tokens": 6, "output_tokens": -1},
        {"prompt_tokens": 6, "unknown": 1},
        {"prompt_tokens": 2000, "output_tokens": 100},
    ],
)
def test_an_estimate_that_cannot_be_is_refused_in_words(base: Base, body: dict[str, JsonValue]) -> None:
    with pytest.raises(ScenarioRefused) as refusal:
        answer(base, asked("estimate", **body))
    assert refusal.value.status == 422
    assert len(str(refusal.value)) > 20


def test_a_stored_scenario_of_another_form_is_refused_not_raised(base: Base) -> None:
    with pytest.raises(ScenarioRefused, match="malformed at num_requests"):
        answer(base, asked("scenario", trace_id="t", num_requests="8", prompt_tokens=1, output_tokens=1))


def test_the_profiled_metrics_are_means_over_the_steady_requests(base: Base) -> None:
    metrics = base.profiled
    assert metrics["prompt_tokens"] == 6
    assert metrics["output_tokens"] == 32
    assert metrics["real"] is None
    simulated = cast("dict[str, float]", metrics["simulated"])
    assert round(simulated["e2e_ms"], 2) == 262.14
    assert round(simulated["ttft_ms"], 2) == 9.00
    assert "Reconstructed" in cast(str, metrics["source_note"])


def test_measured_metrics_come_from_the_comparison(h100: PerfProfile) -> None:
    def row(real: float | None) -> JsonValue:
        return {"ttft_ms": {"real": real, "simulated": 9.0}, "e2e_ms": {"real": 200.0}}

    timeline: dict[str, JsonValue] = {"requests": [{"warmup": True, "ttft_ms": 99.0}, {"ttft_ms": 9.0}]}
    compare: dict[str, JsonValue] = {"requests": [row(8.0), row(10.0), row(None)], "summary": {"n": 3}}
    metrics = profiled_metrics(h100, timeline, compare)
    assert metrics["real"] == {"ttft_ms": 9.0, "itl_ms_mean": None, "e2e_ms": 200.0}
    assert metrics["simulated"] == {"ttft_ms": 9.0, "itl_ms_mean": None, "e2e_ms": None}
    assert metrics["compare"] == {"n": 3}
