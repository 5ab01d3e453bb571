"""One core (SM) executing its share of the blocks, warp instruction by warp instruction.

This is interval analysis in the manner of PPT-GPU and GCoM carried down to single warp instructions: each
gets the time at which it issues and at which its result is there, from the times at which the resources that
it needs become free. Nothing is clocked, so the cost is a few microseconds an instruction. The other cores
are taken to do the same at the same time.
"""

# ruff: noqa: PLR1730 - max() costs four times an if, and these run for every instruction

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from cascade_estimate.config import GpuSpec
from cascade_estimate.decode import Instruction
from cascade_estimate.meetings import Surroundings
from cascade_estimate.memory import Burst, Memory, Origin, Traffic
from cascade_estimate.opcodes import Kind, Unit

# Stages of the simulated pipeline, in core cycles. An ALU instruction without source registers has its
# result `latency + 4` cycles after issue: collector, dispatch, execution, writeback; two sources cost one
# cycle more, as two are read a cycle.
_WRITEBACK = 2.0  # from the end of execution to the cycle in which a reader may issue
_START = 4.0  # from a block's placement to its first issue: fetch and decode
_STOP = 1.0  # from the last warp's end to the block's

# Plain integers: the loop below compares them for every instruction, and enum members compare slowly.
_HALF, _BARRIER, _EXIT = int(Kind.HALF), int(Kind.BARRIER), int(Kind.EXIT)
_GROUP, _WAIT = int(Kind.COPY_GROUP), int(Kind.COPY_WAIT)
_MEMBAR = int(Kind.MEMBAR)
_SHARED, _SHARED_ATOMIC = int(Kind.SHARED), int(Kind.SHARED_ATOMIC)
_LOAD, _STORE, _L2_LOAD = int(Kind.LOAD), int(Kind.STORE), int(Kind.L2_LOAD)
_LOADS = frozenset((_LOAD, int(Kind.LOCAL_LOAD), int(Kind.ASYNC_COPY)))
_STORES = frozenset((_STORE, int(Kind.LOCAL_STORE)))
_LOCALS = frozenset((int(Kind.LOCAL_LOAD), int(Kind.LOCAL_STORE)))
_LOCAL_LINES = 1 << 60  # above every line of global memory
_LOCAL_WARP_LINES = (1 << 22) + 1  # from one warp's local memory to the next one's
_ASYNC = int(Kind.ASYNC_COPY)
_MEM = int(Unit.MEM)


@dataclass(frozen=True, slots=True)
class Work:
    """What one core executes.

    Attributes:
        blocks: per block its warps' instructions, in the order of placement.
        salts: added to the line numbers of accesses that are not shared, per block: a block that stands for
        another.
        crews: per block the cores that have such a block, this one included.
        resident: blocks on the core at once.
        start_gap: cycles between the first placements.
    """

    blocks: list[list[list[Instruction]]]
    salts: list[int]
    crews: list[int]
    resident: int
    start_gap: float


@dataclass(slots=True)
class Outcome:
    """Times in core cycles since the first placement, and busy cycles for the explanation.

    Attributes:
        cycles: end of the last block.
        block_ends: end of each block, in order of ending.
        quarters: issue times after a quarter, half and three quarters of the instructions.
        issued: warp instructions.
        lanes: thread instructions.
        unit_busy: cycles by unit, summed over the schedulers.
        lsu_busy: cycles of the load-store unit.
        conflict_cycles: of these, for bank conflicts in shared memory.
        barrier_wait: warp cycles between arrival and release.
        traffic: what the memory system did.
    """

    cycles: float = 0.0
    block_ends: list[float] = field(default_factory=list)
    quarters: list[float] = field(default_factory=list)
    issued: int = 0
    lanes: int = 0
    unit_busy: list[float] = field(default_factory=lambda: [0.0] * len(Unit))
    lsu_busy: float = 0.0
    conflict_cycles: float = 0.0
    barrier_wait: float = 0.0
    traffic: Traffic = field(default_factory=Traffic)


