"""From a stored request and the base sim's profile to the stored answer. Pure.

What the gateway checked is checked again here: the log may hold requests of an older or newer gateway.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import cast

from cascade_core.scenarios.facts import ScenarioRequested
from cascade_core.scenarios.request import ScenarioRequest
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from cascade_requestsim.errors import ScenarioRefused
from cascade_requestsim.estimate import estimate_request, timing_row
from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.scenario import BaseSim, run_scenario

DEFAULT_OUTPUT_TOKENS = 16
"""Output of a request that states none, on a trace whose workload states none either. [tokens]"""

_METRICS = ("ttft_ms", "itl_ms_mean", "e2e_ms")


@dataclass(frozen=True, slots=True)
class Base:
    """A finished sim as the request layer knows it."""

    profile: PerfProfile
    profiled: dict[str, JsonValue]
    """The base workload's own metrics, real and simulated, as the OpenAI-compatible routes show them."""


class EstimateBody(BaseModel):
    """What is asked of one request alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_tokens: int = Field(ge=1)
    output_tokens: int | None = Field(default=None, ge=0)
    """None: the length that the profiled workload had."""


def answer(base: Base, asked: ScenarioRequested) -> dict[str, JsonValue]:
    """The answer's JSON. Raises ScenarioRefused and its kin."""
    try:
        if asked.kind == "estimate":
            return _estimate(base, EstimateBody.model_validate(asked.body))
        request = ScenarioRequest.model_validate(asked.body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ScenarioRefused(
            f"the stored scenario is malformed at {where or 'its top'}: {first['msg']}"
        ) from error
    sim = BaseSim(trace_id=asked.trace_id, run_id=asked.run_id, sim_id=asked.sim_id)
    response = run_scenario(base.profile, request, base=sim)
    return cast("dict[str, JsonValue]", response.model_dump())


def _estimate(base: Base, body: EstimateBody) -> dict[str, JsonValue]:
    profile = base.profile
    default = profile.workload_max_tokens
    output = body.output_tokens
    notes: list[str] = []
    if output is None:
        output = DEFAULT_OUTPUT_TOKENS if default is None else default
        if default is None:
            notes.append(f"Output length stated nowhere: assumed {DEFAULT_OUTPUT_TOKENS} tokens")
    timing = timing_row(estimate_request(profile, body.prompt_tokens, output))
    timing["assumptions"] = [*timing["assumptions"], *notes]
    match = body.prompt_tokens == profile.prefill_tokens and output == base.profiled["output_tokens"]
    return {
        "timing": cast("JsonValue", dict(timing)),
        "profiled": base.profiled,
        "profile_match": match,
        "counterfactual": profile.counterfactual,
    }


def profiled_metrics(
    profile: PerfProfile, timeline: Mapping[str, JsonValue], compare: Mapping[str, JsonValue] | None
) -> dict[str, JsonValue]:
    """The base workload's means over its steady requests, simulated and real, beside the comparison's summary.

    timeline: the simulated timeline. compare: its comparison with the measured one, where there is one.
    """
    steady = [request for request in _objects(timeline.get("requests")) if request.get("warmup") is not True]
    compared = _objects((compare or {}).get("requests"))
    outputs = {count for request in steady if isinstance(count := request.get("num_output_tokens"), int)}
    return {
        "gpu_config": profile.gpu_config,
        "prompt_tokens": profile.prefill_tokens,
        "output_tokens": outputs.pop() if len(outputs) == 1 else profile.workload_max_tokens,
        "simulated": {name: _mean([request.get(name) for request in steady]) for name in _METRICS},
        "real": {name: _mean([_real(request.get(name)) for request in compared]) for name in _METRICS}
        if compared
        else None,
        "compare": (compare or {}).get("summary"),
        "source_note": profile.source_note,
    }


def _objects(value: JsonValue) -> list[dict[str, JsonValue]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _real(value: JsonValue) -> JsonValue:
    return value.get("real") if isinstance(value, dict) else None


def _mean(values: list[JsonValue]) -> float | None:
    known = [
        float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return fmean(known) if known else None
