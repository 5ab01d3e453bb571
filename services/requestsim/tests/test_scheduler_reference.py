"""The plain scheduler, one step and one sequence at a time, and the proof that the fast one agrees with it.

`Reference` follows the request model rule by rule and shares no arithmetic with the product: it has its own roofline,
its own KV blocks with identities, and an absolute clock. It is slow and meant to be read.
"""

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import pytest
from cascade_core.errors import Refused
from cascade_core.scenarios.answer import ProvenanceLabel, RequestRow, ScenarioResponse, StepRow
from cascade_requestsim.errors import ScenarioRefused
from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.scenario import BaseSim, build_response
from cascade_requestsim.scheduler import schedule
from cascade_requestsim.workload import SchedulerSettings, Workload, check_workload
from hypothesis import example, given, settings
from hypothesis import strategies as st


@dataclass(eq=False)
class _Request:
    name: str
    arrival_s: float
    prompt: int
    output: int
    computed: int = 0
    blocks: set[int] = field(default_factory=set)
    token_times: list[float] = field(default_factory=list)
    first_start: float | None = None
    done_at: float | None = None
    preemptions: int = 0

    @property
    def known(self) -> int:
        return self.prompt + len(self.token_times)

    @property
    def decoding(self) -> bool:
        return bool(self.token_times) and self.computed == self.known - 1


def _roof(profile: PerfProfile, sequences: list[tuple[int, int]], sampling: int) -> list[float]:
    """Roofline time of the six groups for sequences of (query tokens, context). [ns]"""
    model, gpu = profile.model, profile.gpu
    tokens = sum(q for q, _ in sequences)
    width = model.hidden * model.layers * model.dtype_bytes
    kv = 2 * model.layers * model.kv_heads * model.head_dim * model.dtype_bytes
    body = model.layers * (
        2 * model.hidden * model.heads * model.head_dim
        + 2 * model.hidden * model.kv_heads * model.head_dim
        + 2 * model.hidden * model.ffn
    )
    work = [
        (2 * body * tokens, body * model.dtype_bytes + 8 * tokens * width),
        (
            4 * model.layers * model.hidden * sum(q * c for q, c in sequences),
            kv * sum(c for _, c in sequences),
        ),
        (0, kv * tokens),
        (2 * model.hidden * model.vocabulary * sampling, model.hidden * model.vocabulary * model.dtype_bytes),
        (0, model.vocabulary * sampling * model.dtype_bytes),
        (0, 16 * tokens * width),
    ]
    return [
        1e9 * max(flops / (0.7 * gpu.peak_flops), moved / (0.8 * gpu.bandwidth_bytes_s))
        for flops, moved in work
    ]


def _lerp(low: float, high: float, share: float) -> float:
    return low + share * (high - low)


def _wall(profile: PerfProfile, kind: str, sequences: list[tuple[int, int]], sampling: int) -> float:
    """Wall time of one step. [ns]"""
    if kind == "prefill":
        floors: list[float] = list(profile.prefill.floors)
        residual, host = profile.prefill.residual, profile.host_prefill_ns
        calibrated = (profile.prefill_tokens, profile.prefill_tokens)
    else:
        contexts = profile.decode_contexts
        context = min(max(contexts[0], *(c for _, c in sequences)), contexts[-1])
        right = min(bisect_right(contexts, context), len(contexts) - 1)
        left = right - 1
        share = (context - contexts[left]) / (contexts[right] - contexts[left])
        low, high = profile.decode[left], profile.decode[right]
        floors = [_lerp(a, b, share) for a, b in zip(low.floors, high.floors, strict=True)]
        residual, host = _lerp(low.residual, high.residual, share), profile.host_decode_ns
        calibrated = (1, context)
    times = []
    at_calibration = _roof(profile, [calibrated], 1)
    for floor, reference, roof in zip(
        floors, at_calibration, _roof(profile, sequences, sampling), strict=True
    ):
        times.append(max(floor, min(1.0, floor / reference) * roof))
    if not sampling:
        times[3] = times[4] = 0.0
    return host + math.fsum(times) + residual


