"""The few statistics that judge the estimate: pure functions over numbers."""

from __future__ import annotations

from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, 0 for none."""
    return sum(values) / len(values) if values else 0.0


def quantile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics, 0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    result = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in range(start, end + 1):
            result[order[place]] = (start + end) / 2 + 1
        start = end + 1
    return result


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Spearman's coefficient; None for fewer than two values or where one side does not vary."""
    if len(left) < 2:
        return None
    a, b = ranks(left), ranks(right)
    mean_a, mean_b = mean(a), mean(b)
    spread_a = sum((x - mean_a) ** 2 for x in a)
    spread_b = sum((y - mean_b) ** 2 for y in b)
    if not spread_a or not spread_b:
        return None
    joint = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    return float(joint / (spread_a * spread_b) ** 0.5)
