"""Which blocks the busiest core gets, and its time from as few executed instructions as the answer allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace

from cascade_estimate.config import GpuSpec
from cascade_estimate.decode import Instruction
from cascade_estimate.machine import Outcome, Work, simulate
from cascade_estimate.meetings import Surroundings
from cascade_estimate.trace import KernelTrace

_FULL_INSTRUCTIONS = 1500  # warp instructions up to which a core's whole share is executed
_LEAST_INSTRUCTIONS = 1200  # warp instructions of a longer share that are executed at first, at least
_MOST_INSTRUCTIONS = 24000  # the same, at most; a share without a loop is executed whole up to here
_TRACE_PART = (
    50  # of the whole trace, one in this many instructions may be executed: it costs what reading costs
)
_LEAST_ITERATIONS = 4  # of a main loop that is shortened
_NEARLY = (
    0.98  # instructions of stand-ins over those of the blocks from which on the difference does not matter
)
_SETTLED = 0.03  # relative change at which a longer share no longer matters
_PROVEN = 10  # shares this many times longer than what is executed are executed twice, to see the change
_DISTINCT_BLOCKS = 3  # blocks decoded in full; others of about the same length are represented by these
_FOREIGN_LINES = 1048577  # moves a stand-in's private lines away from the original's


@dataclass(frozen=True, slots=True)
class CoreTime:
    """Result of executing a core's share.

    Attributes:
        cycles: from the first placement to the end of the last block.
        outcome: of what was executed.
        executed: share of the core's instructions that were executed.
        spread: relative change when twice as much was executed, 0 where that was not needed.
    """

    cycles: float
    outcome: Outcome
    executed: float
    spread: float


@dataclass(frozen=True, slots=True)
class _Share:
    """One block of the core's share.

    Attributes:
        sampled: the sampled block that stands for it.
        instructions: its instructions.
        salt: as `Work.salts`.
        crew: cores that have as many blocks, or more.
    """

    sampled: int
    instructions: int
    salt: int
    crew: int


def core_time(
    trace: KernelTrace, spec: GpuSpec, around: Surroundings, l1_bytes: int, resident: int
) -> CoreTime:
    """Time of the busiest core."""
    run = _Run(trace, spec, around, l1_bytes, resident, tuple(_shares(trace, spec, resident)))
    limit = min(max(trace.instructions // _TRACE_PART, _LEAST_INSTRUCTIONS), _MOST_INSTRUCTIONS)
    if run.total <= (max(_FULL_INSTRUCTIONS, limit) if trace.loop else _MOST_INSTRUCTIONS):
        return run.whole()
    run = replace(run, around=around.steady())
    result = run.part(limit)
    # A share that is only a few times longer is not worth a second look: what was executed is the greater
    # part of it.
    while run.total > _PROVEN * limit and limit < _MOST_INSTRUCTIONS:
        limit *= 2
        longer = run.part(limit)
        change = abs(longer.cycles - result.cycles) / max(longer.cycles, 1.0)
        result = replace(longer, spread=change)
        if change <= _SETTLED:
            break
    return result


def _shares(trace: KernelTrace, spec: GpuSpec, resident: int) -> list[_Share]:
    """Blocks of the core with the most instructions."""
    blocks, cores = trace.header.blocks, spec.cores
    lines = trace.block_lines
    own: Sequence[int] = range(0, blocks, cores)
    if len(lines) != blocks:
        counts = dict.fromkeys(own, max(trace.instructions // blocks, 1))
    else:
        if max(lines) != min(lines):
            own = _busiest(lines, cores, resident)
        counts = {index: lines[index] for index in own}
    sampled = sorted(trace.sample)
    chosen: list[int] = []
    shares: list[_Share] = []
    for number, index in enumerate(own):
        candidates = sampled if len(chosen) < _DISTINCT_BLOCKS else chosen

        def fit(candidate: int, index: int = index) -> tuple[int, int]:
            length = lines[candidate] if len(lines) == blocks else counts[index]
            return abs(length - counts[index]), abs(candidate - index)

        best = min(candidates, key=fit)
        if best not in chosen:
            chosen.append(best)
        salt = 0 if best == index else number * _FOREIGN_LINES
        crew = max(min(blocks - number * cores, cores), 1)
        shares.append(_Share(best, counts[index], salt, crew))
    return shares


def _busiest(lines: Sequence[int], cores: int, resident: int) -> list[int]:
    """Blocks of the core with the most instructions: blocks go round the cores while there is room, and then to the
    core that is through with one first, where a block takes as long as it has instructions."""
    placed = min(len(lines), cores * resident)
    own = [list(range(core, placed, cores)) for core in range(min(cores, placed))]
    slots = [(lines[index], index, index % cores) for index in range(placed)]
    heapify(slots)
    for index in range(placed, len(lines)):
        end, _, core = slots[0]
        own[core].append(index)
        heapreplace(slots, (end + lines[index], index, core))
    return max(own, key=lambda indices: sum(lines[index] for index in indices))


@dataclass(frozen=True, slots=True)
class _Run:
    trace: KernelTrace
    spec: GpuSpec
    around: Surroundings
    l1_bytes: int
    resident: int
    shares: tuple[_Share, ...]

    @property
    def total(self) -> int:
        """Warp instructions of the core's share."""
        return sum(share.instructions for share in self.shares)

    def whole(self) -> CoreTime:
        """Execute everything."""
        outcome = self._simulate(self.shares, [self.trace.block(share.sampled) for share in self.shares])
        # Stand-ins may be a little shorter or longer than the blocks themselves.
        scale = self.total / outcome.issued if outcome.issued else 1.0
        return CoreTime(
            outcome.cycles * (1.0 if _NEARLY < scale < 1.0 / _NEARLY else scale), outcome, 1.0, 0.0
        )

    def part(self, limit: int) -> CoreTime:
        """Execute about `limit` instructions: two waves of blocks, with a few iterations of the main loop
        each.

        Where that is too much it is one wave; without a loop the whole blocks of two waves are better than
        parts.
        """
        count = min(len(self.shares), 2 * self.resident)
        room = 2 * limit if self.trace.loop else _MOST_INSTRUCTIONS
        if sum(self._least(share) for share in self.shares[:count]) > room:
            count = min(len(self.shares), self.resident)
        shares = self.shares[:count]
        wanted = sum(share.instructions for share in shares)
        if wanted <= (limit if self.trace.loop else _MOST_INSTRUCTIONS):
            cycles, outcome = self._plain(shares)
        else:
            cycles, outcome = self._shortened(shares, wanted, limit)
        kept = sum(len(lines) for share in shares for _, lines in self.trace.warps(share.sampled))
        if kept < _NEARLY * wanted:
            cycles *= wanted / kept  # blocks of which only the first warps are there
        rest = self.total - wanted
        if rest > 0:
            cycles += _later_waves(outcome, self.resident, cycles, count) * count * rest / wanted
        return CoreTime(cycles, outcome, min(outcome.issued / self.total, 1.0), 0.0)

    def _least(self, share: _Share) -> float:
        """Instructions of a block when its main loop is as short as it may be."""
        loop = self.trace.loop
        if loop is None:
            return share.instructions
        looping = (loop.iterations - _LEAST_ITERATIONS) * loop.body * self.trace.header.warps
        return max(share.instructions - max(looping, 0.0), 0.0)

    def _plain(self, shares: tuple[_Share, ...]) -> tuple[float, Outcome]:
        outcome = self._simulate(shares, [self.trace.block(share.sampled) for share in shares])
        return outcome.cycles, outcome

    def _shortened(self, shares: tuple[_Share, ...], wanted: int, limit: int) -> tuple[float, Outcome]:
        loop = self.trace.loop
        if loop is None:
            return self._beginning(shares, wanted, _MOST_INSTRUCTIONS)
        warps = sum(self.trace.header.warps for _ in shares)
        straight = max(wanted - loop.iterations * loop.body * warps, 0.0)
        long = max(int((limit - straight) / (loop.body * warps)), _LEAST_ITERATIONS)
        if long >= loop.iterations - 1:
            return self._plain(shares)
        short = max(long // 2, 2)
        less, _ = self._iterations(shares, short)
        more, left_out = self._iterations(shares, long)
        pace = (more.cycles - less.cycles) / (long - short)
        return more.cycles + max(pace, 0.0) * left_out, more

    def _iterations(self, shares: tuple[_Share, ...], keep: int) -> tuple[Outcome, float]:
        """Execute with `keep` iterations; the outcome, and how many iterations a warp leaves out on average."""
        parts = [self.trace.shortened(share.sampled, keep) for share in shares]
        return self._simulate(shares, [code for code, _ in parts]), sum(left for _, left in parts) / len(
            parts
        )

    def _beginning(self, shares: tuple[_Share, ...], wanted: int, limit: int) -> tuple[float, Outcome]:
        """Without a loop: the beginning of every warp, and the pace of its second half."""
        part = limit / wanted
        outcome = self._simulate(shares, [self.trace.block(share.sampled, part) for share in shares])
        marks = outcome.quarters
        if len(marks) < 3:
            return outcome.cycles / part, outcome
        pace = (marks[2] - marks[0]) * 2.0  # time of as many instructions as were executed
        return outcome.cycles + pace * (wanted / max(outcome.issued, 1) - 1.0), outcome

    def _simulate(self, shares: tuple[_Share, ...], blocks: list[list[list[Instruction]]]) -> Outcome:
        work = Work(
            blocks,
            [share.salt for share in shares],
            [share.crew for share in shares],
            self.resident,
            self.spec.cores_per_cluster,
        )
        return simulate(self.spec, work, self.around, self.l1_bytes)


def _later_waves(outcome: Outcome, resident: int, cycles: float, count: int) -> float:
    """Cycles that each further block adds."""
    ends = sorted(outcome.block_ends)
    if len(ends) > resident:
        scale = cycles / max(outcome.cycles, 1.0)
        first = sum(ends[:resident]) / resident
        last = sum(ends[-resident:]) / resident
        return scale * (last - first) / (len(ends) - resident)
    return cycles / max(count, 1)
