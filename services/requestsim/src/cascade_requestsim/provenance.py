"""Where a number comes from: the labels on every step, and the assumptions that travel with every result.

Labels describe steps, not kernels and not a probability of being right. Source: the request model, section 4.2.
"""

from collections.abc import Sequence
from enum import IntEnum

from cascade_core.scenarios.answer import CalibrationRow, ProvenanceLabel

from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.roofline import (
    BANDWIDTH_EFFICIENCY,
    COMPUTE_EFFICIENCY,
    ELEMENTWISE_PASSES,
    LINEAR_PASSES,
)


class Provenance(IntEnum):
    """GPU label of a step, as a small number while steps are counted."""

    MEASURED = 0
    INTERPOLATED = 1
    EXTRAPOLATED = 2


LABELS: tuple[ProvenanceLabel, ProvenanceLabel, ProvenanceLabel] = (
    "measured",
    "interpolated",
    "extrapolated:roofline",
)
"""Wire spelling of each `Provenance`, by its value."""

ASSUMED_HOST = "assumed-host"
"""Counted on every step: host time is held at the profiled median of the step's kind."""


def prefill_provenance(profile: PerfProfile, *, sequences: int, query_tokens: int, whole: bool) -> Provenance:
    """Label of a prefill-kind step. `whole`: its only sequence ran its entire prefill in this step."""
    if sequences == 1 and whole and query_tokens == profile.prefill_tokens:
        return Provenance.MEASURED
    return Provenance.EXTRAPOLATED


def decode_provenance(profile: PerfProfile, *, sequences: int, context: int) -> Provenance:
    """Label of a decode-kind step. `context`: the single sequence's context, its query token included."""
    contexts = profile.decode_contexts
    if sequences != 1 or not contexts[0] <= context <= contexts[-1]:
        return Provenance.EXTRAPOLATED
    return Provenance.MEASURED if context in profile.decode_context_set else Provenance.INTERPOLATED


def provenance_counts(steps: Sequence[int]) -> dict[str, int]:
    """Counts of steps under their wire names. `steps`: one count a `Provenance`, in order."""
    return {**dict(zip(LABELS, steps, strict=True)), ASSUMED_HOST: sum(steps)}


def calibration_range(profile: PerfProfile) -> CalibrationRow:
    """Where a profile is calibrated, under the wire names."""
    prefill, decode = profile.calibration_range
    return CalibrationRow(prefill_tokens=list(prefill), decode_context=list(decode))


def standing_assumptions(source_note: str | None) -> tuple[str, ...]:
    """What every estimate from any profile assumes. `source_note`: the run's own words on its data."""
    notes = (
        "Host time of every step is held at the profiled median of its kind (prefill or decode)",
        f"Kernels are assumed to reach {COMPUTE_EFFICIENCY} of data-sheet compute, {BANDWIDTH_EFFICIENCY} of bandwidth",
        f"Activations are assumed to pass memory {LINEAR_PASSES} times if linear, {ELEMENTWISE_PASSES} if elementwise",
        "The FFN is dense with two matrices; biases, norms and embeddings are left out of the layer weights",
        "Input and output embeddings are one matrix",
        "Floors come from the recorded prefill and decode contexts; beyond them only the unvalidated roofline grows",
    )
    return notes if source_note is None else (*notes, f"Source data: {source_note}")


def is_counterfactual(measured_on: object, gpu_config: str) -> bool | None:
    """Whether the host times are another GPU's than the one that is predicted; None where the run does not say.

    measured_on: `gpu` of `run.json`, a product's name such as `NVIDIA H100 80GB HBM3`.
    """
    if not isinstance(measured_on, str) or not measured_on:
        return None
    model = gpu_config.rpartition("_")[2]  # SM90_H100 -> H100
    return model not in measured_on


def counterfactual_note(measured_on: object, gpu_config: str) -> tuple[str, ...]:
    """What to say where `is_counterfactual`."""
    if not is_counterfactual(measured_on, gpu_config):
        return ()
    said = f"Host times and gaps were measured on {measured_on}, nothing on {gpu_config}: the answer is counterfactual"
    return (said,)
