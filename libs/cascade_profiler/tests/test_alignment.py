"""Aligning traced with measured kernels: leftovers on both sides, positions, and a slow reference."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from cascade_profiler.alignment import (
    ListSpan,
    StepAlignment,
    TracedStep,
    align_steps,
    kernel_mapping_json,
    real_timing_json,
    split_by_step,
)
from cascade_profiler.errors import ReconcileError
from cascade_profiler.steps import StepMark
from cascade_profiler.timeline import TimelineKernel, TimelineStep
from cascade_profiler.traces_folder import TracedKernel
from hypothesis import given, settings
from hypothesis import strategies as st


def traced(names: str, *, first_uid: int = 1) -> TracedStep:
    kernels = [
        (uid, TracedKernel(f"kernel-{uid}", uid, name, (1, 1, 1), (32, 1, 1)))
        for uid, name in enumerate(names, start=first_uid)
    ]
    return TracedStep(1, 0, tuple(kernels))


def measured(names: str, *, grid: tuple[int, int, int] = (1, 1, 1)) -> TimelineStep:
    kernels = tuple(
        TimelineKernel(i, name, grid, (32, 1, 1), 100 + i, 10 * i) for i, name in enumerate(names)
    )
    return TimelineStep(StepMark(0, 1, 0, "prefill", 1, 6, 0, 900), False, None, None, None, kernels)


def align(left: str, right: str) -> StepAlignment:
    (aligned,) = align_steps([traced(left)], [measured(right)])
    return aligned


def names(aligned: StepAlignment) -> tuple[str, str, str]:
    """Matched names, and what is left over of the trace and of the measurement."""
    return (
        "".join(pair.traced.name for pair in aligned.pairs),
        "".join(kernel.name for _, kernel in aligned.unmatched_traced),
        "".join(kernel.name for kernel in aligned.unmatched_measured),
    )


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("abc", "abc", ("abc", "", "")),
        ("axbc", "abyc", ("abc", "x", "y")),
        ("xabc", "abc", ("abc", "x", "")),
        ("abc", "abcy", ("abc", "", "y")),
        ("aab", "ab", ("ab", "a", "")),
        ("abab", "baba", ("bab", "a", "a")),
    ],
)
def test_what_has_no_counterpart_is_left_over(left: str, right: str, expected: tuple[str, str, str]) -> None:
    assert names(align(left, right)) == expected


def test_a_step_in_which_nothing_matches_is_refused_if_it_is_the_only_one() -> None:
    with pytest.raises(ReconcileError, match="no traced kernel could be matched"):
        align("a", "")


def test_a_different_launch_shape_is_a_different_kernel() -> None:
    with pytest.raises(ReconcileError, match="no traced kernel"):
        align_steps([traced("a")], [measured("a", grid=(2, 1, 1))])


def test_a_traced_step_that_was_never_measured_is_refused() -> None:
    with pytest.raises(ReconcileError, match="the timeline has no such step"):
        align_steps([TracedStep(3, 7, ())], [measured("a")])


@settings(max_examples=50)
@given(st.text("abc", max_size=9), st.text("abc", max_size=9))
def test_as_many_kernels_are_paired_as_a_slow_reference_pairs(left: str, right: str) -> None:
    @cache
    def longest(i: int, j: int) -> int:
        if i == len(left) or j == len(right):
            return 0
        together = longest(i + 1, j + 1) + 1 if left[i] == right[j] else 0
        return max(together, longest(i + 1, j), longest(i, j + 1))

    aligned = align("z" + left, "z" + right)  # one sure match
    pairs = [(pair.uid, pair.measured.seq) for pair in aligned.pairs]
    assert len(pairs) == longest(0, 0) + 1
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs)), "order is kept"
    assert len(aligned.pairs) + len(aligned.unmatched_traced) == len(left) + 1
    assert len(aligned.pairs) + len(aligned.unmatched_measured) == len(right) + 1


def kernel(number: int, name: str = "k") -> TracedKernel:
    return TracedKernel(f"kernel-{number}-ctx_0xa", number, name, (1, 1, 1), (32, 1, 1))


def test_kernels_get_their_uid_from_the_processed_list_and_their_step_from_the_raw_one() -> None:
    kernels = [kernel(n) for n in (41, 42, 57, 58, 59)]
    lists = {"kernelslist_ctx_0xa": tuple(k.stem for k in kernels)}
    spans = {(1, 0): [ListSpan("kernelslist_ctx_0xa", 0, 2)], (1, 5): [ListSpan("kernelslist_ctx_0xa", 3, 5)]}

    first, second = split_by_step(kernels, spans, lists)

    assert [(uid, k.kernel_id) for uid, k in first.kernels] == [(1, 41), (2, 42)]
    assert [(uid, k.kernel_id) for uid, k in second.kernels] == [(4, 58), (5, 59)]


def test_a_span_past_the_end_of_its_list_is_a_cut_trace() -> None:
    with pytest.raises(ReconcileError, match="should hold the kernels 0 to 2 of l, but that list has 1"):
        split_by_step([kernel(1)], {(1, 0): [ListSpan("l", 0, 2)]}, {"l": (kernel(1).stem,)})


def test_real_timing_keeps_a_row_for_every_traced_kernel() -> None:
    (aligned,) = align_steps([traced("axb")], [measured("ab")])

    rows = real_timing_json([aligned], [k for _, k in traced("axb").kernels])

    assert [(row["kernel_id"], row["kernel_name"], row["duration_ns"]) for row in rows] == [
        (1, "a", 100),
        (2, "x", None),
        (3, "b", 101),
    ]
    assert [row["uid"] for row in kernel_mapping_json([aligned])] == [1, 3]


def test_real_timing_counts_positions_where_file_numbers_start_again() -> None:
    rows = real_timing_json([], [kernel(8), kernel(9), kernel(1)])

    assert [row["kernel_id"] for row in rows] == [1, 2, 3]
