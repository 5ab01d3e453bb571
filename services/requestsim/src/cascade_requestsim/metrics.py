"""Aggregates over a simulated scenario. Percentiles interpolate linearly at position p·(n-1) of the sorted values.

Source: the request model, section 4.1.
"""

import numpy as np
from cascade_core.scenarios.answer import AggregateRow

from cascade_requestsim.roofline import NS_PER_S
from cascade_requestsim.unroll import Floats, Ints, RequestTimes, Steps, TokenSpans, pooled_intervals
from cascade_requestsim.workload import Workload

NS_PER_MS = 1e6


def percentile(values: Floats, share: float) -> float | None:
    """Percentile of the values that are not NaN; None when there are none. `share`: 0 to 1."""
    known = values[~np.isnan(values)]
    return weighted_percentile(known, np.ones(len(known), dtype=np.int64), share)


def weighted_percentile(values: Floats, weights: Ints, share: float) -> float | None:
    """Percentile of values of which each occurs `weights` times, at least once; None when there are none."""
    if not len(values):
        return None
    order = np.argsort(values)
    occurrences = np.cumsum(weights[order])
    position = share * (int(occurrences[-1]) - 1)
    lower = int(position)
    low, high = np.searchsorted(occurrences, [lower, min(lower + 1, int(occurrences[-1]) - 1)], side="right")
    below, above = float(values[order[low]]), float(values[order[high]])
    return below + (position - lower) * (above - below)


def aggregate(workload: Workload, times: RequestTimes, steps: Steps, spans: TokenSpans) -> AggregateRow:
    """Percentiles and throughput of a whole scenario."""
    intervals, weights = pooled_intervals(steps, spans)
    return AggregateRow(
        p50_ttft_ms=_ms(percentile(times.ttft_ns, 0.5)),
        p99_ttft_ms=_ms(percentile(times.ttft_ns, 0.99)),
        p50_itl_ms=_ms(weighted_percentile(intervals, weights, 0.5)),
        p50_e2e_ms=_ms(percentile(times.e2e_ns, 0.5)),
        p99_e2e_ms=_ms(percentile(times.e2e_ns, 0.99)),
        throughput_output_tokens_s=_throughput(workload, times),
    )


def _throughput(workload: Workload, times: RequestTimes) -> float | None:
    arrivals = np.array(workload.arrivals_s, dtype=np.float64)
    if not len(arrivals):
        return None
    first = arrivals.min()
    duration_s = float(np.max((arrivals - first) + times.e2e_ns / NS_PER_S))
    return int(times.emitted.sum()) / duration_s if duration_s > 0 else None


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / NS_PER_MS
