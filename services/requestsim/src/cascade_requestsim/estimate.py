"""One request alone on the GPU: the estimate behind the OpenAI-compatible routes.

A plain sum over the request's steps, written without the scheduler, so that each checks the other.
Source: the request model, section 3.
"""

import math
from dataclasses import dataclass
from statistics import median

from cascade_core.scenarios.answer import CalibrationRow
from typing_extensions import TypedDict

from cascade_requestsim.errors import ScenarioRefused
from cascade_requestsim.metrics import NS_PER_MS
from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.provenance import (
    Provenance,
    calibration_range,
    decode_provenance,
    prefill_provenance,
    provenance_counts,
)
from cascade_requestsim.roofline import sums_of_one


@dataclass(frozen=True, slots=True)
class RequestEstimate:
    """Predicted latencies of one request, with their provenance."""

    prompt_tokens: int
    output_tokens: int
    ttft_ms: float | None
    """None for zero output tokens."""
    itl_ms_mean: float | None
    """None below two output tokens."""
    itl_ms_p50: float | None
    e2e_ms: float
    provenance_counts: dict[str, int]
    calibration_range: CalibrationRow
    assumptions: tuple[str, ...]


class IntervalRow(TypedDict):
    """Time between tokens."""

    mean_ms: float
    p50_ms: float


class TimingRow(TypedDict):
    """`RequestEstimate` as the OpenAI-compatible routes show it."""

    prompt_tokens: int
    output_tokens: int
    ttft_ms: float | None
    itl: IntervalRow | None
    """Null below two output tokens: there is no interval then."""
    itl_ms_mean: float | None
    itl_ms_p50: float | None
    e2e_ms: float
    provenance_counts: dict[str, int]
    calibration_range: CalibrationRow
    assumptions: list[str]


def timing_row(estimate: RequestEstimate) -> TimingRow:
    """The estimate as strict JSON values."""
    mean, middle = estimate.itl_ms_mean, estimate.itl_ms_p50
    return TimingRow(
        prompt_tokens=estimate.prompt_tokens,
        output_tokens=estimate.output_tokens,
        ttft_ms=estimate.ttft_ms,
        itl=None if mean is None or middle is None else IntervalRow(mean_ms=mean, p50_ms=middle),
        itl_ms_mean=mean,
        itl_ms_p50=middle,
        e2e_ms=estimate.e2e_ms,
        provenance_counts=estimate.provenance_counts,
        calibration_range=estimate.calibration_range,
        assumptions=list(estimate.assumptions),
    )


def estimate_request(profile: PerfProfile, prompt_tokens: int, output_tokens: int) -> RequestEstimate:
    """Estimate a request that arrives at an idle GPU.

    Raises ScenarioRefused for fewer than 1 prompt token, a negative output, or more tokens than the model's limit.
    """
    if prompt_tokens < 1 or output_tokens < 0:
        raise ScenarioRefused(
            f"{prompt_tokens} prompt and {output_tokens} output tokens; "
            "expected at least 1 prompt token and no negative output"
        )
    if prompt_tokens + output_tokens > profile.model_limit_tokens:
        raise ScenarioRefused(
            f"{prompt_tokens} prompt and {output_tokens} output tokens exceed the model limit of "
            f"{profile.model_limit_tokens} tokens; shorten the prompt or ask for fewer tokens"
        )
    prefill = profile.prefill_model.wall(sums_of_one(prompt_tokens, prompt_tokens, sampling=1))
    prefill_end = profile.pre_ns + prefill
    contexts = range(prompt_tokens + 1, prompt_tokens + output_tokens)
    intervals = _decode_intervals(profile, contexts)
    labels = [prefill_provenance(profile, sequences=1, query_tokens=prompt_tokens, whole=True)]
    labels.extend(decode_provenance(profile, sequences=1, context=context) for context in contexts)
    total = math.fsum(intervals)
    return RequestEstimate(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        ttft_ms=prefill_end / NS_PER_MS if output_tokens else None,
        itl_ms_mean=total / len(intervals) / NS_PER_MS if intervals else None,
        itl_ms_p50=median(intervals) / NS_PER_MS if intervals else None,
        e2e_ms=(prefill_end + total + profile.post_ns) / NS_PER_MS,
        provenance_counts=provenance_counts([labels.count(label) for label in Provenance]),
        calibration_range=calibration_range(profile),
        assumptions=profile.assumptions,
    )


def _decode_intervals(profile: PerfProfile, contexts: range) -> list[float]:
    """Gap and wall of a single decode at each context. [ns]"""
    last = profile.decode_model(profile.decode_contexts[-1])
    intervals = []
    for context in contexts:
        model = last if context >= profile.decode_contexts[-1] else profile.decode_model(context)
        intervals.append(profile.gap_decode_ns + model.wall(sums_of_one(1, context, sampling=1)))
    return intervals
