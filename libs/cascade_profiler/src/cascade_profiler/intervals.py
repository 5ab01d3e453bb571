"""Lengths of unions of intervals. Pure; integer nanoseconds throughout."""

from __future__ import annotations

from collections.abc import Iterable


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the time covered by at least one of the (start, end) intervals. [ns]

    Overlap counts once, order does not matter, an interval that ends before it starts covers nothing, and
    no interval covers 0.
    """
    covered = 0
    reached: int | None = None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            covered += max(0, end - start)
            reached = max(start, end)
        elif end > reached:
            covered += end - reached
            reached = end
    return covered
