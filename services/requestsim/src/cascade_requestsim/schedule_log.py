"""What the scheduler writes down while it runs: runs of steps, spans of tokens and a few marks a request.

Compact on purpose: a run of equal steps is one row however long it is. `metrics` unrolls the rows into one record a
step. Times are nanoseconds after the start of the busy period that a step belongs to, so that late arrivals cost no
precision.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum


class Column(IntEnum):
    """Columns of `ScheduleLog.rows`, one row a run of steps with the same batch."""

    STEPS = 0
    """Steps in the run, at least 1."""
    CLOCK = 1
    """End of the step before the run. [ns]"""
    LEAD = 2
    """Gap or pre-step time before each step's GPU work, part of `FIRST`. [ns]"""
    FIRST = 3
    """From the end of the step before to the end of the run's first step. [ns]"""
    GROWTH = 4
    """By how much each step takes longer than the one before it. [ns]"""
    SEQUENCES = 5
    TOKENS = 6
    """Query tokens of each step."""
    CONTEXT = 7
    """Sum of contexts in the first step; each later step adds `SEQUENCES`. [tokens]"""
    IS_PREFILL = 8
    PROVENANCE = 9


@dataclass(slots=True)
class ScheduleLog:
    """The whole run. Sequences named `*_step` have one entry a request and hold step indices."""

    first_step: list[int]
    """First step that ran the request."""
    done_step: list[int]
    """Step at whose end the request had all its output."""
    preemptions: list[int]
    rows: list[float] = field(default_factory=list)
    """Flattened rows of `Column`."""
    block_changes: list[int] = field(default_factory=list)
    """By how many KV blocks a scheduled step holds more than the step before it, one entry a step."""
    spans: list[int] = field(default_factory=list)
    """Flattened (request, first step, tokens): a token at the end of each of so many consecutive steps."""
    period_starts: list[int] = field(default_factory=list)
    """First step of every busy period."""
    period_epochs_s: list[float] = field(default_factory=list)
    """Arrival that opened the period, its zero of time. [s]"""
    steps_total: int = 0


def empty_log(requests: Sequence[object] | range) -> ScheduleLog:
    """A log for so many requests, nothing run yet."""
    count = len(requests)
    return ScheduleLog(first_step=[-1] * count, done_step=[-1] * count, preemptions=[0] * count)
