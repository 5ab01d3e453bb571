"""Latency of a request after the replay: tokens are stamped where steps end.

Source: the step-timing page, section 2, "Requests". The real engine stamps tokens a little before a step ends,
so even a replay without any simulated duration differs slightly from the measured TTFT and ITL.
"""

import copy
from itertools import pairwise

from cascade_timing.fields import JsonObject, Number
from cascade_timing.replayed import RepeatReplay
from cascade_timing.statistics import mean, percentile
from cascade_timing.timeline import Request

NS_PER_MS = 1e6

_TIMESTAMPS = (
    "arrival_ns",
    "pre_first_step_ns",
    "post_last_step_ns",
    "first_step_start_ns",
    "last_step_end_ns",
    "first_token_ns",
    "last_token_ns",
)


def replay_request(request: Request, repeat: RepeatReplay | None) -> JsonObject:
    """The request's row of a `simulated_timeline.json`.

    repeat: the steps that served it; None, which gives null for every latency, if the timeline has none.
    """
    result: JsonObject = {
        name: copy.deepcopy(value) for name, value in request.raw.items() if name not in _TIMESTAMPS
    }
    latencies = ("ttft_ms", "itl_ms_mean", "itl_ms_p50", "e2e_ms")
    if repeat is None:
        return result | dict.fromkeys(latencies)
    ends = [step.end_offset_ns for step in repeat.steps]
    intervals_ms = [(later - earlier) / NS_PER_MS for earlier, later in pairwise(ends)]
    pre = _first_step_after_arrival_ns(request, repeat)
    post = request.post_last_step_ns or 0
    result |= {
        "ttft_ms": (pre + ends[0]) / NS_PER_MS,
        "itl_ms_mean": mean(intervals_ms) if intervals_ms else None,
        "itl_ms_p50": percentile(intervals_ms, 0.5) if intervals_ms else None,
        "e2e_ms": (pre + ends[-1] + post) / NS_PER_MS,
    }
    if request.arrival_ns is not None and repeat.first_start_ns is not None:
        first_end, last_end = repeat.at(ends[0]), repeat.at(ends[-1])
        result |= {
            "arrival_ns": request.arrival_ns,
            "pre_first_step_ns": request.pre_first_step_ns,
            "post_last_step_ns": request.post_last_step_ns,
            "first_step_start_ns": repeat.first_start_ns,
            "last_step_end_ns": last_end,
            "first_token_ns": first_end,
            "last_token_ns": last_end,
        }
    return result


def _first_step_after_arrival_ns(request: Request, repeat: RepeatReplay) -> Number:
    """Time from arrival to the first step: from timestamps, else as measured, else the queueing time. [ns]"""
    if request.arrival_ns is not None and repeat.first_start_ns is not None:
        return repeat.first_start_ns - request.arrival_ns
    if request.pre_first_step_ns is not None:
        return request.pre_first_step_ns
    return (request.queued_ms or 0) * NS_PER_MS