class Reference:
    """Section 4 of the request model, literally."""

    def __init__(self, profile: PerfProfile, workload: Workload, settings: SchedulerSettings) -> None:
        self.profile = profile
        self.settings = settings
        columns = zip(
            workload.ids, workload.arrivals_s, workload.prompt_tokens, workload.output_tokens, strict=True
        )
        self.requests = [_Request(*column) for column in columns]
        self.future = deque(sorted(self.requests, key=lambda request: request.arrival_s))
        self.waiting: deque[_Request] = deque()
        self.running: list[_Request] = []
        self.free = set(range(settings.num_kv_blocks))
        self.clock = 0.0
        self.busy = False
        self.steps: list[StepRow] = []
        self.batch: dict[_Request, int] = {}
        self.preempted: set[_Request] = set()

    def run(self) -> None:
        while self.future or self.waiting or self.running:
            if not self.running and not self.waiting and self.future[0].arrival_s * 1e9 > self.clock:
                self.clock = self.future[0].arrival_s * 1e9
                self.busy = False
            while self.future and self.future[0].arrival_s * 1e9 <= self.clock:
                self.waiting.append(self.future.popleft())
            self.batch, self.preempted = {}, set()
            self._decodes()
            self._partials()
            self._admissions()
            assert self.batch, "no progress"
            self._execute()
        assert len(self.free) == self.settings.num_kv_blocks, "a block leaked"

    @property
    def _budget(self) -> int:
        return self.settings.max_num_batched_tokens - sum(self.batch.values())

    def _grow(self, request: _Request, tokens: int) -> None:
        """Take the blocks that `tokens` more cached tokens need; they must be free."""
        needed = math.ceil((request.computed + tokens) / self.settings.block_size)
        while len(request.blocks) < needed:
            request.blocks.add(self.free.pop())

    def _preempt(self) -> _Request:
        victim = self.running.pop()
        assert not victim.blocks & self.free
        self.free |= victim.blocks
        victim.blocks = set()
        victim.computed = 0
        victim.preemptions += 1
        self.batch.pop(victim, None)
        self.preempted.add(victim)
        self.waiting.appendleft(victim)
        return victim

    def _room(self, request: _Request) -> int:
        size = self.settings.block_size
        return len(request.blocks) * size - request.computed + len(self.free) * size

    def _decodes(self) -> None:
        for request in [request for request in self.running if request.decoding]:
            if self._budget == 0:
                break
            while request in self.running and self._room(request) == 0:
                self._preempt()
            if request in self.running:
                self._grow(request, 1)
                self.batch[request] = 1

    def _partials(self) -> None:
        for request in [request for request in self.running if not request.decoding]:
            if self._budget == 0:
                break
            while request in self.running and self._room(request) == 0:
                self._preempt()
            if request in self.running:
                chunk = min(request.known - request.computed, self._budget, self._room(request))
                self._grow(request, chunk)
                self.batch[request] = chunk

    def _admissions(self) -> None:
        while self.waiting and len(self.running) < self.settings.max_num_seqs and self._budget > 0:
            head = self.waiting[0]
            if head in self.preempted:
                break
            if self.settings.enable_chunked_prefill:
                chunk = min(head.known, self._budget, self._room(head))
                if chunk == 0:
                    break
            else:
                chunk = head.known
                if chunk > self.settings.max_num_batched_tokens:
                    raise ScenarioRefused("a recompute prefix outgrew the budget")
                if chunk > self._budget or chunk > self._room(head):
                    break
            self.waiting.popleft()
            self.running.append(head)
            self._grow(head, chunk)
            self.batch[head] = chunk

    def _execute(self) -> None:
        profile = self.profile
        kind = "decode" if all(request.decoding for request in self.batch) else "prefill"
        whole = [request.computed == 0 and tokens == request.known for request, tokens in self.batch.items()]
        sequences = []
        for request, tokens in self.batch.items():
            request.computed += tokens
            sequences.append((tokens, request.computed))
        sampling = [request for request in self.batch if request.computed == request.known]
        gap = profile.gap_decode_ns if kind == "decode" else profile.gap_prefill_ns
        start = self.clock + (gap if self.busy else profile.pre_ns)
        end = start + _wall(profile, kind, sequences, len(sampling))
        self.steps.append(
            {
                "step_index": len(self.steps),
                "kind": "decode" if kind == "decode" else "prefill",
                "start_ms": start / 1e6,
                "end_ms": end / 1e6,
                "num_seqs": len(sequences),
                "query_tokens": sum(q for q, _ in sequences),
                "context_tokens": sum(c for _, c in sequences),
                "kv_blocks_used": self.settings.num_kv_blocks - len(self.free),
                "provenance": self._label(kind, sequences, whole),
            }
        )
        self.clock, self.busy = end, True
        for request in self.batch:
            if request.first_start is None:
                request.first_start = start
        for request in sampling:
            if len(request.token_times) < request.output:
                request.token_times.append(end)
            if len(request.token_times) == request.output:
                request.done_at = end + profile.post_ns
                self.running.remove(request)
                self.free |= request.blocks
                request.blocks = set()
        held = [block for request in self.running for block in request.blocks]
        assert len(held) == len(set(held)), "a block is shared"

    def _label(self, kind: str, sequences: list[tuple[int, int]], whole: list[bool]) -> ProvenanceLabel:
        contexts = self.profile.decode_contexts
        if len(sequences) == 1:
            query, context = sequences[0]
            if kind == "prefill" and whole[0] and query == self.profile.prefill_tokens:
                return "measured"
            if kind == "decode" and context in contexts:
                return "measured"
            if kind == "decode" and contexts[0] < context < contexts[-1]:
                return "interpolated"
        return "extrapolated:roofline"

    def rows(self) -> list[RequestRow]:
        rows: list[RequestRow] = []
        for request in self.requests:
            arrival = request.arrival_s * 1e9
            intervals = [(b - a) / 1e6 for a, b in pairwise(request.token_times)]
            assert request.first_start is not None
            assert request.done_at is not None
            rows.append(
                {
                    "id": request.name,
                    "arrival_s": request.arrival_s,
                    "prompt_tokens": request.prompt,
                    "output_tokens": request.output,
                    "queue_ms": (request.first_start - arrival) / 1e6,
                    "ttft_ms": (request.token_times[0] - arrival) / 1e6 if request.token_times else None,
                    "itl_ms_mean": math.fsum(intervals) / len(intervals) if intervals else None,
                    "itl_ms_p50": median(intervals) if intervals else None,
                    "e2e_ms": (request.done_at - arrival) / 1e6,
                    "emitted_tokens": len(request.token_times),
                    "preemptions": request.preemptions,
                }
            )
        return rows

    def pooled_p50_itl(self) -> float | None:
        pooled = [b - a for request in self.requests for a, b in pairwise(request.token_times)]
        return median(pooled) / 1e6 if pooled else None


