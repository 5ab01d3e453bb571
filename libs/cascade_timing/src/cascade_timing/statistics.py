"""Mean and percentile as the step-timing page defines them."""

import math
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of at least one value, in the values' unit."""
    return math.fsum(values) / len(values)


def percentile(values: Sequence[float], fraction: float) -> float:
    """Percentile by linear interpolation at position `fraction` · (n - 1) of the sorted values.

    values: at least one, in any order. fraction: 0 to 1. One value is every percentile of itself.
    Source: the step-timing page, section 3.
    """
    ordered = sorted(values)
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    if below == position:
        return ordered[below]
    return ordered[below] + (position - below) * (ordered[below + 1] - ordered[below])
