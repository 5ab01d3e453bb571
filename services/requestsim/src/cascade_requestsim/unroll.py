"""From the scheduler's log to one number a step and one a request, as arrays.

Times stay in nanoseconds after the start of the step's busy period, so that differences keep their digits however
late the period began.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cascade_requestsim.roofline import NS_PER_S
from cascade_requestsim.schedule_log import Column, ScheduleLog
from cascade_requestsim.workload import Workload

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Steps:
    """One entry a step, in order."""

    start_ns: Floats
    """Start of GPU work, after the gap."""
    end_ns: Floats
    duration_ns: Floats
    """From the end of the step before, gap included: the interval between tokens of a request in both."""
    epoch_s: Floats
    """Start of the busy period that the step belongs to."""
    sequences: Ints
    query_tokens: Ints
    context_tokens: Ints
    kv_blocks: Ints
    """In use after scheduling, before completed requests free theirs."""
    is_prefill: NDArray[np.bool_]
    provenance: Ints


def unroll_steps(log: ScheduleLog) -> Steps:
    """Every executed step."""
    rows = np.array(log.rows, dtype=np.float64).reshape(-1, len(Column))
    counts = rows[:, Column.STEPS].astype(np.int64)
    # Position of each step in its run.
    position = np.arange(log.steps_total) - np.repeat(np.cumsum(counts) - counts, counts)

    def column(which: Column) -> Floats:
        return np.repeat(rows[:, which], counts)

    first, growth = column(Column.FIRST), column(Column.GROWTH)
    begin = column(Column.CLOCK) + position * first + growth * (position * (position - 1) / 2)
    duration = first + growth * position
    sequences = column(Column.SEQUENCES).astype(np.int64)
    starts = np.array([*log.period_starts, log.steps_total], dtype=np.int64)
    return Steps(
        start_ns=begin + column(Column.LEAD),
        end_ns=begin + duration,
        duration_ns=duration,
        epoch_s=np.repeat(np.array(log.period_epochs_s, dtype=np.float64), np.diff(starts)),
        sequences=sequences,
        query_tokens=column(Column.TOKENS).astype(np.int64),
        context_tokens=column(Column.CONTEXT).astype(np.int64) + position * sequences,
        kv_blocks=np.cumsum(np.array(log.block_changes, dtype=np.int64)),
        is_prefill=column(Column.IS_PREFILL) > 0,
        provenance=column(Column.PROVENANCE).astype(np.int64),
    )


@dataclass(frozen=True)
class TokenSpans:
    """Runs of consecutive steps in which one request emitted a token each, grouped by request, in time order."""

    request: Ints
    first_step: Ints
    tokens: Ints

    @cached_property
    def last_step(self) -> Ints:
        """Step of each span's last token."""
        return self.first_step + self.tokens - 1


def token_spans(log: ScheduleLog) -> TokenSpans:
    """All spans of the log; requests without tokens have none."""
    flat = np.array(log.spans, dtype=np.int64).reshape(-1, 3)
    flat = flat[np.argsort(flat[:, 0], kind="stable")]
    return TokenSpans(flat[:, 0], flat[:, 1], flat[:, 2])


@dataclass(frozen=True)
class RequestTimes:
    """One entry a request, in input order. NaN where there is no such time. [ns]"""

    queue_ns: Floats
    """From arrival to the start of the first step that ran the request."""
    ttft_ns: Floats
    """From arrival to the first token."""
    e2e_ns: Floats
    """From arrival to completion, the signed post-step time included."""
    itl_mean_ns: Floats
    itl_p50_ns: Floats
    emitted: Ints


def request_times(
    log: ScheduleLog, workload: Workload, steps: Steps, spans: TokenSpans, *, post_ns: float
) -> RequestTimes:
    """Latencies of every request."""
    count = len(workload)
    first_run = np.array(log.first_step, dtype=np.int64)
    # The difference in seconds first: it is exact near the epoch.
    arrival_ns = (np.array(workload.arrivals_s, dtype=np.float64) - steps.epoch_s[first_run]) * NS_PER_S
    emitted = np.bincount(spans.request, weights=spans.tokens, minlength=count).astype(np.int64)
    first_token = np.full(count, np.nan)
    last_token = np.full(count, np.nan)
    # Spans of a request lie in time order: written backwards, the first one stays; forwards, the last one.
    first_token[spans.request[::-1]] = steps.end_ns[spans.first_step[::-1]]
    last_token[spans.request] = steps.end_ns[spans.last_step]
    mean = np.full(count, np.nan)
    several = emitted > 1
    mean[several] = (last_token[several] - first_token[several]) / (emitted[several] - 1)
    return RequestTimes(
        queue_ns=steps.start_ns[first_run] - arrival_ns,
        ttft_ns=first_token - arrival_ns,
        e2e_ns=steps.end_ns[np.array(log.done_step, dtype=np.int64)] + post_ns - arrival_ns,
        itl_mean_ns=mean,
        itl_p50_ns=_median_intervals(steps, spans, count),
        emitted=emitted,
    )


_GATHERED_INTERVALS = 1 << 20
"""Intervals copied at a time while medians are taken, which bounds the memory to 8 MiB a copy."""


def _median_intervals(steps: Steps, spans: TokenSpans, count: int) -> Floats:
    """Median interval between tokens of every request, NaN where there is none. [ns]"""
    medians = np.full(count, np.nan)
    spans_of = np.bincount(spans.request, minlength=count)
    single = spans_of[spans.request] == 1
    request, first, tokens = spans.request[single], spans.first_step[single], spans.tokens[single]
    for size in np.unique(tokens[tokens > 1]).tolist():
        chosen = np.flatnonzero(tokens == size)
        windows = np.lib.stride_tricks.sliding_window_view(steps.duration_ns, size - 1)
        stride = max(1, _GATHERED_INTERVALS // size)
        for at in range(0, len(chosen), stride):
            part = chosen[at : at + stride]
            medians[request[part]] = np.median(windows[first[part] + 1], axis=1)
    bounds = np.concatenate(([0], np.cumsum(spans_of)))
    for index in np.flatnonzero(spans_of > 1).tolist():
        medians[index] = np.median(_intervals(steps, spans, slice(bounds[index], bounds[index + 1])))
    return medians


def _intervals(steps: Steps, spans: TokenSpans, of_request: slice) -> Floats:
    """Intervals between the tokens of one request, over all its spans. [ns]"""
    first, last = spans.first_step[of_request], spans.last_step[of_request]
    inner = [steps.duration_ns[a + 1 : b + 1] for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    across = steps.end_ns[first[1:]] - steps.end_ns[last[:-1]]
    return np.concatenate([*inner, across])


def pooled_intervals(steps: Steps, spans: TokenSpans) -> tuple[Floats, Ints]:
    """Every interval between tokens of one request, as values and how often each occurs. [ns]"""
    total = len(steps.end_ns)
    # A span adds one interval at each of its steps but the first.
    changes = np.bincount(spans.first_step + 1, minlength=total + 1) - np.bincount(
        spans.last_step + 1, minlength=total + 1
    )
    weights = np.cumsum(changes)[:total]
    used = weights > 0
    follows = spans.request[1:] == spans.request[:-1]
    across = steps.end_ns[spans.first_step[1:][follows]] - steps.end_ns[spans.last_step[:-1][follows]]
    values = np.concatenate((steps.duration_ns[used], across))
    return values, np.concatenate((weights[used], np.ones(len(across), dtype=np.int64)))
