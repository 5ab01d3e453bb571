"""What must hold of every schedule, whatever the workload."""

import math
import random
from collections import Counter

import pytest
from cascade_core.scenarios.answer import RequestRow, ScenarioResponse
from cascade_requestsim.estimate import estimate_request
from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.scenario import BaseSim, build_response
from cascade_requestsim.scheduler import schedule
from cascade_requestsim.workload import SchedulerSettings, Workload
from hypothesis import given, settings
from hypothesis import strategies as st

Shape = tuple[float, int, int]
"""Arrival [s], prompt tokens, output tokens."""

ARRIVALS = st.one_of(st.just(0.0), st.floats(0, 5e-4), st.floats(0, 1e9))
SHAPES = st.lists(st.tuples(ARRIVALS, st.integers(1, 80), st.integers(0, 40)), min_size=1, max_size=15)


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[list[Shape], SchedulerSettings]:
    """Chunked workloads; with chunking, every request that fits alone finishes."""
    shapes = draw(SHAPES)
    block_size = draw(st.integers(1, 9))
    needed = max(math.ceil((prompt + max(0, output - 1)) / block_size) for _, prompt, output in shapes)
    return shapes, SchedulerSettings(
        max_num_seqs=draw(st.sampled_from([1, 3, 256])),
        max_num_batched_tokens=draw(st.integers(1, 120)),
        block_size=block_size,
        num_kv_blocks=needed + draw(st.integers(0, 12)),
    )


def workload_of(shapes: list[Shape], ids: list[str] | None = None) -> Workload:
    return Workload(
        ids=ids or [f"r{index}" for index in range(len(shapes))],
        arrivals_s=[shape[0] for shape in shapes],
        prompt_tokens=[shape[1] for shape in shapes],
        output_tokens=[shape[2] for shape in shapes],
    )


def respond(profile: PerfProfile, workload: Workload, settings: SchedulerSettings) -> ScenarioResponse:
    log = schedule(profile, workload, settings)
    return build_response(
        profile, workload, settings, log, base=BaseSim("t"), utilization=0.8, scheduler_notes=()
    )


@given(case=scenarios())
@settings(max_examples=50, deadline=None)
def test_every_request_emits_exactly_its_tokens(
    knotted: PerfProfile, case: tuple[list[Shape], SchedulerSettings]
) -> None:
    shapes, scheduler = case
    response = respond(knotted, workload_of(shapes), scheduler)
    assert [row["emitted_tokens"] for row in response.requests] == [shape[2] for shape in shapes]
    cached = sum(prompt + max(0, output - 1) for _, prompt, output in shapes)
    computed = sum(step["query_tokens"] for step in response.steps)
    if any(row["preemptions"] for row in response.requests):
        assert computed > cached
    else:
        assert computed == cached
    for row in response.requests:
        assert (row["ttft_ms"] is None) == (row["output_tokens"] == 0)
        assert (row["itl_ms_mean"] is None) == (row["output_tokens"] < 2)
        assert (row["itl_ms_p50"] is None) == (row["output_tokens"] < 2)


@given(case=scenarios())
@settings(max_examples=50, deadline=None)
def test_time_and_blocks_stay_within_their_bounds(
    knotted: PerfProfile, case: tuple[list[Shape], SchedulerSettings]
) -> None:
    shapes, scheduler = case
    # Arrivals of a gigasecond leave absolute milliseconds no digits for a step: check on early ones.
    early = [(arrival % 1e-3, prompt, output) for arrival, prompt, output in shapes]
    response = respond(knotted, workload_of(early), scheduler)
    clock = 0.0
    for step in response.steps:
        assert clock <= step["start_ms"] < step["end_ms"]
        clock = step["end_ms"]
        assert 0 < step["kv_blocks_used"] <= scheduler.num_kv_blocks
        assert 0 < step["query_tokens"] <= scheduler.max_num_batched_tokens
        assert 0 < step["num_seqs"] <= scheduler.max_num_seqs
        assert math.ceil(step["context_tokens"] / scheduler.block_size) <= step["kv_blocks_used"]
    assert sum(response.provenance_counts.values()) == 2 * response.steps_total
    assert all(row["queue_ms"] >= 0 for row in response.requests)


@given(case=scenarios())
@settings(max_examples=50, deadline=None)
def test_requests_start_in_the_order_of_their_arrival(
    knotted: PerfProfile, case: tuple[list[Shape], SchedulerSettings]
) -> None:
    shapes, scheduler = case
    log = schedule(knotted, workload_of(shapes), scheduler)
    by_arrival = sorted(range(len(shapes)), key=lambda index: shapes[index][0])
    first_steps = [log.first_step[index] for index in by_arrival]
    assert first_steps == sorted(first_steps)
    assert all(done >= first for done, first in zip(log.done_step, log.first_step, strict=True))


