"""Which traced kernel is which measured kernel: `trace_alignment.json`, `kernel_mapping.json`, `real_timing.json`.

The traced run and the profiled run launch the same kernels in the same order, apart from a few: a library may
autotune once more, a copy may become a kernel. Within one step the two sequences are therefore aligned by their
longest common subsequence; what is left over on either side is reported, never guessed. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from cascade_profiler.errors import ReconcileError
from cascade_profiler.kernel_names import same_kernel
from cascade_profiler.timeline import TimelineKernel, TimelineStep, dim_text
from cascade_profiler.traces_folder import TracedKernel

StepKey: TypeAlias = tuple[int, int]
_Same: TypeAlias = Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class TracedStep:
    """The kernels of one traced step, in launch order, each with its uid.

    uid: position in the processed kernel list, from 1. That is how Accel-Sim numbers launches, so that it is also
        the uid in the simulator's log; the tracer's own number counts untraced launches as well.
    """

    repeat: int
    step: int
    kernels: tuple[tuple[int, TracedKernel], ...]


@dataclass(frozen=True, slots=True)
class ListSpan:
    """Kernel lines `first` up to before `end` of one raw list, counted from 0."""

    list_name: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Pair:
    """One traced kernel and the measured kernel that it is."""

    uid: int
    traced: TracedKernel
    measured: TimelineKernel

    @property
    def exact(self) -> bool:
        """Whether the two tools spelled the name alike."""
        return self.traced.name == self.measured.name


@dataclass(frozen=True, slots=True)
class StepAlignment:
    """The result for one traced step; the leftovers keep their order."""

    repeat: int
    step: int
    pairs: tuple[Pair, ...]
    unmatched_traced: tuple[tuple[int, TracedKernel], ...]
    unmatched_measured: tuple[TimelineKernel, ...]


def align_steps(traced: Sequence[TracedStep], timeline: Sequence[TimelineStep]) -> tuple[StepAlignment, ...]:
    """Align every traced step with the timeline's step of the same (repeat, step).

    Raises ReconcileError for a traced step that the timeline lacks, or if nothing at all could be paired.
    """
    measured = {step.mark.key: step.kernels for step in timeline}
    aligned: list[StepAlignment] = []
    for step in traced:
        kernels = measured.get((step.repeat, step.step))
        if kernels is None:
            raise ReconcileError(
                f"repeat {step.repeat} step {step.step} was traced, but the timeline has no such step"
            )
        aligned.append(_align(step, kernels))
    if any(step.kernels for step in traced) and not any(step.pairs for step in aligned):
        raise ReconcileError(
            "no traced kernel could be matched with a measured one; the traced run did other work than the profiled "
            "run, or one of them names kernels in a way that cannot be compared (see trace_alignment.json)"
        )
    return tuple(aligned)


def split_by_step(
    kernels: Sequence[TracedKernel],
    spans: Mapping[StepKey, Sequence[ListSpan]],
    lists: Mapping[str, Sequence[str]],
) -> tuple[TracedStep, ...]:
    """Give the processed list's kernels their uids and steps.

    kernels: in the order of `kernelslist.g`.
    spans: for each traced step, the kernel lines that it added to the raw lists.
    lists: stems of the kernel lines of each raw list.

    Kernels between two traced steps (none, if the tracer was off there) belong to none. Raises ReconcileError if a
    span points past its list.
    """
    step_of: dict[str, StepKey] = {}
    for key, span in ((key, span) for key, own_spans in spans.items() for span in own_spans):
        stems = lists.get(span.list_name, ())
        if not 0 <= span.first <= span.end <= len(stems):
            raise ReconcileError(
                f"repeat {key[0]} step {key[1]} should hold the kernels {span.first} to {span.end} of "
                f"{span.list_name}, but that list has {len(stems)}"
            )
        step_of.update(dict.fromkeys(stems[span.first : span.end], key))
    own: dict[StepKey, list[tuple[int, TracedKernel]]] = defaultdict(list)
    for uid, kernel in enumerate(kernels, start=1):
        own_key = step_of.get(kernel.stem)
        if own_key is not None:
            own[own_key].append((uid, kernel))
    return tuple(TracedStep(repeat, step, tuple(own[repeat, step])) for repeat, step in sorted(spans))


def alignment_json(aligned: Sequence[StepAlignment]) -> dict[str, object]:
    """Return `trace_alignment.json`: counts, how names matched, and every kernel left over on either side."""
    pairs = [pair for step in aligned for pair in step.pairs]
    return {
        "method": "longest common subsequence of (name, grid, block) in each traced step",
        "steps": [_step_json(step) for step in aligned],
        "summary": {
            "steps": len(aligned),
            "matched": len(pairs),
            "matched_by_full_name": sum(pair.exact for pair in pairs),
            "matched_by_base_name": sum(not pair.exact for pair in pairs),
            "unmatched_traced": sum(len(step.unmatched_traced) for step in aligned),
            "unmatched_measured": sum(len(step.unmatched_measured) for step in aligned),
        },
    }


def kernel_mapping_json(aligned: Sequence[StepAlignment]) -> list[dict[str, object]]:
    """Return `kernel_mapping.json`: one row a pair, by uid, with the name as the simulator's log has it."""
    return [
        {"uid": p.uid, "name": p.traced.name, "repeat": repeat, "step": step, "seq": p.measured.seq}
        for p, repeat, step in sorted(
            ((p, step.repeat, step.step) for step in aligned for p in step.pairs), key=lambda row: row[0].uid
        )
    ]


