"""The serving scheduler: continuous batching on one replica as a discrete-event simulation.

Decode first, FCFS admission, chunked prefill, KV blocks, preemption by recomputation. Two facts about these rules
keep a step from costing a loop over its sequences:

* Every decoding request advances by one token in every step. A step's batch holds at most
  `max_num_batched_tokens` sequences, and only they can be decoding afterwards, so the budget never leaves a
  decode out. The decoding requests are therefore one group (`DecodeGroup`).
* At most one request is partly prefilled between steps, and it is the last one admitted: a chunk is cut short only
  by the budget or by the KV room, and either ends admission.

While nothing can be admitted, a run of decode steps lasts until the next completion, arrival or shortage of blocks,
and its times have a closed form (`DecodeTiming`). Source: the request model, section 4.
"""

from bisect import bisect_right
from collections import deque
from itertools import accumulate
from math import inf
from typing import NamedTuple

from cascade_requestsim.decode_group import DecodeGroup
from cascade_requestsim.decode_timing import DecodeTiming
from cascade_requestsim.errors import NoProgress, ScenarioRefused, StepLimitExceeded
from cascade_requestsim.kv_cache import blocks_for
from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.provenance import prefill_provenance
from cascade_requestsim.roofline import NS_PER_S
from cascade_requestsim.schedule_log import ScheduleLog, empty_log
from cascade_requestsim.step_costs import StepCosts
from cascade_requestsim.workload import SchedulerSettings, Workload, check_workload


def schedule(
    profile: PerfProfile, workload: Workload, settings: SchedulerSettings, *, max_steps: int | None = None
) -> ScheduleLog:
    """Run the workload to its end.

    max_steps: bound on executed steps, None for none. Raises ScenarioRefused (a request that could never
    run), CapacityExceeded (one that could never finish) or StepLimitExceeded.
    """
    check_workload(workload, settings, model_limit_tokens=profile.model_limit_tokens)
    engine = _Engine(profile, workload, settings, max_steps)
    engine.run()
    return engine.log


class _Chunk(NamedTuple):
    """Prefill work of one request in one step. [tokens]"""

    request: int
    tokens: int
    context: int
    """Cached tokens after the step."""
    known: int
    """Prompt and emitted tokens: the context at which the request samples."""