@given(
    prompt=st.integers(1, 1900),
    output=st.integers(0, 140),
    arrival_s=st.sampled_from([0.0, 0.3, 12345.678, 1e9]),
)
@settings(max_examples=50, deadline=None)
def test_a_single_request_equals_the_direct_estimate(
    h100: PerfProfile, *, prompt: int, output: int, arrival_s: float
) -> None:
    response = respond(h100, workload_of([(arrival_s, prompt, output)]), SchedulerSettings())
    row, estimate = response.requests[0], estimate_request(h100, prompt, output)
    for scheduled, direct in (
        (row["ttft_ms"], estimate.ttft_ms),
        (row["itl_ms_mean"], estimate.itl_ms_mean),
        (row["itl_ms_p50"], estimate.itl_ms_p50),
        (row["e2e_ms"], estimate.e2e_ms),
    ):
        assert scheduled == (None if direct is None else pytest.approx(direct, rel=1e-9))
    assert response.provenance_counts == estimate.provenance_counts


@given(case=scenarios(), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_order_of_requests_does_not_matter_when_arrivals_differ(
    knotted: PerfProfile, case: tuple[list[Shape], SchedulerSettings], seed: int
) -> None:
    shapes, scheduler = case
    distinct = [(index * 1.37e-5, prompt, output) for index, (_, prompt, output) in enumerate(shapes)]
    assert _rows_by_id(knotted, distinct, scheduler) == _rows_by_id(knotted, distinct, scheduler, seed=seed)


@given(shapes=SHAPES, seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_order_of_equal_arrivals_does_not_matter_without_contention(
    knotted: PerfProfile, shapes: list[Shape], seed: int
) -> None:
    together = [(0.25, prompt, output) for _, prompt, output in shapes]
    ample = SchedulerSettings(num_kv_blocks=10_000)
    assert _rows_by_id(knotted, together, ample) == _rows_by_id(knotted, together, ample, seed=seed)


@given(case=scenarios(), count=st.integers(2, 12))
@settings(max_examples=40, deadline=None)
def test_equal_requests_that_arrive_together_are_interchangeable(
    knotted: PerfProfile, case: tuple[list[Shape], SchedulerSettings], count: int
) -> None:
    shapes, scheduler = case
    same = [shapes[0]] * count
    names = [f"r{index}" for index in range(count)]
    rows = respond(knotted, workload_of(same, names), scheduler).requests
    reversed_rows = respond(knotted, workload_of(same, names[::-1]), scheduler).requests
    assert _metrics(rows) == _metrics(reversed_rows)


def _metrics(rows: list[RequestRow]) -> Counter[tuple[object, ...]]:
    return Counter(tuple(value for key, value in sorted(row.items()) if key != "id") for row in rows)


def _rows_by_id(
    profile: PerfProfile, shapes: list[Shape], scheduler: SchedulerSettings, seed: int | None = None
) -> dict[str, RequestRow]:
    named = [(f"r{index}", shape) for index, shape in enumerate(shapes)]
    if seed is not None:
        random.Random(seed).shuffle(named)
    workload = workload_of([shape for _, shape in named], [name for name, _ in named])
    return {row["id"]: row for row in respond(profile, workload, scheduler).requests}


def test_the_same_workload_gives_the_same_bytes(knotted: PerfProfile) -> None:
    workload = workload_of([(index * 1e-5, 3 + index, 17) for index in range(20)])
    scheduler = SchedulerSettings(block_size=4, num_kv_blocks=30)
    bodies = {respond(knotted, workload, scheduler).model_dump_json() for _ in range(2)}
    assert len(bodies) == 1


def test_late_arrivals_keep_their_digits(h100: PerfProfile) -> None:
    late = respond(h100, workload_of([(1e9, 512, 128), (1e9, 512, 128)]), SchedulerSettings())
    early = respond(h100, workload_of([(0.0, 512, 128), (0.0, 512, 128)]), SchedulerSettings())
    assert late.requests[1]["e2e_ms"] == early.requests[1]["e2e_ms"]
    assert late.requests[1]["itl_ms_p50"] == early.requests[1]["itl_ms_p50"]


def test_a_burst_of_long_prompts_comes_in_a_staircase(h100: PerfProfile) -> None:
    workload = workload_of([(0.0, 1024, 4)] * 16)
    scheduler = SchedulerSettings(max_num_batched_tokens=2048)
    log = schedule(h100, workload, scheduler)
    response = respond(h100, workload, scheduler)
    spans = [log.spans[at : at + 3] for at in range(0, len(log.spans), 3)]
    first_token = {span[0]: span[1] + 1 for span in spans}
    assert [first_token[index] for index in range(16)] == [1, 1, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9]
    assert [step + 1 for step in log.done_step] == [4, 4, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12]
    assert [step["query_tokens"] for step in response.steps] == [2048] * 8 + [39, 5, 3, 1]
    assert not any(log.preemptions)
    ttfts = [row["ttft_ms"] or 0.0 for row in response.requests]
    assert ttfts == sorted(ttfts)


def test_preemption_keeps_the_output_and_spares_the_oldest(h100: PerfProfile) -> None:
    response = respond(h100, workload_of([(0.0, 64, 64)] * 6), SchedulerSettings(num_kv_blocks=10))
    rows = response.requests
    assert [row["emitted_tokens"] for row in rows] == [64] * 6
    assert rows[0]["preemptions"] == 0
    assert sum(row["preemptions"] for row in rows) >= 1
    assert rows[0]["ttft_ms"] == min(row["ttft_ms"] or 0.0 for row in rows)
    for row in rows:
        assert row["ttft_ms"] is not None
        assert row["itl_ms_mean"] is not None
        assert row["e2e_ms"] >= row["ttft_ms"] + 63 * row["itl_ms_mean"] - 1.0
