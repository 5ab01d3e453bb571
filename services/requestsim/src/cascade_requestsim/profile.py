"""The performance profile of one finished sim: medians of what its simulated timeline holds, and its roofline.

A profile is immutable and a pure function of its documents, so it can be cached by sim. All times are nanoseconds.
It describes the calibrated points only; how a step costs beyond them is `roofline.StepModel`.
Source: the request model, sections 1 and 2.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from cascade_requestsim.gpu_spec import GpuSpec
from cascade_requestsim.model_shape import ModelShape
from cascade_requestsim.roofline import (
    GroupTimes,
    RooflineRates,
    StepModel,
    anchors,
    roofline_rates,
    sums_of_one,
)

DEFAULT_MODEL_LIMIT = 2048
"""Prompt plus output of one request where the run does not state a limit. [tokens]"""


@dataclass(frozen=True, slots=True)
class CalibratedPoint:
    """Medians over the steady repeats at one prefill size or decode context. [ns]"""

    floors: GroupTimes
    residual: float
    """GPU busy time that no listed kernel explains."""


@dataclass(frozen=True)
class PerfProfile:
    """What the request layer knows of one model on one simulated GPU."""

    gpu_config: str
    gpu: GpuSpec
    model: ModelShape
    prefill_tokens: int
    """Size of the single recorded prefill. [tokens]"""
    prefill: CalibratedPoint
    decode_contexts: tuple[int, ...]
    """Recorded decode contexts, increasing; at least one. [tokens]"""
    decode: tuple[CalibratedPoint, ...]
    """One point a recorded context, in the same order."""
    host_prefill_ns: float
    host_decode_ns: float
    gap_prefill_ns: float
    gap_decode_ns: float
    pre_ns: float
    """From arrival to the first step of a busy period."""
    post_ns: float
    """From the last step's end to completion; negative in the samples, and kept so."""
    model_limit_tokens: int
    gpu_memory_utilization: float
    workload_max_tokens: int | None
    """Output length of the profiled workload: the default of the OpenAI-compatible routes. [tokens]"""
    assumptions: tuple[str, ...]
    source_note: str | None
    """The run's own words on where its data came from, when it has any."""
    counterfactual: bool | None = None
    """Whether the host times are another GPU's; None where the run does not say whose they are."""

    @property
    def calibration_range(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(first, last) profiled prefill size and decode context. [tokens]"""
        contexts = self.decode_contexts
        return (self.prefill_tokens, self.prefill_tokens), (contexts[0], contexts[-1])

    @cached_property
    def decode_context_set(self) -> frozenset[int]:
        """The recorded decode contexts, for the question whether one was recorded."""
        return frozenset(self.decode_contexts)

    @cached_property
    def rates(self) -> RooflineRates:
        """The roofline's coefficients for this model and GPU."""
        return roofline_rates(self.model, self.gpu)

    @cached_property
    def prefill_model(self) -> StepModel:
        """Cost of every prefill-kind step, whatever its size: floors come from the one recorded prefill."""
        size = self.prefill_tokens
        return self._step_model(self.prefill, query_tokens=size, context=size, host_ns=self.host_prefill_ns)

    def decode_model(self, largest_context: int) -> StepModel:
        """Cost of a decode-kind step whose largest context is given.

        Floors interpolate linearly between the neighbouring profiled contexts and clamp outside of them.
        """
        contexts = self.decode_contexts
        context = min(max(largest_context, contexts[0]), contexts[-1])
        return self._step_model(
            self._decode_point(context), query_tokens=1, context=context, host_ns=self.host_decode_ns
        )

    def _decode_point(self, context: int) -> CalibratedPoint:
        right = bisect_right(self.decode_contexts, context)
        low = self.decode[right - 1]
        start = self.decode_contexts[right - 1]
        if start == context:
            return low
        high = self.decode[right]
        share = (context - start) / (self.decode_contexts[right] - start)
        a, b = low.floors, high.floors
        floors = (
            a[0] + share * (b[0] - a[0]),
            a[1] + share * (b[1] - a[1]),
            a[2] + share * (b[2] - a[2]),
            a[3] + share * (b[3] - a[3]),
            a[4] + share * (b[4] - a[4]),
            a[5] + share * (b[5] - a[5]),
        )
        return CalibratedPoint(floors, low.residual + share * (high.residual - low.residual))

    def _step_model(
        self, point: CalibratedPoint, *, query_tokens: int, context: int, host_ns: float
    ) -> StepModel:
        calibrated = self.rates.groups(sums_of_one(query_tokens, context, sampling=1))
        return StepModel(
            rates=self.rates,
            floors=point.floors,
            anchor=anchors(point.floors, calibrated),
            residual=point.residual,
            host=host_ns,
        )
