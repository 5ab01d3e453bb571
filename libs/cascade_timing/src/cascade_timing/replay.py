"""Replay a measured timeline with simulated kernel durations: `cascade simulate`.

Only the durations of replaced kernels change. Whatever else the measurement holds stays as it is: the host's
part of each step, GPU activity that no kernel explains, overlap, the idle time between steps, and what a
request waits before its first and after its last step. The host is not modelled at all.

Source: the step-timing page, section 2.
"""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence

from cascade_timing.coverage import coverage
from cascade_timing.errors import ImpossibleReplayError
from cascade_timing.fields import JsonObject, Number
from cascade_timing.matching import KernelDuration, assign, parse_durations
from cascade_timing.placement import Placing, place
from cascade_timing.replayed import RepeatReplay, StepReplay
from cascade_timing.requests import replay_request
from cascade_timing.summary import gap_summary, per_kind
from cascade_timing.timeline import KernelKey, Step, Timeline, as_timeline

HOST_MODEL = "scaled-gaps"
_ASSUMPTION_WITH_GAPS = "one request per repeat; queued (or arrival) + pre/steps/inter-step gaps/post"
_ASSUMPTION_WITHOUT_GAPS = "one request per repeat; queue + prefill/decode walls"


def simulate(
    corrected: Timeline | Mapping[str, object],
    durations: Iterable[KernelDuration] | Mapping[str, object] = (),
) -> JsonObject:
    """The timeline as it would be with the simulated durations: a `simulated_timeline.json`.

    corrected: the measured timeline, parsed or as read.
    durations: simulated durations [ns], as rows or as a durations file was read. Kernels without a row keep their
        measured duration; rows for kernels of warm-up or unprofiled steps have no effect.

    An empty timeline gives empty steps and requests, and a coverage of zero. The result is strict JSON.

    Raises:
        InvalidInputError: the timeline or the durations are malformed.
        UnknownKernelError: a duration names a kernel that the timeline lacks.
        ImpossibleReplayError: a step's replayed GPU or wall time would be negative.
    """
    timeline = as_timeline(corrected)
    rows = parse_durations(durations) if isinstance(durations, Mapping) else durations
    assigned = assign(timeline, rows)
    repeats = _replay_repeats(timeline, assigned)
    replays = {
        (replay.step.repeat, replay.step.step): (repeat, replay)
        for repeat in repeats.values()
        for replay in repeat.steps
    }
    steps: list[JsonObject] = []
    for step in timeline.steps:
        found = replays.get((step.repeat, step.step))
        steps.append(_copied(step.raw) if found is None or not found[1].modelled else _step_json(*found))
    return {
        "meta": copy.deepcopy(dict(timeline.meta)),
        "steps": steps,
        "requests": [
            _copied(request.raw) if request.warmup else replay_request(request, repeats.get(request.repeat))
            for request in timeline.requests
        ],
        "summary": _summary(timeline, repeats, assigned),
    }


def _replay_repeats(timeline: Timeline, assigned: Mapping[KernelKey, Number]) -> dict[int, RepeatReplay]:
    by_repeat: dict[int, list[Step]] = {}
    for step in timeline.steady_steps():
        by_repeat.setdefault(step.repeat, []).append(step)
    return {repeat: _replay_repeat(steps, assigned) for repeat, steps in by_repeat.items()}


def _replay_repeat(steps: Sequence[Step], assigned: Mapping[KernelKey, Number]) -> RepeatReplay:
    """Lay the replayed steps of one repeat end to end, with the measured gaps between them.

    Offsets are from the first step's start, so that no precision is lost to absolute timestamps: at the Unix
    time of today, neighbouring floats are 256 ns apart.
    """
    replays: list[StepReplay] = []
    end: Number = 0
    for step in steps:
        gap = (step.baseline_gap_before_ns or 0) if replays else 0
        replay = _replay_step(step, assigned, start_offset_ns=end + gap)
        replays.append(replay)
        end = replay.end_offset_ns
    return RepeatReplay(steps[0].baseline_wall_start_ns, tuple(replays))


