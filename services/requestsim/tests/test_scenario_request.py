"""The body of a scenario: both forms, every limit, and what is refused in words."""

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from cascade_core.errors import Refused
from cascade_core.scenarios.request import ScenarioRequest
from cascade_requestsim.errors import CapacityExceeded, ScenarioRefused, StepLimitExceeded
from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.provenance import counterfactual_note, is_counterfactual
from cascade_requestsim.scenario import BaseSim, run_scenario
from pydantic import ValidationError

SHORT: dict[str, object] = {"trace_id": "t", "num_requests": 2, "prompt_tokens": 8, "output_tokens": 4}
ONE: dict[str, object] = {"prompt_tokens": 8, "output_tokens": 4}


def explicit(*requests: dict[str, object], **fields: object) -> dict[str, object]:
    return {"trace_id": "t", "requests": list(requests), **fields}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({**SHORT, "trace_id": None}, "exactly one of trace_id and model"),
        ({**SHORT, "model": "m"}, "exactly one of trace_id and model"),
        ({"trace_id": "t"}, "give requests, or the shorthand"),
        ({"trace_id": "t", "num_requests": 2, "prompt_tokens": 8}, "output_tokens"),
        (explicit(ONE, num_requests=1), "do not mix"),
        (explicit(ONE, arrival_rate_rps=0), "do not mix"),
        (explicit(), "at least 1 item"),
        ({**SHORT, "num_requests": 0}, "greater than or equal to 1"),
        ({**SHORT, "num_requests": 4097}, "less than or equal to 4096"),
        ({**SHORT, "num_requests": 2.0}, "valid integer"),
        ({**SHORT, "num_requests": True}, "valid integer"),
        ({**SHORT, "prompt_tokens": 0}, "greater than or equal to 1"),
        ({**SHORT, "prompt_tokens": "8"}, "valid integer"),
        ({**SHORT, "output_tokens": -1}, "greater than or equal to 0"),
        ({**SHORT, "num_requests": 4096, "prompt_tokens": 200, "output_tokens": 45}, "limit is 1000000"),
        ({**SHORT, "prompt_tokens": 10**30}, "less than or equal to"),
        ({**SHORT, "arrival_rate_rps": -1}, "greater than or equal to 0"),
        ({**SHORT, "arrival_rate_rps": float("nan")}, "finite number"),
        ({**SHORT, "arrival_rate_rps": float("inf")}, "finite number"),
        ({**SHORT, "arrival_rate_rps": 1e-10}, "above the limit of 1e+09 s"),
        ({**SHORT, "arrival_rate_rps": 5e-324}, "above the limit of 1e+09 s"),
        ({**SHORT, "arrival_rate_rps": "fast"}, "valid number"),
        (explicit({**ONE, "arrival_s": -0.1}), "greater than or equal to 0"),
        (explicit({**ONE, "arrival_s": 1.1e9}), "less than or equal to 1000000000"),
        (explicit({**ONE, "arrival_s": float("nan")}), "finite number"),
        (explicit({**ONE, "id": "a"}, {**ONE, "id": "a"}), "must be unique"),
        (explicit({**ONE, "id": "request-1"}, ONE), "must be unique"),
        (explicit({**ONE, "id": ""}), "at least 1 character"),
        (explicit(*[ONE] * 4097), "at most 4096 items"),
        ({**SHORT, "num_reqests": 3}, "Extra inputs are not permitted"),
        ({**SHORT, "fresh": "yes"}, "valid boolean"),
        ({**SHORT, "scheduler": {"max_num_seqs": 0}}, "greater than or equal to 1"),
        ({**SHORT, "scheduler": {"max_num_batched_tokens": -5}}, "greater than or equal to 1"),
        ({**SHORT, "scheduler": {"block_size": 10**9}}, "less than or equal to"),
        ({**SHORT, "scheduler": {"num_kv_blocks": 0}}, "greater than or equal to 1"),
        ({**SHORT, "scheduler": {"gpu_memory_utilization": 1.5}}, "less than or equal to 1"),
        ({**SHORT, "scheduler": {"gpu_memory_utilization": float("nan")}}, "finite number"),
        ({**SHORT, "scheduler": {"enable_chunked_prefill": 1}}, "valid boolean"),
        ({**SHORT, "scheduler": {"blocksize": 4}}, "Extra inputs are not permitted"),
        ({**SHORT, "scheduler": []}, "valid dictionary"),
    ],
)
def test_a_wrong_body_is_refused_in_words(body: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message.replace("(", r"\(").replace("+", r"\+")):
        ScenarioRequest.model_validate(body)


def test_nulls_mean_left_out() -> None:
    body = {
        **SHORT,
        "model": None,
        "gpu_config": None,
        "requests": None,
        "arrival_rate_rps": None,
        "fresh": None,
        "scheduler": {"max_num_seqs": None, "num_kv_blocks": None},
    }
    assert ScenarioRequest.model_validate(body).workload() == ScenarioRequest.model_validate(SHORT).workload()


def test_left_out_ids_are_numbered_by_position() -> None:
    workload = ScenarioRequest.model_validate(explicit(ONE, {**ONE, "id": "b"}, ONE)).workload()
    assert workload.ids == ["request-0", "b", "request-2"]


