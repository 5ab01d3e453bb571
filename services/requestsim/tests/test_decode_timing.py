"""The closed form of a run of steps against adding the steps up."""

import itertools

import pytest
from cascade_requestsim.decode_group import DecodeGroup
from cascade_requestsim.decode_timing import DecodeTiming
from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.schedule_log import Column
from cascade_requestsim.step_costs import StepCosts
from hypothesis import given, settings
from hypothesis import strategies as st


@given(
    cached=st.lists(st.integers(1, 300), min_size=1, max_size=8),
    limit=st.integers(1, 200),
    share=st.one_of(st.none(), st.floats(0.0001, 1.2)),
)
@settings(max_examples=50, deadline=None)
def test_a_run_ends_with_the_first_step_at_or_after_its_stop(
    knotted: PerfProfile, *, cached: list[int], limit: int, share: float | None
) -> None:
    durations = []
    for step in range(1, limit + 1):
        cost = StepCosts(knotted).decode(len(cached), max(cached) + step)
        context = sum(cached) + step * len(cached)
        durations.append(cost.fixed + max(cost.attention_floor, cost.attention_slope * context))
    ends = list(itertools.accumulate(durations, initial=1000.0))[1:]
    stop = float("inf") if share is None else 1000.0 + share * (ends[-1] - 1000.0)
    expected = next((index for index, end in enumerate(ends, start=1) if end >= stop), limit)

    group = DecodeGroup(len(cached), block_size=4)
    for request, tokens in enumerate(cached):
        group.join(request, cached=tokens, step=50, remaining=1000)
    rows: list[float] = []
    timing = DecodeTiming(knotted, StepCosts(knotted), group)
    steps, clock = timing.write(rows, step=50, clock=1000.0, limit=limit, stop=stop)

    # A stop within rounding of a step's end may fall on either side of it.
    near = min(abs(end - stop) for end in ends) < 1e-6
    assert steps == expected or (near and abs(steps - expected) == 1)
    assert clock == pytest.approx(ends[steps - 1], rel=1e-12)
    assert sum(rows[Column.STEPS :: len(Column)]) == steps


def test_a_group_forgets_members_that_left() -> None:
    group = DecodeGroup(3, block_size=4)
    group.join(0, cached=10, step=5, remaining=2)
    group.join(1, cached=30, step=5, remaining=9)
    group.join(2, cached=20, step=5, remaining=4)
    assert (group.next_done, group.first_done(), group.largest_offset) == (7, 0, 25)
    assert list(group.new_blocks(5, 6)) == [1, 0, 2, 0, 1, 0]
    assert group.leave(1, 6) == 31
    assert (group.size, group.largest_offset) == (2, 15)
    assert group.leave(0, 7) == 12
    assert (group.next_done, group.first_done()) == (9, 2)
    group.join(1, cached=2, step=7, remaining=1)
    assert (group.next_done, group.first_done(), group.largest_offset) == (8, 1, 15)