def _replay_step(step: Step, assigned: Mapping[KernelKey, Number], *, start_offset_ns: Number) -> StepReplay:
    """One step: delta = Σ (simulated - measured); busy' = busy + delta; wall' = host + busy'. [ns]

    An unprofiled step keeps its measured wall: it passes time, and nothing in it is modelled.
    """
    if step.gpu_busy_ns is None:
        return StepReplay(step, start_offset_ns, step.baseline_wall_ns, None, None, {})
    durations: dict[int, Number] = {}
    changes: list[Number] = []
    for kernel in step.kernels:
        simulated = assigned.get(KernelKey(step.repeat, step.step, kernel.seq))
        if simulated is not None:
            durations[kernel.seq] = simulated
            changes.append(simulated - kernel.duration_ns)
    delta = math.fsum(changes) if changes else 0  # without a change, integers stay integers
    host = step.baseline_wall_ns - step.gpu_busy_ns
    busy = step.gpu_busy_ns + delta
    wall = host + busy
    if busy < 0 or wall < 0:
        raise ImpossibleReplayError(
            f"repeat {step.repeat}, step {step.step}: the simulated durations would make GPU busy {busy:.0f} ns "
            f"(measured {step.gpu_busy_ns:.0f}) and wall {wall:.0f} ns (measured {step.baseline_wall_ns:.0f}); "
            "expected 0 or more. The kernels overlap, or exceed the wall, by more than the model can keep"
        )
    return StepReplay(step, start_offset_ns, wall, busy, host, durations)


def _step_json(repeat: RepeatReplay, replay: StepReplay) -> JsonObject:
    step = replay.step
    start, end = repeat.at(replay.start_offset_ns), repeat.at(replay.end_offset_ns)
    return _copied(step.raw, but_not="kernels") | {
        "baseline_wall_ns": replay.wall_ns,
        "profiled_wall_ns": replay.wall_ns,
        "gpu_busy_ns": replay.busy_ns,
        "cuda_api_ns": None,
        "host_ns": replay.host_ns,
        "kernels": _kernels_json(replay),
        "baseline_wall_start_ns": start,
        "baseline_wall_end_ns": end,
        "baseline_gap_before_ns": step.baseline_gap_before_ns,
        "profiled_wall_start_ns": start,
        "profiled_wall_end_ns": end,
        "profiled_gap_before_ns": step.baseline_gap_before_ns,
    }


def _kernels_json(replay: StepReplay) -> list[JsonObject]:
    step = replay.step
    durations = [replay.duration_ns(kernel) for kernel in step.kernels]
    starts = place(
        [
            Placing(kernel.seq, kernel.start_offset_ns, kernel.duration_ns, duration)
            for kernel, duration in zip(step.kernels, durations, strict=True)
        ],
        # Offsets were measured inside the profiled wall; only a timeline that lacks it falls back to the other.
        measured_wall_ns=step.baseline_wall_ns if step.profiled_wall_ns is None else step.profiled_wall_ns,
        wall_ns=replay.wall_ns,
    )
    return [
        _copied(kernel.raw) | {"duration_ns": duration, "start_offset_ns": start}
        for kernel, duration, start in zip(step.kernels, durations, starts, strict=True)
    ]


def _summary(
    timeline: Timeline, repeats: Mapping[int, RepeatReplay], assigned: Mapping[KernelKey, Number]
) -> JsonObject:
    modelled = [replay for repeat in repeats.values() for replay in repeat.steps if replay.modelled]
    simulation: JsonObject = {
        "host_model": HOST_MODEL,
        "host_fit": {},
        "coverage": coverage([replay.step for replay in modelled], assigned),
    }
    if gap_summary(list(timeline.steady_steps())) is None:
        simulation["request_assumption"] = _ASSUMPTION_WITHOUT_GAPS
    else:
        simulation |= {
            "request_assumption": _ASSUMPTION_WITH_GAPS,
            "gap_model": "measured",
            "gap_fit": {},
        }
    return {"simulation": simulation, "per_kind": per_kind(modelled)}


def _copied(raw: Mapping[str, object], *, but_not: str = "") -> JsonObject:
    """A copy that shares nothing with the input, so that changing a result cannot change a measurement."""
    return {name: copy.deepcopy(value) for name, value in raw.items() if name != but_not}
