"""`corrected_timeline.json`: unprofiled walls of the baseline with the kernels of the profiled run. Pure.

"Corrected", because a profiler slows the host down: walls and gaps come from the run without one, kernels and GPU
busy time from the run with one. What the GPU did not do is the host's, as a residual.
Layout: the step-timing specification, section 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from cascade_profiler.attribution import ProfiledStep
from cascade_profiler.errors import ReconcileError
from cascade_profiler.steps import RequestMark, StepMark

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class TimelineKernel:
    """One measured kernel of one step; (repeat, step, seq) identifies it. Times in ns."""

    seq: int
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    duration_ns: int
    start_offset_ns: int

    def to_json(self) -> dict[str, object]:
        """Return the kernel as it stands in the timeline."""
        return {
            "seq": self.seq,
            "name": self.name,
            "grid": dim_text(self.grid),
            "block": dim_text(self.block),
            "duration_ns": self.duration_ns,
            "start_offset_ns": self.start_offset_ns,
        }


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """One step of the baseline, with the profiled run's view of it if there is one."""

    mark: StepMark
    warmup: bool
    gap_before_ns: int | None
    profiled: ProfiledStep | None
    profiled_gap_before_ns: int | None
    kernels: tuple[TimelineKernel, ...]

    def to_json(self) -> dict[str, object]:
        """Return the step as it stands in the timeline."""
        seen = self.profiled
        return {
            "step": self.mark.step,
            "repeat": self.mark.repeat,
            "warmup": self.warmup,
            "kind": self.mark.kind,
            "num_reqs": self.mark.num_reqs,
            "num_scheduled_tokens": self.mark.num_scheduled_tokens,
            "baseline_wall_ns": self.mark.wall_ns,
            "profiled_wall_ns": None if seen is None else seen.end_ns - seen.start_ns,
            "gpu_busy_ns": None if seen is None else seen.gpu_busy_ns,
            "cuda_api_ns": None if seen is None else seen.cuda_api_ns,
            "host_ns": None if seen is None else self.mark.wall_ns - seen.gpu_busy_ns,
            "kernels": [kernel.to_json() for kernel in self.kernels],
            "baseline_wall_start_ns": self.mark.start_ns,
            "baseline_wall_end_ns": self.mark.end_ns,
            "baseline_gap_before_ns": self.gap_before_ns,
            "profiled_wall_start_ns": None if seen is None else seen.start_ns,
            "profiled_wall_end_ns": None if seen is None else seen.end_ns,
            "profiled_gap_before_ns": self.profiled_gap_before_ns,
        }


def dim_text(dim: tuple[int, int, int]) -> str:
    """Return grid or block dimensions as `24x1x1`."""
    return "x".join(map(str, dim))


def reconcile(
    *,
    baseline: Sequence[StepMark],
    profiled: Sequence[StepMark],
    captured: Sequence[ProfiledStep],
    warmup_repeats: int,
) -> tuple[TimelineStep, ...]:
    """Put the profiled run's kernels on the baseline's steps, in (repeat, step) order.

    baseline, profiled: the step logs of the two runs.
    captured: steps of the kernel profiler's capture, found by the profiled log's call numbers.

    Warm-ups keep their walls only. Raises ReconcileError if the two runs scheduled different work in a steady
    step, or if no steady step was captured.
    """
    log = {mark.key: mark for mark in profiled}
    seen = {step.call: step for step in captured}
    steady_captured = 0
    steps: list[TimelineStep] = []
    previous: StepMark | None = None
    previous_seen: ProfiledStep | None = None
    for mark in sorted(baseline, key=lambda m: m.key):
        first = previous is None or previous.repeat != mark.repeat
        warmup = mark.repeat < warmup_repeats
        found: ProfiledStep | None = None
        if not warmup:
            found = _captured_step(mark, log, seen)
            steady_captured += found is not None
        steps.append(
            TimelineStep(
                mark=mark,
                warmup=warmup,
                gap_before_ns=None if first or previous is None else mark.start_ns - previous.end_ns,
                profiled=found,
                profiled_gap_before_ns=(
                    None
                    if first or found is None or previous_seen is None
                    else found.start_ns - previous_seen.end_ns
                ),
                kernels=() if found is None else _kernels(found),
            )
        )
        previous, previous_seen = mark, found
    if steady_captured == 0:
        raise ReconcileError(
            "the capture holds none of the steady steps; check that NVTX was traced (--trace=cuda,nvtx) and that "
            "the capture range covers the steady repeats"
        )
    return tuple(steps)