@pytest.mark.parametrize(("rate", "arrivals"), [(None, [0, 0, 0]), (0, [0, 0, 0]), (4, [0, 0.25, 0.5])])
def test_shorthand_arrivals_are_evenly_spaced(rate: float | None, arrivals: list[float]) -> None:
    body = {**SHORT, "num_requests": 3, "arrival_rate_rps": rate}
    assert ScenarioRequest.model_validate(body).workload().arrivals_s == arrivals


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ({**SHORT, "prompt_tokens": 2000, "output_tokens": 49}, ScenarioRefused, "model limit of 2048"),
        (
            {
                **SHORT,
                "prompt_tokens": 512,
                "scheduler": {"max_num_batched_tokens": 256, "enable_chunked_prefill": False},
            },
            ScenarioRefused,
            "chunked prefill is off",
        ),
        (
            {**SHORT, "output_tokens": 8, "scheduler": {"block_size": 4, "num_kv_blocks": 3}},
            CapacityExceeded,
            "needs 4 KV blocks",
        ),
        (
            {
                **SHORT,
                "prompt_tokens": 64,
                "output_tokens": 64,
                "scheduler": {"block_size": 16, "num_kv_blocks": 7},
            },
            CapacityExceeded,
            "needs 8 KV blocks",
        ),
        ({**SHORT, "scheduler": {"gpu_memory_utilization": 0.01}}, CapacityExceeded, "no KV block fits"),
        (
            {
                **SHORT,
                "prompt_tokens": 5,
                "output_tokens": 12,
                "scheduler": {
                    "max_num_batched_tokens": 10,
                    "enable_chunked_prefill": False,
                    "block_size": 1,
                    "num_kv_blocks": 22,
                },
            },
            ScenarioRefused,
            "recompute",
        ),
        (
            {
                **SHORT,
                "num_requests": 1000,
                "prompt_tokens": 900,
                "scheduler": {"max_num_batched_tokens": 8},
            },
            StepLimitExceeded,
            "more than 100000",
        ),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_its_cause(
    h100: PerfProfile, *, body: dict[str, object], error: type[Refused], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        run_scenario(h100, ScenarioRequest.model_validate(body))
    assert 400 <= caught.value.status < 500


def test_many_steps_are_thinned_uniformly_and_say_so(h100: PerfProfile) -> None:
    body = {**SHORT, "num_requests": 300, "output_tokens": 30, "scheduler": {"max_num_seqs": 1}}
    response = run_scenario(h100, ScenarioRequest.model_validate(body))
    indices = [step["step_index"] for step in response.steps]
    assert (response.steps_total, response.steps_returned, len(indices)) == (9000, 5000, 5000)
    assert (response.steps_downsampled, response.steps_sampling) == (True, "uniform")
    assert (indices[0], indices[-1]) == (0, 8999)
    assert {after - before for before, after in pairwise(indices)} == {1, 2}
    assert response.provenance_counts["assumed-host"] == 9000


def test_the_answer_names_its_base_and_its_assumptions(h100: PerfProfile) -> None:
    base = BaseSim(trace_id="resolved", run_id="run-1", sim_id="sim-1", cached=False)
    body = {"model": "facebook/opt-125m", **{key: SHORT[key] for key in SHORT if key != "trace_id"}}
    response = run_scenario(h100, ScenarioRequest.model_validate(body), base=base)
    assert (response.trace_id, response.run_id, response.sim_id, response.cached) == (
        "resolved",
        "run-1",
        "sim-1",
        False,
    )
    text = "\n".join(response.assumptions)
    for part in ("3072", "50272", "2048 tokens", "106267 blocks", "Reconstructed from published statistics"):
        assert part in text
    assert run_scenario(h100, ScenarioRequest.model_validate(body)).trace_id == "facebook/opt-125m"


@pytest.mark.parametrize(
    ("config", "told"), [("SM90_H100", False), ("SM90_H200", True), ("SM80_A100", False)]
)
def test_host_times_of_another_gpu_are_told(
    *, sample_profile: Callable[[str], PerfProfile], config: str, told: bool
) -> None:
    # spec: request-simulation, data sheet assumptions. H200 is counterfactual: there is no measured H200 baseline.
    notes = [note for note in sample_profile(config).assumptions if "counterfactual" in note]
    measured_on = "Host times and gaps were measured on NVIDIA H100 80GB HBM3"
    said = f"{measured_on}, nothing on SM90_H200: the answer is counterfactual"
    assert notes == ([said] if told else [])
    assert sample_profile(config).counterfactual is told


@pytest.mark.parametrize("gpu", [None, "", 5])
def test_a_run_that_does_not_say_its_gpu_leaves_open_whether_it_is_another(gpu: object) -> None:
    assert is_counterfactual(gpu, "SM90_H200") is None
    assert counterfactual_note(gpu, "SM90_H200") == ()


def test_the_answer_is_strict_json_with_nulls(h100: PerfProfile) -> None:
    body = explicit({"prompt_tokens": 5, "output_tokens": 0})
    response = run_scenario(h100, ScenarioRequest.model_validate(body))

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    decoded = json.loads(response.model_dump_json(), parse_constant=refuse)
    assert decoded["aggregate"]["p50_ttft_ms"] is None
    assert decoded["aggregate"]["p50_itl_ms"] is None
    assert decoded["aggregate"]["throughput_output_tokens_s"] == 0
    assert decoded["requests"][0]["itl_ms_p50"] is None
