"""How long one scheduler step keeps the GPU: simulated floors, and a roofline for the work beyond them.

A batch enters only through sums over its sequences (`BatchSums`): every roofline term is linear in them, and the
maximum of compute and traffic is taken once a group over the whole batch, never a sequence at a time. All times are
nanoseconds. Source: the request model, section 2.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from cascade_requestsim.gpu_spec import GpuSpec
from cascade_requestsim.groups import Group
from cascade_requestsim.model_shape import ModelShape

COMPUTE_EFFICIENCY = 0.7
"""Assumed share of peak compute that kernels reach. A named assumption, not a calibration."""

BANDWIDTH_EFFICIENCY = 0.8
"""Assumed share of peak bandwidth that kernels reach. A named assumption, not a calibration."""

LINEAR_PASSES = 8
"""Assumed passes of the activations through memory in the linear layers."""

ELEMENTWISE_PASSES = 16
"""Assumed passes of the activations through memory in everything elementwise."""

NS_PER_S = 1e9

StepKind: TypeAlias = Literal["prefill", "decode"]

GroupTimes: TypeAlias = tuple[float, float, float, float, float, float]
"""One number a group, in the order of `Group`. [ns]"""


class BatchSums(NamedTuple):
    """What the roofline needs to know of a batch. A sequence's context includes its query tokens."""

    query_tokens: int
    """Query tokens of all sequences in this step, T."""
    context_tokens: int
    """Contexts of all sequences, Σc."""
    query_context: int
    """Sum over sequences of query tokens times context, Σ(q·c)."""
    sampling: int
    """Sequences that sample a token in this step, S."""


def sums_of_one(query_tokens: int, context: int, sampling: int) -> BatchSums:
    """A batch of one sequence."""
    return BatchSums(query_tokens, context, query_tokens * context, sampling)


class RooflineRates(NamedTuple):
    """The roofline of one model on one GPU as coefficients of `BatchSums`. [ns per unit]

    `linear` is max(linear_flop·T, linear_weights + linear_traffic·T), and so on for the other groups.
    """

    linear_flop: float
    linear_weights: float
    linear_traffic: float
    attention_flop: float
    attention_traffic: float
    kv_write_traffic: float
    lm_head_flop: float
    lm_head_weights: float
    sampler_traffic: float
    elementwise_traffic: float

    def attention(self, query_context: float, context_tokens: float) -> float:
        """Full rectangle of query times context, no causal halving; KV is read once a sequence. [ns]"""
        return max(self.attention_flop * query_context, self.attention_traffic * context_tokens)

    def groups(self, batch: BatchSums) -> GroupTimes:
        """Unanchored roofline time of every group. LM head and sampler are 0 without sampling sequences. [ns]"""
        tokens, context, query_context, sampling = batch
        samples = sampling > 0
        return (
            max(self.linear_flop * tokens, self.linear_weights + self.linear_traffic * tokens),
            self.attention(query_context, context),
            self.kv_write_traffic * tokens,
            max(self.lm_head_flop * sampling, self.lm_head_weights) if samples else 0.0,
            self.sampler_traffic * sampling,
            self.elementwise_traffic * tokens,
        )


def roofline_rates(model: ModelShape, gpu: GpuSpec) -> RooflineRates:
    """Turn dimensions and peak rates into nanoseconds per unit of work."""
    ns_per_flop = NS_PER_S / (COMPUTE_EFFICIENCY * gpu.peak_flops)
    ns_per_byte = NS_PER_S / (BANDWIDTH_EFFICIENCY * gpu.bandwidth_bytes_s)
    activation_bytes = model.hidden * model.layers * model.dtype_bytes
    return RooflineRates(
        linear_flop=2 * model.body * ns_per_flop,
        linear_weights=model.body * model.dtype_bytes * ns_per_byte,
        linear_traffic=LINEAR_PASSES * activation_bytes * ns_per_byte,
        attention_flop=4 * model.layers * model.hidden * ns_per_flop,
        attention_traffic=model.kv_token_bytes * ns_per_byte,
        kv_write_traffic=model.kv_token_bytes * ns_per_byte,
        lm_head_flop=2 * model.hidden * model.vocabulary * ns_per_flop,
        lm_head_weights=model.hidden * model.vocabulary * model.dtype_bytes * ns_per_byte,
        sampler_traffic=model.vocabulary * model.dtype_bytes * ns_per_byte,
        elementwise_traffic=ELEMENTWISE_PASSES * activation_bytes * ns_per_byte,
    )


def anchors(floors: GroupTimes, calibrated: GroupTimes) -> GroupTimes:
    """Factor a group that keeps the roofline at the calibrated shape from exceeding the simulated floor.

    floors: simulated times at the calibrated shape. calibrated: roofline times at the same shape. [ns]
    Never above 1; 1 where the roofline is zero.
    """

    def factor(group: Group) -> float:
        roof = calibrated[group]
        return min(1.0, floors[group] / roof) if roof > 0 else 1.0

    return (
        factor(Group.LINEAR),
        factor(Group.ATTENTION),
        factor(Group.KV_WRITE),
        factor(Group.LM_HEAD),
        factor(Group.SAMPLER),
        factor(Group.ELEMENTWISE),
    )


@dataclass(frozen=True, slots=True)
class StepModel:
    """Cost of one kind of step at one calibrated point: host time and gap, floors, anchors and residual. [ns]"""

    rates: RooflineRates
    floors: GroupTimes
    anchor: GroupTimes
    residual: float
    host: float

    def wall_without_attention(self, tokens: int, sampling: int) -> float:
        """Host, residual and every group but attention: what does not change while contexts grow. [ns]"""
        rates, floors, anchor = self.rates, self.floors, self.anchor
        linear = max(rates.linear_flop * tokens, rates.linear_weights + rates.linear_traffic * tokens)
        wall = (
            self.host
            + self.residual
            + max(floors[0], anchor[0] * linear)
            + max(floors[2], anchor[2] * rates.kv_write_traffic * tokens)
            + max(floors[5], anchor[5] * rates.elementwise_traffic * tokens)
        )
        if sampling:
            lm_head = max(rates.lm_head_flop * sampling, rates.lm_head_weights)
            wall += max(floors[3], anchor[3] * lm_head)
            wall += max(floors[4], anchor[4] * rates.sampler_traffic * sampling)
        return wall

    def attention(self, query_context: int, context_tokens: int) -> float:
        """Attention's time in a step. [ns]"""
        roof = self.rates.attention(query_context, context_tokens)
        return max(self.floors[1], self.anchor[1] * roof)

    def wall(self, batch: BatchSums) -> float:
        """Wall time of the step: host time and GPU busy time. [ns]"""
        return self.wall_without_attention(batch.query_tokens, batch.sampling) + self.attention(
            batch.query_context, batch.context_tokens
        )

    def busy(self, batch: BatchSums) -> float:
        """GPU busy time of the step. [ns]"""
        return self.wall(batch) - self.host
