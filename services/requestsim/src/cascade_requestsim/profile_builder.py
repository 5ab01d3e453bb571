"""`build_profile`: from a finished sim's documents to its performance profile.

Refuses what the model does not describe instead of averaging over it. Source: the request model, section 1.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from cascade_requestsim.documents import (
    Timeline,
    TimelineKernel,
    TimelineStep,
    optional_fraction,
    optional_int,
    parse_timeline,
    required,
)
from cascade_requestsim.errors import ProfileRefused
from cascade_requestsim.gpu_spec import gpu_spec
from cascade_requestsim.groups import Group, group_step
from cascade_requestsim.model_shape import parse_model_shape
from cascade_requestsim.profile import DEFAULT_MODEL_LIMIT, CalibratedPoint, PerfProfile
from cascade_requestsim.provenance import counterfactual_note, is_counterfactual, standing_assumptions
from cascade_requestsim.roofline import GroupTimes

DEFAULT_GPU_MEMORY_UTILIZATION = 0.8
"""Share of GPU memory that vLLM may use where the run does not state it."""

_MAX_TOKENS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _MeasuredStep:
    """One steady step reduced to what the medians are taken over. [ns]"""

    floors: GroupTimes
    residual: float
    host: float
    gap: float | None


def build_profile(
    *,
    timeline: Mapping[str, object] | None,
    run: Mapping[str, object] | None,
    workload: Mapping[str, object] | None,
    gpu_config: str,
) -> PerfProfile:
    """Build the profile of one finished sim.

    timeline: the decoded simulated timeline. run, workload: the trace's decoded `run.json` and `workload.json`.
    Raises ProfileInputMissing (a document is None), UnsupportedModel (model or GPU config outside the
    model) or ProfileRefused (a timeline of another shape); the message names the cause.
    """
    gpu = gpu_spec(gpu_config)
    run = required(run, "run.json")
    workload = required(workload, "workload.json")
    model, shape_assumptions = parse_model_shape(run)
    parsed = parse_timeline(timeline)
    repeats = _steady_repeats(parsed)
    prompt = repeats[0][0].num_scheduled_tokens
    measured = [[_measure(step) for step in steps] for steps in repeats]
    prefills = [steps[0] for steps in measured]
    decodes = [step for steps in measured for step in steps[1:]]
    limit, utilization, default_notes = _limits(run, workload)
    pre_ns = _median_envelope(
        (r.pre_first_step_ns for r in parsed.requests if not r.warmup), "pre_first_step_ns"
    )
    gap_prefill_ns, gap_decode_ns = _median_gap(prefills), _median_gap(decodes)
    _check_time_advances(prefills, min(pre_ns, gap_prefill_ns), "prefill")
    _check_time_advances(decodes, gap_decode_ns, "decode")
    note = run.get("provenance")
    source_note = note if isinstance(note, str) and note else None
    return PerfProfile(
        gpu_config=gpu_config,
        gpu=gpu,
        model=model,
        prefill_tokens=prompt,
        prefill=_median_point(prefills),
        decode_contexts=tuple(prompt + position for position in range(1, len(measured[0]))),
        decode=tuple(_median_point(point) for point in list(zip(*measured, strict=True))[1:]),
        host_prefill_ns=median(step.host for step in prefills),
        host_decode_ns=median(step.host for step in decodes),
        gap_prefill_ns=gap_prefill_ns,
        gap_decode_ns=gap_decode_ns,
        pre_ns=pre_ns,
        post_ns=_median_envelope(
            (r.post_last_step_ns for r in parsed.requests if not r.warmup), "post_last_step_ns"
        ),
        model_limit_tokens=limit,
        gpu_memory_utilization=utilization,
        workload_max_tokens=optional_int(workload, "max_tokens", "workload.json", maximum=_MAX_TOKENS),
        assumptions=standing_assumptions(source_note)
        + counterfactual_note(run.get("gpu"), gpu_config)
        + shape_assumptions
        + default_notes,
        source_note=source_note,
        counterfactual=is_counterfactual(run.get("gpu"), gpu_config),
    )


def _steady_repeats(timeline: Timeline) -> list[list[TimelineStep]]:
    """Steady steps by repeat, in step order. Raises ProfileRefused unless all repeats have one and the same shape."""
    by_repeat: dict[int, list[TimelineStep]] = defaultdict(list)
    for step in timeline.steps:
        if not step.warmup:
            by_repeat[step.repeat].append(step)
    if not by_repeat:
        raise ProfileRefused(
            "the timeline has no steady repeat; record at least one repeat after the warm-up"
        )
    repeats = []
    for repeat, steps in sorted(by_repeat.items()):
        steps.sort(key=lambda step: step.step)
        _check_repeat(repeat, steps)
        repeats.append(steps)
    first = repeats[0]
    for steps in repeats[1:]:
        if steps[0].num_scheduled_tokens != first[0].num_scheduled_tokens:
            raise ProfileRefused(
                f"repeats differ in prompt size: {first[0].num_scheduled_tokens} and "
                f"{steps[0].num_scheduled_tokens} tokens; a profile needs equal repeats"
            )
        if len(steps) != len(first):
            raise ProfileRefused(
                f"repeats differ in step count: {len(first)} and {len(steps)}; a profile needs equal repeats"
            )
    return repeats


def _check_repeat(repeat: int, steps: Sequence[TimelineStep]) -> None:
    for step in steps:
        if step.num_reqs != 1:
            raise ProfileRefused(
                f"repeat {repeat} step {step.step} ran {step.num_reqs} requests; a profile needs single-request repeats"
            )
    if steps[0].kind != "prefill" or any(step.kind == "prefill" for step in steps[1:]):
        raise ProfileRefused(
            f"repeat {repeat} must have exactly one prefill step, and first; found "
            f"{sum(step.kind == 'prefill' for step in steps)} prefill steps, first step is {steps[0].kind}"
        )
    if len({step.step for step in steps}) != len(steps):
        raise ProfileRefused(f"repeat {repeat} holds the same step twice")
    if steps[0].num_scheduled_tokens < 1:
        raise ProfileRefused(f"repeat {repeat} has a prefill of {steps[0].num_scheduled_tokens} tokens")
    if len(steps) == 1:
        raise ProfileRefused(
            f"repeat {repeat} has no decode step; trace a request of at least two output tokens"
        )


def _measure(step: TimelineStep) -> _MeasuredStep:
    where = f"repeat {step.repeat} step {step.step}"
    if step.gpu_busy_ns is None:
        raise ProfileRefused(f"{where} has no gpu_busy_ns; a profile needs the GPU time of every steady step")
    kernels = step.kernels
    if not kernels:
        # All of its GPU time would count as constant, whatever the request's size.
        raise ProfileRefused(f"{where} holds no kernel; a profile needs the kernels of every steady step")
    try:
        groups = group_step([kernel.name for kernel in kernels], [kernel.grid for kernel in kernels])
    except ValueError as error:
        raise ProfileRefused(f"{where}: {error}") from error
    sums = [0.0] * len(Group)
    for kernel, group in zip(kernels, groups, strict=True):
        sums[group] += kernel.duration_ns
    residual = max(0.0, step.gpu_busy_ns - union_ns(kernels))
    floors = (sums[0], sums[1], sums[2], sums[3], sums[4], sums[5])
    host = step.baseline_wall_ns - step.gpu_busy_ns
    return _MeasuredStep(floors, residual, host, step.baseline_gap_before_ns)


def union_ns(kernels: Iterable[TimelineKernel]) -> float:
    """Time in which at least one kernel ran: the sum of durations minus their overlap. [ns]"""
    ordered = sorted(kernels, key=lambda kernel: kernel.start_offset_ns)
    total = 0.0
    overlap = 0.0
    latest_end = float("-inf")
    for kernel in ordered:
        end = kernel.start_offset_ns + kernel.duration_ns
        total += kernel.duration_ns
        overlap += max(0.0, min(end, latest_end) - kernel.start_offset_ns)
        latest_end = max(latest_end, end)
    return total - overlap


def _median_point(steps: Sequence[_MeasuredStep]) -> CalibratedPoint:
    columns = zip(*(step.floors for step in steps), strict=True)
    linear, attention, kv_write, lm_head, sampler, elementwise = (median(column) for column in columns)
    return CalibratedPoint(
        (linear, attention, kv_write, lm_head, sampler, elementwise), median(step.residual for step in steps)
    )


def _median_gap(steps: Sequence[_MeasuredStep]) -> float:
    """Median gap before steps of one kind; 0 where none was recorded, as for first steps."""
    gaps = [step.gap for step in steps if step.gap is not None]
    return median(gaps) if gaps else 0.0


def _check_time_advances(steps: Sequence[_MeasuredStep], lead_ns: float, kind: str) -> None:
    """Raise ProfileRefused where a step would end before the one before it. `lead_ns`: least time before a step."""
    host = median(step.host for step in steps)
    busy = min(math.fsum(step.floors) + step.residual for step in steps)
    if lead_ns + host + busy <= 0:
        raise ProfileRefused(
            f"a {kind} step would take {lead_ns + host + busy:g} ns from the end of the step before it; the timeline's "
            "walls, gaps and GPU times contradict each other"
        )


def _median_envelope(values: Iterable[float | None], name: str) -> float:
    known = [value for value in values if value is not None]
    if not known:
        raise ProfileRefused(
            f"no steady request of the timeline has {name}; record request timing with the steps"
        )
    return median(known)


def _limits(run: Mapping[str, object], workload: Mapping[str, object]) -> tuple[int, float, tuple[str, ...]]:
    """(model limit, GPU memory utilization, assumptions that filled what is missing)."""
    config = run.get("model_config")
    places = [(run, "run.json"), (config if isinstance(config, Mapping) else {}, "run.json's model_config")]
    places.append((workload, "workload.json"))
    notes: list[str] = []
    limits = [optional_int(d, "max_model_len", name, maximum=_MAX_TOKENS) for d, name in places]
    limits.append(optional_int(places[1][0], "max_position_embeddings", places[1][1], maximum=_MAX_TOKENS))
    limit = next((value for value in limits if value is not None), None)
    if limit is None:
        limit = DEFAULT_MODEL_LIMIT
        notes.append(f"Model limit missing from run.json: assumed {DEFAULT_MODEL_LIMIT} tokens")
    shares = [optional_fraction(d, "gpu_memory_utilization", name) for d, name in places]
    share = next((value for value in shares if value is not None), None)
    if share is None:
        share = DEFAULT_GPU_MEMORY_UTILIZATION
        notes.append(
            f"GPU memory utilization missing from run.json: assumed {DEFAULT_GPU_MEMORY_UTILIZATION}"
        )
    return limit, share, tuple(notes)