@dataclass(slots=True, eq=False)
class _Block:
    slot: int
    origin: Origin
    local: Origin  # of its threads' own memory
    alive: int
    end: float
    waiting: list[_Warp] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Warp:
    code: list[Instruction]
    block: _Block
    scheduler: int
    finish: float
    local_line: int  # at which its threads' own memory begins
    at: int = 0
    arrived: float = 0.0
    registers: dict[int, float] = field(default_factory=dict)
    copies: float = 0.0
    groups: list[float] = field(default_factory=list)
    burst: Burst | None = None
    burst_end: float = 0.0
    burst_registers: list[int] = field(default_factory=list)

    def join(self, burst: Burst, registers: tuple[int, ...]) -> None:
        """Let registers that a load writes follow the end of a burst of misses."""
        if self.burst is burst:
            self.follow()
        else:
            self.burst, self.burst_end, self.burst_registers = burst, burst.end, []
        self.burst_registers += registers

    def follow(self) -> bool:
        """Move the registers that wait for the burst as its end has moved; whether it has."""
        burst = self.burst
        if burst is None or burst.end <= self.burst_end:
            return False
        later = (burst.end - self.burst_end) * burst.share
        self.burst_end = burst.end
        for register in self.burst_registers:
            self.registers[register] += later
        return True

    def ready_after(self, time: float) -> float:
        """When the next instruction's registers are free, at the earliest `time`."""
        known = self.registers
        for register in self.code[self.at].regs:
            free = known.get(register)
            if free is not None and free > time:
                time = free
        return time


class _Scheduler:
    """A sub-core's issue slot, collectors and units, as times at which they are next free."""

    __slots__ = ("collectors", "execute", "free", "issue", "units")

    def __init__(self, spec: GpuSpec) -> None:
        count = len(Unit)
        self.free = 0.0
        self.issue = [0.0] * count
        self.execute = [0.0] * count
        self.units = [0.0] * count
        self.collectors = [0.0] * spec.collectors_per_scheduler


def simulate(spec: GpuSpec, work: Work, around: Surroundings, l1_bytes: int) -> Outcome:
    """Run `work` on one core and return its times."""
    return _Core(spec, work, Memory(spec, around, l1_bytes)).run()


