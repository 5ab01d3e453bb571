"""Which step each GPU activity belongs to. Pure.

An activity belongs to the step whose range was open when the host launched it (its correlated API call began),
not to the one in which the GPU got round to it: launches run ahead of the GPU. Without a correlated call, its own
start on the GPU decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from cascade_profiler.intervals import union_ns
from cascade_profiler.nsys_export import Capture, Correlation, KernelRow, MemoryRow
from cascade_profiler.steps import parse_step_label


@dataclass(frozen=True, slots=True)
class ProfiledStep:
    """One step as the kernel profiler saw it. Times in ns since the capture's origin.

    kernels: in launch order, which is the order in which the tracer numbers them. On one stream that is also the
        order of their starts.
    gpu_busy_ns: [ns] time with at least one kernel, copy or fill of this step on the GPU.
    cuda_api_ns: [ns] time inside at least one CUDA call of this step; overlaps GPU work.
    """

    call: int
    repeat: int
    step: int
    start_ns: int
    end_ns: int
    kernels: tuple[KernelRow, ...]
    gpu_busy_ns: int
    cuda_api_ns: int


@dataclass(frozen=True, slots=True)
class _Launch:
    at_ns: int
    activity: KernelRow | MemoryRow


def profiled_steps(capture: Capture) -> tuple[ProfiledStep, ...]:
    """Return the marked steps of a capture in time order, each with its GPU and API activity.

    Activity outside every marked step (engine start, sampling warm-up) belongs to none. A label that occurs
    twice is an engine call that scheduled nothing and was marked again: see `steps.step_label`; both are returned,
    and their `call` numbers differ.
    """
    marked = sorted(
        (row.start_ns, row.end_ns, key)
        for row in capture.ranges
        if (key := parse_step_label(row.label)) is not None
    )
    starts = [start for start, _, _ in marked]
    called_at = {
        call.correlation: call.start_ns
        for call in reversed(capture.api_calls)  # the earliest call of a correlation wins
        if call.correlation is not None
    }

    def launched_at(activity: KernelRow | MemoryRow) -> int:
        own = activity.correlation
        if own is None:
            return activity.start_ns
        # An export without process numbers on its calls has them under None.
        anywhere = called_at.get(Correlation(None, own.number), activity.start_ns)
        return called_at.get(own, anywhere)

    def step_of(at_ns: int) -> int | None:
        index = bisect_right(starts, at_ns) - 1
        return index if index >= 0 and at_ns <= marked[index][1] else None

    launches: list[list[_Launch]] = [[] for _ in marked]
    activities: list[KernelRow | MemoryRow] = [*capture.kernels, *capture.memory]
    for activity in activities:
        at_ns = launched_at(activity)
        index = step_of(at_ns)
        if index is not None:
            launches[index].append(_Launch(at_ns, activity))
    api: list[list[tuple[int, int]]] = [[] for _ in marked]
    for call in capture.api_calls:
        index = step_of(call.start_ns)
        if index is not None:
            api[index].append((call.start_ns, call.end_ns))
    return tuple(
        _step(key, start, end, launches[index], api[index]) for index, (start, end, key) in enumerate(marked)
    )


def _step(
    key: tuple[int, int, int],
    start_ns: int,
    end_ns: int,
    launches: Sequence[_Launch],
    api: Sequence[tuple[int, int]],
) -> ProfiledStep:
    call, repeat, step = key
    kernels = sorted(
        ((launch.at_ns, launch.activity.start_ns, launch.activity) for launch in launches),
        key=lambda item: item[:2],
    )
    return ProfiledStep(
        call=call,
        repeat=repeat,
        step=step,
        start_ns=start_ns,
        end_ns=end_ns,
        kernels=tuple(activity for _, _, activity in kernels if isinstance(activity, KernelRow)),
        gpu_busy_ns=union_ns((launch.activity.start_ns, launch.activity.end_ns) for launch in launches),
        cuda_api_ns=union_ns(api),
    )