def _respond(profile: PerfProfile, workload: Workload, settings: SchedulerSettings) -> ScenarioResponse:
    log = schedule(profile, workload, settings)
    return build_response(
        profile, workload, settings, log, base=BaseSim("t"), utilization=0.8, scheduler_notes=()
    )


def _assert_close(actual: object, expected: object, where: str) -> None:
    if isinstance(expected, float):
        assert isinstance(actual, float), where
        assert math.isclose(actual, expected, rel_tol=1e-9, abs_tol=1e-9), (where, actual, expected)
    else:
        assert actual == expected, where


def assert_agreement(
    profile: PerfProfile, workload: Workload, settings: SchedulerSettings
) -> Reference | None:
    """Both schedulers give the same rows, or both refuse; None when they do."""
    try:
        check_workload(workload, settings, model_limit_tokens=profile.model_limit_tokens)
        reference = Reference(profile, workload, settings)
        reference.run()
    except Refused:
        with pytest.raises(Refused):
            schedule(profile, workload, settings)
        return None
    response = _respond(profile, workload, settings)
    assert response.steps_total == len(reference.steps)
    for step, expected_step in zip(response.steps, reference.steps, strict=True):
        for key, value in expected_step.items():
            _assert_close(step[key], value, f"step {expected_step['step_index']} {key}")  # type: ignore[literal-required]
    for row, expected_row in zip(response.requests, reference.rows(), strict=True):
        for key, value in expected_row.items():
            _assert_close(row[key], value, f"{expected_row['id']} {key}")  # type: ignore[literal-required]
    _assert_close(response.aggregate["p50_itl_ms"], reference.pooled_p50_itl(), "pooled p50 ITL")
    return reference