def real_timing_json(
    aligned: Sequence[StepAlignment], kernels: Sequence[TracedKernel]
) -> list[dict[str, object]]:
    """Return `real_timing.json`: one row for every traced kernel, in list order, its measured duration in ns.

    kernel_id is the number in the trace file's name, as everywhere in a trace; it is the uid if these numbers do not
    grow along the list (several contexts), because readers sort the rows by it.

    A kernel without a measured counterpart has null for its duration: readers pair rows with simulated kernels by
    position, so that leaving one out would shift all that follow.
    """
    measured = {pair.uid: pair.measured for step in aligned for pair in step.pairs}
    numbers = [kernel.kernel_id for kernel in kernels]
    growing = all(a < b for a, b in pairwise(numbers))
    rows: list[dict[str, object]] = []
    for uid, kernel in enumerate(kernels, start=1):
        found = measured.get(uid)
        rows.append(
            {
                "kernel_id": kernel.kernel_id if growing else uid,
                "uid": uid,
                "kernel_name": kernel.name,
                "duration_ns": None if found is None else found.duration_ns,
                "grid": dim_text(kernel.grid),
                "block": dim_text(kernel.block),
            }
        )
    return rows


def _align(step: TracedStep, measured: Sequence[TimelineKernel]) -> StepAlignment:
    chosen = _common_subsequence([kernel for _, kernel in step.kernels], measured)
    taken_left = {left for left, _ in chosen}
    taken_right = {right for _, right in chosen}
    return StepAlignment(
        repeat=step.repeat,
        step=step.step,
        pairs=tuple(Pair(*step.kernels[left], measured[right]) for left, right in chosen),
        unmatched_traced=tuple(item for i, item in enumerate(step.kernels) if i not in taken_left),
        unmatched_measured=tuple(item for i, item in enumerate(measured) if i not in taken_right),
    )


def _common_subsequence(
    traced: Sequence[TracedKernel], measured: Sequence[TimelineKernel]
) -> list[tuple[int, int]]:
    """Return the index pairs of a longest common subsequence; the earliest where several are as long.

    Equal ends are cut off first, so that the quadratic part sees only the neighbourhood of differences.
    """
    known: dict[tuple[str, str], bool] = {}

    def same(left: int, right: int) -> bool:
        a, b = traced[left], measured[right]
        if a.grid != b.grid or a.block != b.block:
            return False
        names = (a.name, b.name)
        if names not in known:
            known[names] = same_kernel(*names)
        return known[names]

    first, left_end, right_end = 0, len(traced), len(measured)
    while first < min(left_end, right_end) and same(first, first):
        first += 1
    while min(left_end, right_end) > first and same(left_end - 1, right_end - 1):
        left_end -= 1
        right_end -= 1
    head = [(i, i) for i in range(first)]
    tail = list(zip(range(left_end, len(traced)), range(right_end, len(measured)), strict=True))
    return head + _quadratic(same, (first, left_end), (first, right_end)) + tail


def _quadratic(
    same: _Same, left_range: tuple[int, int], right_range: tuple[int, int]
) -> list[tuple[int, int]]:
    (left_from, left_end), (right_from, right_end) = left_range, right_range
    width = right_end - right_from
    # longest[i][j]: length of the longest common subsequence of what follows (i, j).
    longest = [[0] * (width + 1)]
    for left in range(left_end - 1, left_from - 1, -1):
        below = longest[-1]
        row = [0] * (width + 1)
        for j in range(width - 1, -1, -1):
            row[j] = below[j + 1] + 1 if same(left, right_from + j) else max(below[j], row[j + 1])
        longest.append(row)
    longest.reverse()
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < left_end - left_from and j < width:
        if same(left_from + i, right_from + j):
            pairs.append((left_from + i, right_from + j))
            i, j = i + 1, j + 1
        elif longest[i + 1][j] >= longest[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _step_json(step: StepAlignment) -> dict[str, object]:
    return {
        "repeat": step.repeat,
        "step": step.step,
        "traced": len(step.pairs) + len(step.unmatched_traced),
        "measured": len(step.pairs) + len(step.unmatched_measured),
        "matched": len(step.pairs),
        "unmatched_traced": [
            {
                "uid": uid,
                "kernel_id": kernel.kernel_id,
                "name": kernel.name,
                "grid": dim_text(kernel.grid),
                "block": dim_text(kernel.block),
            }
            for uid, kernel in step.unmatched_traced
        ],
        "unmatched_measured": [kernel.to_json() for kernel in step.unmatched_measured],
    }