class _Core:
    def __init__(self, spec: GpuSpec, work: Work, memory: Memory) -> None:
        self.spec, self.work, self.memory = spec, work, memory
        self.out = Outcome(traffic=memory.traffic)
        self.schedulers = [_Scheduler(spec) for _ in range(spec.schedulers)]
        self.heap: list[tuple[float, int, _Warp]] = []
        self.past_l1 = frozenset((_L2_LOAD, _LOAD, _STORE) if spec.l1_bypass_global else (_L2_LOAD,))
        self.lsu_free = 0.0
        self.placed = 0
        self.numbered = 0

    def run(self) -> Outcome:  # noqa: PLR0915 - one loop, spelled out because it runs per instruction
        """The event loop: the warp that is ready first issues its next instruction."""
        out, heap, step = self.out, self.heap, 1.0 / self.spec.read_steps_per_cycle
        for slot in range(min(self.work.resident, len(self.work.blocks))):
            self._place(slot, slot * self.work.start_gap)
        total = sum(len(warp) for block in self.work.blocks for warp in block)
        quarter = total // 4 or 1
        mark = quarter
        busy = out.unit_busy
        issued = lanes_issued = 0
        interval, latency = self.spec.interval, self.spec.latency
        schedulers = [(one, one.issue, one.execute, one.units, one.collectors) for one in self.schedulers]
        two = self.spec.collectors_per_scheduler == 2
        latest = [0.0] * len(Unit)
        # Local names: a global costs as much as the addition that it is used in.
        mem, writeback, replace, whole = _MEM, _WRITEBACK, heapreplace, int
        while heap:
            ready, number, warp = heap[0]
            if warp.burst is not None:
                if warp.follow():
                    later = warp.ready_after(ready)
                    if later > ready:
                        heapreplace(heap, (later, number, warp))
                        continue
                elif ready > warp.burst_end:
                    warp.burst = None
            instruction = warp.code[warp.at]
            unit, kind, writes, _, reads, lanes, _, _, _, _, _ = instruction
            issued += 1
            lanes_issued += lanes
            scheduler, issue, dispatching, units, collectors = schedulers[warp.scheduler]
            time = scheduler.free
            if ready > time:
                time = ready
            scheduler.free = time + 1.0
            # Issue register of the unit, then a collector, which reads one operand a step, then the unit's
            # dispatch register.
            if issue[unit] > time:
                time = issue[unit]
            if not two:
                which = collectors.index(min(collectors))
            elif collectors[0] <= collectors[1]:
                which = 0
            else:
                which = 1
            allocated = time + 1.0
            if collectors[which] > allocated:
                allocated = collectors[which]
            # Oldest first over all schedulers: who waits for a collector holds up younger ones of its unit.
            if latest[unit] > allocated:
                allocated = latest[unit]
            latest[unit] = allocated
            issue[unit] = whole(allocated)
            dispatch = allocated + (reads + 1) * step
            if dispatching[unit] > dispatch:
                dispatch = dispatching[unit]
            collectors[which] = dispatch
            execute = whole(dispatch) + 1.0
            if unit == mem:
                if self.lsu_free > execute:
                    execute = self.lsu_free
                dispatching[unit] = execute
                next_ready = self._memory(warp, instruction, execute, time + 1.0)
            else:
                if units[unit] > execute:
                    execute = units[unit]
                dispatching[unit] = execute
                pace, delay = interval[unit], latency[unit]
                next_ready = time + 1.0
                if kind:
                    if kind == _HALF:
                        pace = pace // 2 or 1
                    elif kind in (_BARRIER, _EXIT):
                        pace = delay = 1
                    elif kind == _GROUP:
                        warp.groups.append(warp.copies)
                        warp.copies = 0.0
                    elif kind == _WAIT:
                        next_ready = _groups_done(warp, instruction.group, next_ready)
                units[unit] = execute + pace
                busy[unit] += pace
                ended = execute + delay
                if writes:
                    done = ended + writeback
                    known = warp.registers
                    for register in writes:
                        known[register] = done
                if ended > warp.finish:
                    warp.finish = ended
                if kind == _BARRIER and lanes and self._arrive(warp, time):
                    continue
            if issued == mark:
                out.quarters.append(time)
                mark += quarter
            warp.at = at = warp.at + 1
            code = warp.code
            if at < len(code):
                known = warp.registers
                for register in code[at][3]:
                    if register in known:
                        free = known[register]
                        if free > next_ready:
                            next_ready = free
                replace(heap, (next_ready, number, warp))
            else:
                heappop(heap)
                self._exit(warp, time)
        out.issued, out.lanes = issued, lanes_issued
        return out

    def _push(self, time: float, warp: _Warp, number: int) -> None:
        self.heap.append((time, number, warp))

    def _place(self, slot: int, when: float) -> None:
        """Put the next block into `slot`; its warps may issue `_START` later."""
        warps = [code for code in self.work.blocks[self.placed] if code]
        party = self.memory.party(self.work.crews[self.placed])
        block = _Block(slot, Origin(self.work.salts[self.placed], party), Origin(0, party), len(warps), when)
        self.placed += 1
        base = slot * len(warps)
        for position, code in enumerate(warps):
            self.numbered += 1
            scheduler = (base + position) % len(self.schedulers)
            # Local memory belongs to a warp's place on the core, so the next block there finds it in the cache.
            local_line = _LOCAL_LINES + (base + position) * _LOCAL_WARP_LINES
            self._push(when + _START, _Warp(code, block, scheduler, when, local_line), self.numbered)
        heapify(self.heap)

    def _arrive(self, warp: _Warp, time: float) -> bool:
        """A warp issues a barrier; whether it must wait there."""
        block = warp.block
        warp.arrived = time
        warp.at += 1
        if len(block.waiting) + 1 < block.alive:
            block.waiting.append(warp)
            heappop(self.heap)
            return True
        warp.at -= 1
        self._release(block, time)
        return False

    def _release(self, block: _Block, time: float) -> None:
        for other in block.waiting:
            self.out.barrier_wait += time - other.arrived
            if other.at < len(other.code):
                self.numbered += 1
                self._push(other.ready_after(time + 1.0), other, self.numbered)
            else:
                block.alive -= 1
        if block.waiting:
            block.waiting.clear()
            heapify(self.heap)

    def _exit(self, warp: _Warp, time: float) -> None:
        block = warp.block
        block.alive -= 1
        block.end = max(block.end, warp.finish)
        if block.waiting and len(block.waiting) >= block.alive:
            self._release(block, time)
        if block.alive == 0:
            end = block.end + _STOP
            self.out.block_ends.append(end)
            self.out.cycles = max(self.out.cycles, end)
            if self.placed < len(self.work.blocks):
                self._place(block.slot, end)

    def _memory(self, warp: _Warp, instruction: Instruction, execute: float, next_ready: float) -> float:
        """Carry out a memory instruction that reaches the load-store unit at `execute`; when the warp may go
        on."""
        _, kind, writes, _, _, lanes, _, pc, _, line, footprint = instruction
        taken = 1
        origin = warp.block.origin
        if kind in _LOCALS:
            origin = warp.block.local
            line = line + warp.local_line if line >= 0 else line
        if not lanes or line < 0:
            done = execute + 2.0
            if kind == _MEMBAR:
                # The warp waits for what it loads, not for its stores, and then the core's whole L1 is given up.
                next_ready = max(next_ready, max(warp.registers.values(), default=0.0))
                if self.spec.flush_l1:
                    self.memory.invalidate_l1()
        elif kind in (_SHARED, _SHARED_ATOMIC):
            taken = footprint.conflicts or 1
            self.out.conflict_cycles += taken - 1
            done = execute + taken + self.spec.shared_latency + 1.0
            if kind == _SHARED_ATOMIC and done > next_ready:
                next_ready = done  # a warp with an atomic in flight does not issue
        elif kind in self.past_l1:
            done, taken = self.memory.past_l1(
                line, origin, footprint, execute + 1.0, pc, write=kind == _STORE
            )
        elif kind in _LOADS:
            done, taken = self.memory.load(line, origin, footprint, execute + 1.0, pc)
            burst = self.memory.joined
            if burst is not None and writes:
                warp.join(burst, writes)
            if kind == _ASYNC:
                # What arrives goes on to shared memory through the same unit, a sector a cycle.
                taken = max(taken, footprint.sectors)
                warp.copies = max(warp.copies, done)
        elif kind in _STORES:
            done, taken = self.memory.store(line, origin, footprint, execute + 1.0, pc)
        else:
            done, taken = self.memory.atomic(line, origin, footprint, execute + 1.0, pc)
            if done > next_ready:
                next_ready = done
        self.lsu_free = execute + taken
        self.out.lsu_busy += taken
        if writes:
            known = warp.registers
            for register in writes:
                known[register] = done
        if done > warp.finish:
            warp.finish = done
        return next_ready


def _groups_done(warp: _Warp, younger: int, time: float) -> float:
    """When all but the `younger` latest groups of async copies are complete."""
    finished = len(warp.groups) - younger
    if finished > 0:
        time = max(time, *warp.groups[:finished])
        del warp.groups[:finished]
    return time
