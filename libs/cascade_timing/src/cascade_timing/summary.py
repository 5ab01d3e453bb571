"""Means per kind of step, and the idle time between steps, of a replayed timeline.

Source: the step-timing page, section 2, `summary.per_kind`.
"""

from collections.abc import Sequence

from cascade_timing.fields import JsonObject
from cascade_timing.replayed import StepReplay
from cascade_timing.statistics import mean, percentile
from cascade_timing.timeline import Step, StepKind


def per_kind(modelled: Sequence[StepReplay]) -> JsonObject:
    """`summary.per_kind` over the profiled steady steps; a kind without any is left out."""
    result: JsonObject = {}
    for kind in StepKind:
        steps = [replay for replay in modelled if replay.step.kind is kind]
        if not steps:
            continue
        row: JsonObject = {
            "steps": len(steps),
            "wall_ns_mean": mean([replay.wall_ns for replay in steps]),
            "gpu_busy_ns_mean": mean([replay.busy_ns for replay in steps if replay.busy_ns is not None]),
        }
        gaps = gap_summary([replay.step for replay in steps])
        if gaps is not None:
            row["gap_before_ns"] = gaps
        result[kind.value] = row
    return result


def gap_summary(steps: Sequence[Step]) -> JsonObject | None:
    """Count, mean, p50 and p95 of the measured gaps before steps [ns]; None if no step has one."""
    gaps = [step.baseline_gap_before_ns for step in steps if step.baseline_gap_before_ns is not None]
    if not gaps:
        return None
    return {"n": len(gaps), "mean": mean(gaps), "p50": percentile(gaps, 0.5), "p95": percentile(gaps, 0.95)}