_SHAPES = st.tuples(
    st.one_of(st.just(0.0), st.floats(0, 3e-4), st.floats(0, 0.02)),
    st.one_of(st.integers(1, 24), st.sampled_from([9, 64])),
    st.one_of(st.integers(0, 12), st.integers(20, 60)),
)


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Workload, SchedulerSettings]:
    """Small mixed workloads, of which many are short of KV blocks, budget or seats."""
    shapes = draw(st.lists(_SHAPES, min_size=1, max_size=12))
    workload = Workload(
        ids=[f"r{index}" for index in range(len(shapes))],
        arrivals_s=[shape[0] for shape in shapes],
        prompt_tokens=[shape[1] for shape in shapes],
        output_tokens=[shape[2] for shape in shapes],
    )
    block_size = draw(st.sampled_from([1, 2, 3, 4, 16]))
    longest = max(prompt + max(0, output - 1) for _, prompt, output in shapes)
    tight = math.ceil(longest / block_size) + draw(st.integers(0, 6))
    settings_ = SchedulerSettings(
        max_num_seqs=draw(st.sampled_from([1, 2, 5, 256])),
        max_num_batched_tokens=draw(st.one_of(st.integers(1, 40), st.just(8192))),
        block_size=block_size,
        num_kv_blocks=draw(st.sampled_from([tight, 10_000])),
        enable_chunked_prefill=draw(st.booleans()),
    )
    return workload, settings_


@given(case=workloads())
@settings(max_examples=50, deadline=None)
def test_the_fast_scheduler_agrees_with_the_plain_one(
    knotted: PerfProfile, case: tuple[Workload, SchedulerSettings]
) -> None:
    assert_agreement(knotted, *case)


@given(case=workloads())
@settings(max_examples=25, deadline=None)
@example(
    case=(
        Workload(["a", "b", "c"], [0.0] * 3, [8] * 3, [8] * 3),
        SchedulerSettings(block_size=4, num_kv_blocks=4),
    )
)
def test_it_agrees_on_the_h100_sample_too(
    h100: PerfProfile, case: tuple[Workload, SchedulerSettings]
) -> None:
    assert_agreement(h100, *case)


def test_it_agrees_where_floors_cross_the_roofline_in_a_long_run(knotted: PerfProfile) -> None:
    workload = Workload(
        ids=[f"r{index}" for index in range(30)],
        arrivals_s=[index * 1.7e-4 for index in range(30)],
        prompt_tokens=[20 + 7 * index % 90 for index in range(30)],
        output_tokens=[400 - 11 * index for index in range(30)],
    )
    reference = assert_agreement(knotted, workload, SchedulerSettings(num_kv_blocks=300))
    assert reference is not None
    assert sum(request.preemptions for request in reference.requests) > 50


def test_a_recompute_one_token_short_counts_as_decoding(knotted: PerfProfile) -> None:
    # Budget and blocks are small enough that recomputes are cut at every possible length.
    for prompt in range(1, 9):
        for budget in range(2, 9):
            workload = Workload(["a", "b", "c"], [0.0] * 3, [prompt] * 3, [9] * 3)
            assert_agreement(
                knotted,
                workload,
                SchedulerSettings(max_num_batched_tokens=budget, block_size=2, num_kv_blocks=9),
            )
