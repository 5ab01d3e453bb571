"""Step costs of one profile as the scheduler asks for them: memoised, and split into what stays and what grows.

While a batch only decodes, its size stays and its contexts grow by one a step. Past the recorded contexts a step then
costs `lead_and_rest + max(attention_floor, attention_slope · Σc)`, which gives runs of steps a closed form.
Times are nanoseconds. Source: the request model, section 2.
"""

from typing import NamedTuple

from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.roofline import StepModel


class DecodeCost(NamedTuple):
    """Cost of a decode step of a given batch size at a given calibrated context, the gap before it included. [ns]"""

    fixed: float
    """Gap, host, residual and all groups but attention."""
    attention_floor: float
    attention_slope: float
    """Anchored roofline time of attention a token of context."""
    crossing: float
    """Total context up to which the floor decides; infinite where the slope is 0. [tokens]"""


class StepCosts:
    """Memo of step costs for one simulation; not shared, so it needs no bound beyond the simulation's steps."""

    __slots__ = (
        "_decode",
        "_models",
        "_prefill",
        "_prefill_model",
        "_profile",
        "first_context",
        "last_context",
    )

    def __init__(self, profile: PerfProfile) -> None:
        self._profile = profile
        self._prefill_model = profile.prefill_model
        self._prefill: dict[tuple[int, int], float] = {}
        self._decode: dict[tuple[int, int], DecodeCost] = {}
        self._models: dict[int, StepModel] = {}
        self.first_context = profile.decode_contexts[0]
        self.last_context = profile.decode_contexts[-1]

    def prefill_wall(self, tokens: int, sampling: int, query_context: int, context_tokens: int) -> float:
        """Wall time of a prefill-kind step. [ns]"""
        fixed = self._prefill.get((tokens, sampling))
        if fixed is None:
            fixed = self._prefill_model.wall_without_attention(tokens, sampling)
            self._prefill[tokens, sampling] = fixed
        return fixed + self._prefill_model.attention(query_context, context_tokens)

    def decode(self, sequences: int, largest_context: int) -> DecodeCost:
        """Cost of a decode-kind step of `sequences` requests whose largest context is given."""
        context = min(max(largest_context, self.first_context), self.last_context)
        cost = self._decode.get((sequences, context))
        if cost is None:
            cost = self._decode[sequences, context] = self._decode_cost(sequences, context)
        return cost

    def _decode_cost(self, sequences: int, context: int) -> DecodeCost:
        model = self._models.get(context)
        if model is None:
            model = self._models[context] = self._profile.decode_model(context)
        floor = model.floors[1]
        # With one query token a sequence, Σ(q·c) is Σc: compute and traffic grow alike.
        slope = model.anchor[1] * model.rates.attention(1, 1)
        return DecodeCost(
            fixed=self._profile.gap_decode_ns + model.wall_without_attention(sequences, sequences),
            attention_floor=floor,
            attention_slope=slope,
            crossing=floor / slope if slope > 0 else float("inf"),
        )