def timeline_json(
    *,
    meta: Mapping[str, object],
    steps: Sequence[TimelineStep],
    requests: Sequence[RequestMark],
    warmup_repeats: int,
) -> dict[str, object]:
    """Return the whole `corrected_timeline.json`. `meta` is copied through."""
    marks: dict[int, list[StepMark]] = defaultdict(list)
    for step in steps:
        marks[step.mark.repeat].append(step.mark)
    several = len({request.prompt_index for request in requests}) > 1
    return {
        "meta": dict(meta),
        "steps": [step.to_json() for step in steps],
        "requests": [
            _request_json(
                request, marks[request.repeat], warmup=request.repeat < warmup_repeats, several=several
            )
            for request in sorted(requests, key=lambda r: (r.repeat, r.prompt_index))
            if marks[request.repeat]
        ],
        "summary": {"per_kind": _per_kind(steps)},
    }


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the percentile by linear interpolation at fraction x (n - 1). `values` must not be empty."""
    ordered = sorted(values)
    at = fraction * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _captured_step(
    mark: StepMark, log: Mapping[tuple[int, int], StepMark], seen: Mapping[int, ProfiledStep]
) -> ProfiledStep | None:
    other = log.get(mark.key)
    if other is None:
        return None
    work = (mark.kind, mark.num_reqs, mark.num_scheduled_tokens)
    if work != (other.kind, other.num_reqs, other.num_scheduled_tokens):
        raise ReconcileError(
            f"repeat {mark.repeat} step {mark.step} was a {mark.kind} of {mark.num_scheduled_tokens} tokens "
            f"({mark.num_reqs} requests) in the baseline, but a {other.kind} of {other.num_scheduled_tokens} "
            f"({other.num_reqs} requests) under the profiler; the runs cannot be compared"
        )
    return seen.get(other.call)


def _kernels(step: ProfiledStep) -> tuple[TimelineKernel, ...]:
    return tuple(
        TimelineKernel(
            seq=seq,
            name=row.kernel_name,
            grid=row.grid,
            block=row.block,
            duration_ns=row.duration_ns,
            start_offset_ns=row.start_ns - step.start_ns,
        )
        for seq, row in enumerate(step.kernels)
    )


def _request_json(
    request: RequestMark, steps: Sequence[StepMark], *, warmup: bool, several: bool
) -> dict[str, object]:
    first, last = steps[0], steps[-1]
    pre_ns = first.start_ns - request.arrival_ns
    intervals = [b - a for a, b in pairwise(request.token_times_ns)]
    tokens = request.num_output_tokens
    itl_ns = (request.last_token_ns - request.first_token_ns) / (tokens - 1) if tokens > 1 else None
    row: dict[str, object] = {
        "repeat": request.repeat,
        "warmup": warmup,
        "queued_ms": pre_ns / NS_PER_MS,
        "ttft_ms": (request.first_token_ns - request.arrival_ns) / NS_PER_MS,
        "itl_ms_mean": None if itl_ns is None else itl_ns / NS_PER_MS,
        "itl_ms_p50": median(intervals) / NS_PER_MS if intervals else None,
        "e2e_ms": (request.last_token_ns - request.arrival_ns) / NS_PER_MS,
        "num_output_tokens": tokens,
    }
    if several:
        row["prompt_index"] = request.prompt_index
    if not warmup:
        row |= {
            "arrival_ns": request.arrival_ns,
            "pre_first_step_ns": pre_ns,
            "post_last_step_ns": request.last_token_ns - last.end_ns,
            "first_step_start_ns": first.start_ns,
            "last_step_end_ns": last.end_ns,
            "first_token_ns": request.first_token_ns,
            "last_token_ns": request.last_token_ns,
        }
    return row


def _per_kind(steps: Sequence[TimelineStep]) -> dict[str, object]:
    summary: dict[str, object] = {}
    for kind in ("prefill", "decode"):
        own = [step for step in steps if step.mark.kind == kind and not step.warmup]
        if not own:
            continue
        busy = [step.profiled.gpu_busy_ns for step in own if step.profiled is not None]
        entry: dict[str, object] = {
            "steps": len(own),
            "wall_ns_mean": math.fsum(step.mark.wall_ns for step in own) / len(own),
            "gpu_busy_ns_mean": math.fsum(busy) / len(busy) if busy else None,
        }
        gaps = [float(step.gap_before_ns) for step in own if step.gap_before_ns is not None]
        if gaps:
            entry["gap_before_ns"] = {
                "n": len(gaps),
                "mean": math.fsum(gaps) / len(gaps),
                "p50": percentile(gaps, 0.5),
                "p95": percentile(gaps, 0.95),
            }
        summary[kind] = entry
    return summary
