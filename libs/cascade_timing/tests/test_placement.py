"""Where kernels of a replayed step start."""

from itertools import pairwise

import pytest
from cascade_timing.placement import Placing, place
from hypothesis import given, settings
from hypothesis import strategies as st


def kernels(*rows: tuple[float, float, float]) -> list[Placing]:
    """(measured start, measured duration, new duration) rows."""
    return [Placing(seq, start, measured, new) for seq, (start, measured, new) in enumerate(rows)]


def test_idle_time_is_scaled_by_one_factor_to_fill_the_wall() -> None:
    # Idle 10, 20 and 30 around kernels of 20 and 20; new durations 40 and 20 leave 30 of a wall of 90: half.
    placed = place(kernels((10, 20, 40), (50, 20, 20)), measured_wall_ns=100, wall_ns=90)
    assert placed == [5, 55]


def test_unchanged_durations_in_an_unchanged_wall_keep_their_starts() -> None:
    rows = kernels((10, 20, 20), (25, 40, 40), (30, 5, 5), (80, 10, 10))
    assert place(rows, measured_wall_ns=100, wall_ns=100) == [10, 25, 30, 80]


def test_overlap_is_kept_and_not_scaled() -> None:
    placed = place(kernels((0, 100, 200), (50, 100, 100), (170, 10, 10)), measured_wall_ns=200, wall_ns=300)
    assert placed[:2] == [0, 150]
    assert placed[2] == pytest.approx(250 + 20)


def test_a_kernel_does_not_start_before_its_shrunken_predecessor() -> None:
    placed = place(kernels((0, 100, 10), (20, 100, 100)), measured_wall_ns=120, wall_ns=110)
    assert placed == [0, 0]


def test_a_kernel_inside_a_longer_one_does_not_lengthen_the_step() -> None:
    rows = kernels((0, 100, 100), (10, 10, 10))
    assert place(rows, measured_wall_ns=150, wall_ns=150) == [0, 10]


def test_kernels_that_do_not_fit_are_laid_end_to_end() -> None:
    placed = place(kernels((5, 10, 80), (20, 10, 80)), measured_wall_ns=40, wall_ns=100)
    assert placed == [0, 80]


def test_a_kernel_that_ran_past_the_step_keeps_doing_so() -> None:
    placed = place(kernels((10, 20, 20), (90, 20, 20)), measured_wall_ns=100, wall_ns=100)
    assert placed == [10, 90]


def test_kernels_are_placed_by_start_and_returned_in_the_callers_order() -> None:
    rows = [Placing(7, 60, 20, 20), Placing(9, 10, 20, 20)]
    assert place(rows, measured_wall_ns=100, wall_ns=100) == [60, 10]


def test_no_kernels_give_no_starts() -> None:
    assert place([], measured_wall_ns=100, wall_ns=50) == []


durations = st.integers(0, 1000)


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.tuples(durations, durations, durations), max_size=12), slack=st.integers(0, 5000))
def test_disjoint_kernels_stay_disjoint_in_order_and_inside_the_wall(
    rows: list[tuple[int, int, int]], slack: int
) -> None:
    placing: list[Placing] = []
    end = 0
    for seq, (idle, measured, new) in enumerate(rows):
        placing.append(Placing(seq, end + idle, measured, new))
        end += idle + measured
    wall = sum(new for _, _, new in rows) + slack
    starts = place(placing, measured_wall_ns=end + 100, wall_ns=wall)
    position = 0.0
    for start, (idle, _, new) in zip(starts, rows, strict=True):
        assert start >= position - 1e-6
        assert idle > 0 or start == pytest.approx(position)
        position = start + new
    assert position <= wall + 1e-6


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.tuples(durations, durations, durations), min_size=1, max_size=12))
def test_launch_order_survives_any_overlap_and_any_durations(rows: list[tuple[int, int, int]]) -> None:
    placing = [Placing(seq, start, measured, new) for seq, (start, measured, new) in enumerate(rows)]
    starts = place(placing, measured_wall_ns=3000, wall_ns=4000)
    order = sorted(placing, key=lambda p: (p.measured_start_ns, p.seq))
    placed = [starts[p.seq] for p in order]
    assert all(later >= earlier - 1e-6 for earlier, later in pairwise(placed))
    assert placed[0] >= 0
