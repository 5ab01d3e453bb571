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


def tied_order(truth: Sequence[float], found: Sequence[float], tolerance: float) -> list[float]:
    """`truth` as an order in which near ties carry none: values within `tolerance` (relative) of the smallest of
    their group are ordered as `found` orders them.

    Spearman's coefficient of the result and `found` then holds no order against `found` that the truth does
    not have.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(truth)), key=lambda place: truth[place]):
        least = truth[groups[-1][0]] if groups else 0.0
        if groups and truth[index] - least <= tolerance * least:
            groups[-1].append(index)
        else:
            groups.append([index])
    result = [0.0] * len(truth)
    start = 0
    for group in groups:
        for index, rank in zip(group, ranks([found[place] for place in group]), strict=True):
            result[index] = start + rank
        start += len(group)
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
