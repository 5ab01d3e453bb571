"""How fast the scheduler answers: the figure behind `cascade bench scheduler`.

Measures the whole answer (schedule, per-request metrics, percentiles, provenance counts, step records, JSON) on the
bundled OPT-125m H100 profile, with the service's safety limits lifted. Beside it, in the same run, the bare heap and
list work that any discrete-event scheduler needs for so many requests, as a limit that no Python scheduler passes.
"""

import heapq
import json
import resource
import sys
import time
from dataclasses import dataclass

from cascade_core.scenarios.request import shorthand_workload

from cascade_requestsim.errors import ScenarioRefused
from cascade_requestsim.gpu_spec import GPU_SPECS
from cascade_requestsim.model_shape import ModelShape
from cascade_requestsim.profile import CalibratedPoint, PerfProfile
from cascade_requestsim.provenance import standing_assumptions
from cascade_requestsim.scenario import BaseSim, build_response, resolve_settings
from cascade_requestsim.scheduler import schedule

PROMPT_TOKENS = 512
OUTPUT_TOKENS = 128

MAX_BENCH_REQUESTS = 1_000_000
"""Bounds the memory of one measurement to a few GiB."""
LIMIT_TRIES = 3

_TRACE_ID = "sample__facebook_opt-125m__h100-e2e"


@dataclass(frozen=True, slots=True)
class SchedulerBench:
    """One measurement. Seconds of this process, without its start and imports."""

    requests: int
    rate_rps: float
    prompt_tokens: int
    output_tokens: int
    requests_per_cpu_s: float
    """The figure: requests over `cpu_s`."""
    cpu_s: float
    wall_s: float
    schedule_cpu_s: float
    """Share of `cpu_s` in the event loop; the rest is metrics, records and JSON."""
    steps: int
    output_tokens_total: int
    response_bytes: int
    peak_rss_bytes: int
    limit_requests_per_cpu_s: float
    limit: str
    """What the limit figure measures."""


def bench_scheduler(requests: int, rate: float) -> SchedulerBench:
    """Answer one scenario of `requests` equal requests of 512/128 tokens, `rate` a second, on one replica.

    A rate of 0 lets all arrive at once. Raises ScenarioRefused for a count below 1 or above 1,000,000 or a rate that
    is negative or not finite.
    """
    if not 1 <= requests <= MAX_BENCH_REQUESTS:
        raise ScenarioRefused(f"requests is {requests}; expected 1 to {MAX_BENCH_REQUESTS}")
    if not 0 <= rate < float("inf"):
        raise ScenarioRefused(f"rate is {rate}; expected a finite number of requests a second, 0 or more")
    profile = reference_profile()
    _answer(profile, 64, rate)  # numpy loads parts of itself on first use
    wall, cpu = time.perf_counter(), time.process_time()
    answer = _answer(profile, requests, rate)
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
    return SchedulerBench(
        requests=requests,
        rate_rps=rate,
        prompt_tokens=PROMPT_TOKENS,
        output_tokens=OUTPUT_TOKENS,
        requests_per_cpu_s=requests / cpu_s,
        cpu_s=cpu_s,
        wall_s=wall_s,
        schedule_cpu_s=answer.schedule_cpu_s,
        steps=answer.steps,
        output_tokens_total=answer.tokens,
        response_bytes=len(answer.body),
        peak_rss_bytes=_peak_rss_bytes(),
        limit_requests_per_cpu_s=requests / _bare_work_cpu_s(requests, answer.body),
        limit="bare heap and list work (a push and pop an arrival and a completion) and json.dumps of the answer",
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    body: bytes
    steps: int
    tokens: int
    schedule_cpu_s: float


def _answer(profile: PerfProfile, requests: int, rate: float) -> _Answer:
    workload = shorthand_workload(
        requests, prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS, arrival_rate_rps=rate
    )
    settings, utilization, notes = resolve_settings(profile, None)
    before = time.process_time()
    log = schedule(profile, workload, settings)
    scheduled = time.process_time() - before
    response = build_response(
        profile,
        workload,
        settings,
        log,
        base=BaseSim(trace_id=_TRACE_ID),
        utilization=utilization,
        scheduler_notes=notes,
    )
    tokens = sum(row["emitted_tokens"] for row in response.requests)
    return _Answer(response.model_dump_json().encode(), response.steps_total, tokens, scheduled)


def _bare_work_cpu_s(requests: int, body: bytes) -> float:
    """The least of a few tries: the work is short, and on a shared machine one try may take several times as long."""
    answer = json.loads(body)
    return min(_once_bare_work_cpu_s(requests, answer) for _ in range(LIMIT_TRIES))


def _once_bare_work_cpu_s(requests: int, answer: object) -> float:
    before = time.process_time()
    heap: list[tuple[float, int]] = []
    done: list[float] = []
    for index in range(requests):
        heapq.heappush(heap, (float(index), index))
        heapq.heappush(heap, (index + 10.5, index))
        done.append(heapq.heappop(heap)[0])
    while heap:
        done.append(heapq.heappop(heap)[0])
    json.dumps(answer)
    return time.process_time() - before


def _peak_rss_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts KiB, macOS bytes.
    return peak if sys.platform == "darwin" else peak * 1024


def reference_profile() -> PerfProfile:
    """The H100 sample's profile in short: its medians, and the first and last of its decode contexts.

    Reconstructed from published statistics. Equal to the sample's own profile for contexts of 37 tokens and more.
    """
    decode = (
        240678.78787878787,
        83915.1515151515,
        48618.18181818182,
        26263.63636363636,
        14506.565656565657,
        392198.9898989898,
    )
    prefill = (
        240678.78787878787,
        91703.03030303029,
        49872.72727272729,
        26263.63636363636,
        14506.565656565657,
        388870.2020202023,
    )
    return PerfProfile(
        gpu_config="SM90_H100",
        gpu=GPU_SPECS["SM90_H100"],
        model=ModelShape(
            layers=12,
            hidden=768,
            heads=12,
            kv_heads=12,
            head_dim=64,
            ffn=3072,
            vocabulary=50272,
            dtype_bytes=2,
        ),
        prefill_tokens=6,
        prefill=CalibratedPoint(prefill, 10760.0),
        decode_contexts=(7, 37),
        decode=(CalibratedPoint(decode, 10797.0), CalibratedPoint(decode, 11539.0)),
        host_prefill_ns=7843303.0,
        host_decode_ns=7271840.0,
        gap_prefill_ns=0.0,
        gap_decode_ns=35911.0,
        pre_ns=279947.0,
        post_ns=-219215.0,
        model_limit_tokens=2048,
        gpu_memory_utilization=0.8,
        workload_max_tokens=32,
        assumptions=standing_assumptions("reconstructed from published statistics, not a raw capture"),
        source_note="reconstructed from published statistics, not a raw capture",
    )
