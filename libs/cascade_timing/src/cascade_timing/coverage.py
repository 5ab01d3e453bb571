"""How much of the measured GPU time the simulated kernels stand for. It says nothing about accuracy.

Source: the step-timing page, section 2, "coverage".
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cascade_timing.fields import JsonObject, Number
from cascade_timing.timeline import Kernel, KernelKey, Step


def coverage(steps: Sequence[Step], replaced: Collection[KernelKey]) -> JsonObject:
    """The `coverage` object over the profiled steady steps; all zero if there are none.

    replaced: the kernels that have a simulated duration; ones outside `steps` do not count.
    """
    rows = [_step_coverage(step, replaced) for step in steps]
    kernels = sum(len(step.kernels) for step in steps)
    simulated = sum(row.simulated_kernels for row in rows)
    measured_ns = math.fsum(row.busy_ns for row in rows)
    covered_ns = math.fsum(row.covered_ns for row in rows)
    return {
        "kernels": kernels,
        "simulated_kernels": simulated,
        "kernel_fraction": simulated / kernels if kernels else 0,
        "gpu_time_fraction": covered_ns / measured_ns if measured_ns else 0,
        "measured_gpu_ns": measured_ns,
        "covered_measured_gpu_ns": covered_ns,
        "unmodeled_gpu_ns": math.fsum(row.unmodeled_ns for row in rows),
        "steps": [row.as_json() for row in rows],
    }


@dataclass(frozen=True, slots=True)
class _StepCoverage:
    """One step's row. Durations are the measured ones, never the simulated ones. [ns]"""

    step: Step
    simulated_kernels: int
    busy_ns: Number
    covered_ns: float
    unmodeled_ns: float
    overlap_ns: float

    def as_json(self) -> JsonObject:
        return {
            "repeat": self.step.repeat,
            "step": self.step.step,
            "kernels": len(self.step.kernels),
            "simulated_kernels": self.simulated_kernels,
            "measured_gpu_ns": self.busy_ns,
            "simulated_coverage_gpu_ns": self.covered_ns,
            "unmodeled_gpu_ns": self.unmodeled_ns,
            "measured_kernel_overlap_ns": self.overlap_ns,
        }


def _step_coverage(step: Step, replaced: Collection[KernelKey]) -> _StepCoverage:
    covered = [k for k in step.kernels if KernelKey(step.repeat, step.step, k.seq) in replaced]
    busy_ns = step.gpu_busy_ns or 0
    union_ns = union_length_ns(step.kernels)
    total_ns = math.fsum(kernel.duration_ns for kernel in step.kernels)
    return _StepCoverage(
        step=step,
        simulated_kernels=len(covered),
        busy_ns=busy_ns,
        covered_ns=math.fsum(kernel.duration_ns for kernel in covered),
        unmodeled_ns=max(0.0, busy_ns - union_ns),
        overlap_ns=max(0.0, total_ns - union_ns),
    )


def union_length_ns(kernels: Sequence[Kernel]) -> float:
    """Time during which at least one of the kernels ran, as measured. [ns]"""
    pieces: list[Number] = []
    latest_end = -math.inf
    for kernel in sorted(kernels, key=lambda kernel: kernel.start_offset_ns):
        end = kernel.start_offset_ns + kernel.duration_ns
        if end > latest_end:
            # A kernel clear of what ran before counts by its own duration: end - start would round.
            pieces.append(kernel.duration_ns if kernel.start_offset_ns >= latest_end else end - latest_end)
            latest_end = end
    return math.fsum(pieces)