class _Engine:
    """State between steps. `step` counts executed steps, `clock` is the last step's end after the period's start."""

    def __init__(
        self, profile: PerfProfile, workload: Workload, settings: SchedulerSettings, max_steps: int | None
    ) -> None:
        count = len(workload)
        self.profile = profile
        self.costs = StepCosts(profile)
        self.prompt = workload.prompt_tokens
        self.output = workload.output_tokens
        self.arrivals = workload.arrivals_s
        self.order = sorted(range(count), key=workload.arrivals_s.__getitem__)
        self.arrived = 0
        """Requests that have arrived, a prefix of `order`."""
        self.max_steps = inf if max_steps is None else max_steps
        self.max_seqs = settings.max_num_seqs
        self.max_tokens = settings.max_num_batched_tokens
        self.block_size = settings.block_size
        self.capacity = settings.num_kv_blocks
        self.chunked = settings.enable_chunked_prefill
        self.free = settings.num_kv_blocks
        self.blocks = 0
        """Blocks in use when the last step was scheduled."""
        self.group = DecodeGroup(count, settings.block_size)
        self.timing = DecodeTiming(profile, self.costs, self.group)
        self.waiting: deque[int] = deque()
        self.running: dict[int, None] = {}
        """Admission order."""
        self.partial = -1
        """The one partly prefilled request, always the last of `running`."""
        self.partial_cached = 0
        self.emitted = [0] * count
        """Tokens emitted before the request last joined the group, or left it."""
        self.span_first = [0] * count
        self.step = 0
        self.clock = 0.0
        self.epoch_s = 0.0
        self.busy = False
        self.next_arrival = inf
        """Of the first request that has not arrived, after the period's start. [ns]"""
        self.log = empty_log(range(count))

    def run(self) -> None:
        """Execute steps until every request is done."""
        while True:
            if not self.running and not self.waiting:
                if self.arrived == len(self.order):
                    break
                self._wake_up()
            if self.next_arrival <= self.clock:
                self._take_arrivals()
            self._step()
            if self.step > self.max_steps:
                raise StepLimitExceeded(
                    f"the scenario needs more than {self.max_steps} scheduler steps; "
                    "simulate fewer or shorter requests, or raise the token budget"
                )
        assert self.free == self.capacity, "a KV block was lost or freed twice"
        self.log.steps_total = self.step

    def _wake_up(self) -> None:
        """Nothing is left to run: an arrival in the future opens a new busy period."""
        arrival_s = self.arrivals[self.order[self.arrived]]
        if self.busy and self.next_arrival <= self.clock:
            return
        self.epoch_s = arrival_s
        self.clock = 0.0
        self.busy = False
        self.next_arrival = 0.0
        self.log.period_starts.append(self.step)
        self.log.period_epochs_s.append(arrival_s)

    def _take_arrivals(self) -> None:
        order, arrivals = self.order, self.arrivals
        while self.next_arrival <= self.clock:
            self.waiting.append(order[self.arrived])
            self.arrived += 1
            if self.arrived == len(order):
                self.next_arrival = inf
            else:
                # The difference first: near the epoch it is exact, however late the epoch is.
                self.next_arrival = (arrivals[order[self.arrived]] - self.epoch_s) * NS_PER_S

    def _step(self) -> None:
        """Schedule one step; run it, and with it every following step that is bound to be alike."""
        needed = self.group.phase[self.step % self.block_size]
        preempted = needed > self.free
        if preempted:
            needed = self._preempt_for(needed)
        self.free -= needed
        chunks: list[_Chunk] = []
        if self.partial >= 0:
            chunks = self._continue_partial()
            preempted = preempted or not chunks
        # A head that was preempted in this very step is not readmitted, and nobody overtakes it.
        if self.waiting and not preempted:
            self._admit(chunks)
        blocks = self.capacity - self.free
        self.log.block_changes.append(blocks - self.blocks)
        self.blocks = blocks
        if chunks:
            self._prefill_step(chunks)
        else:
            self._decode_run(1 if preempted else None)

    def _preempt_for(self, needed: int) -> int:
        """Preempt from the back until the remaining decodes' new blocks fit. Returns how many those are.

        Same victims as serving decodes one by one in admission order: a victim is always the last admitted, so
        only a decode that has not been served yet, or the partial prefill, can be preempted.
        """
        while needed > self.free:
            is_decode = self.partial < 0
            cached = self._preempt_last()
            if is_decode and cached % self.block_size == 0:
                needed -= 1
        return needed

    def _preempt_last(self) -> int:
        """Send the most recently admitted request back to the head of the queue. Returns its cached tokens."""
        request, _ = self.running.popitem()
        if request == self.partial:
            cached = self.partial_cached
            self.partial = -1
        else:
            cached = self._leave_group(request)
        self.free += blocks_for(cached, self.block_size)
        self.log.preemptions[request] += 1
        self.waiting.appendleft(request)
        return cached

    def _leave_group(self, request: int) -> int:
        cached = self.group.leave(request, self.step)
        first = self.span_first[request]
        if self.step > first:
            self.log.spans.extend((request, first, self.step - first))
        self.emitted[request] = cached + 1 - self.prompt[request]
        return cached

    def _continue_partial(self) -> list[_Chunk]:
        """The partial prefill's next chunk; none when there is no room for it, and it is preempted."""
        request, cached, size = self.partial, self.partial_cached, self.block_size
        room = -cached % size + self.free * size
        if room == 0:
            self._preempt_last()
            return []
        known = self.prompt[request] + self.emitted[request]
        tokens = min(known - cached, self.max_tokens - self.group.size, room)
        self.free -= blocks_for(cached + tokens, size) - blocks_for(cached, size)
        self.partial = -1
        return [_Chunk(request, tokens, cached + tokens, known)]

    def _admit(self, chunks: list[_Chunk]) -> None:
        """Admit from the head of the queue while seats, budget and blocks last; the first that cannot start ends it."""
        size = self.block_size
        budget = self.max_tokens - self.group.size - sum(chunk.tokens for chunk in chunks)
        waiting, running = self.waiting, self.running
        while waiting and budget > 0 and len(running) < self.max_seqs:
            request = waiting[0]
            known = self.prompt[request] + self.emitted[request]
            tokens = known
            if self.chunked:
                tokens = min(known, budget, self.free * size)
                if tokens == 0:
                    break
            elif known > self.max_tokens:
                raise ScenarioRefused(
                    f"a preempted request must recompute {known} tokens at once, above max_num_batched_tokens "
                    f"{self.max_tokens}, and chunked prefill is off; enable it, raise the budget or give more KV blocks"
                )
            elif known > budget or blocks_for(known, size) > self.free:
                break
            waiting.popleft()
            running[request] = None
            if self.log.first_step[request] < 0:
                self.log.first_step[request] = self.step
            self.free -= blocks_for(tokens, size)
            budget -= tokens
            chunks.append(_Chunk(request, tokens, tokens, known))

    def _prefill_step(self, chunks: list[_Chunk]) -> None:
        """One step that holds prefill work, beside all decodes."""
        group, log = self.group, self.log
        decodes = group.size
        tokens = sampling = decodes
        context = query_context = group.tokens + decodes
        for chunk in chunks:
            tokens += chunk.tokens
            context += chunk.context
            query_context += chunk.tokens * chunk.context
            if chunk.context == chunk.known:
                sampling += 1
        lead = self.profile.gap_prefill_ns if self.busy else self.profile.pre_ns
        duration = lead + self.costs.prefill_wall(tokens, sampling, query_context, context)
        sequences = decodes + len(chunks)
        whole = chunks[0].tokens == chunks[0].known
        label = prefill_provenance(self.profile, sequences=sequences, query_tokens=tokens, whole=whole)
        log.rows.extend((1, self.clock, lead, duration, 0, sequences, tokens, context, 1, label))
        self.busy = True
        self._advance(1, self.clock + duration)
        for chunk in chunks:
            self._after_chunk(chunk)

    def _after_chunk(self, chunk: _Chunk) -> None:
        """Emit, complete or keep a request whose chunk has just run; `step` is already the next step."""
        request, _, cached, known = chunk
        remaining = self.output[request] - self.emitted[request]
        if cached == known:
            if remaining > 1:
                self._join_group(request, cached, first=self.step - 1, remaining=remaining - 1)
                return
            if remaining == 1:
                self.log.spans.extend((request, self.step - 1, 1))
            self._complete(request, cached)
        elif cached == known - 1 and self.emitted[request]:
            # One token short of its recompute, the request already counts as decoding.
            self._join_group(request, cached, first=self.step, remaining=remaining)
        else:
            assert self.partial < 0, "only the last chunk of a step can be cut short"
            self.partial, self.partial_cached = request, cached

    def _join_group(self, request: int, cached: int, *, first: int, remaining: int) -> None:
        """`first`: the step that emits the first token of this stay in the group."""
        self.span_first[request] = first
        self.group.join(request, cached=cached, step=self.step, remaining=remaining)

    def _complete(self, request: int, cached: int) -> None:
        del self.running[request]
        self.free += blocks_for(cached, self.block_size)
        self.log.done_step[request] = self.step - 1

    def _advance(self, steps: int, clock: float) -> None:
        """Let the group decode `steps` times, and complete its members that are done."""
        group = self.group
        self.step += steps
        self.clock = clock
        group.tokens += steps * group.size
        while group.next_done <= self.step:
            request = group.first_done()
            self._complete(request, self._leave_group(request))

    def _decode_run(self, at_most: int | None) -> None:
        """Run decode-only steps, the first of which is scheduled, until the batch or the queue may change."""
        group, step = self.group, self.step
        if not group.size:
            raise NoProgress(
                f"{len(self.waiting)} requests wait but none can run with {self.free} free KV blocks of {self.capacity}"
            )
        limit = at_most or group.next_done - step
        if limit > 1 and group.size * ((limit - 1) // self.block_size + 1) > self.free:
            # Not certain that the blocks last: count them.
            limit = 1 + bisect_right(list(accumulate(group.new_blocks(step + 1, limit - 1))), self.free)
        # A blocked head stays blocked while requests only decode, and later arrivals queue behind it.
        can_admit = not self.waiting and len(self.running) < self.max_seqs and group.size < self.max_tokens
        steps, clock = self.timing.write(
            self.log.rows,
            step=step,
            clock=self.clock,
            limit=limit,
            stop=self.next_arrival if can_admit else inf,
        )
        fresh = group.new_blocks(step + 1, steps - 1)
        self.log.block_changes.extend(fresh)
        taken = sum(fresh)
        self.free -= taken
        self.blocks += taken
        self._advance(steps, clock)
