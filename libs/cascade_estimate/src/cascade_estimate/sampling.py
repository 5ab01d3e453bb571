"""Which blocks the busiest core gets, and its time from as few executed instructions as the answer allows."""

from __future__ import annotations

from dataclasses import dataclass

from cascade_estimate.config import GpuSpec
from cascade_estimate.decode import Instruction
from cascade_estimate.machine import Outcome, Work, simulate
from cascade_estimate.memory import Surroundings
from cascade_estimate.trace import KernelTrace

# Warp instructions executed at first; the limit grows threefold while the pace of the second half still
# differs.
_FIRST_INSTRUCTIONS = 3000
_LAST_INSTRUCTIONS = 60000
_STEADY = 0.05
_DISTINCT_BLOCKS = 3  # blocks decoded in full; others of about the same length are represented by these
_FOREIGN_LINES = 1048577  # moves a stand-in's private lines away from the original's


@dataclass(frozen=True, slots=True)
class CoreTime:
    """Result of executing a core's share.

    Attributes:
        cycles: from the first placement to the end of the last block.
        outcome: of what was executed.
        executed: share of the core's instructions that were executed.
    """

    cycles: float
    outcome: Outcome
    executed: float


@dataclass(frozen=True, slots=True)
class _Share:
    """One block of the core's share: the sampled block that stands for it, its instructions, and its salt."""

    sampled: int
    instructions: int
    salt: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the blocks run: the machine around the core, its L1 and how many blocks it holds."""

    around: Surroundings
    l1_bytes: int
    resident: int


def core_time(
    trace: KernelTrace, spec: GpuSpec, around: Surroundings, l1_bytes: int, resident: int
) -> CoreTime:
    """Time of the busiest core."""
    shares = _shares(trace, spec)
    place = _Place(around, l1_bytes, resident)
    limit = _FIRST_INSTRUCTIONS
    previous: CoreTime | None = None
    while True:
        result = _execute(trace, spec, place, shares, limit)
        settled = result.executed >= 1.0 or limit >= _LAST_INSTRUCTIONS
        if not settled and previous is not None:
            settled = abs(result.cycles - previous.cycles) <= _STEADY * result.cycles
        if not settled and previous is None:
            settled = _steady(result.outcome)
        if settled:
            return result
        previous = result
        limit *= 3


def _steady(outcome: Outcome) -> bool:
    """Whether the executed part's last two quarters took the same time, so that its pace may be carried
    on."""
    marks = outcome.quarters
    if len(marks) < 3:
        return False
    third, second = marks[2] - marks[1], marks[1] - marks[0]
    return abs(third - second) <= _STEADY * max(third, 1.0)


def _shares(trace: KernelTrace, spec: GpuSpec) -> list[_Share]:
    """Blocks of the core with the most instructions, when blocks go round the cores."""
    blocks, cores = trace.header.blocks, spec.cores
    per_core = -(-blocks // cores)
    lines = trace.block_lines
    first = 0
    if len(lines) == blocks and blocks > 1:
        even = max(lines) == min(lines)
        if not even:
            first = max(range(min(cores, blocks)), key=lambda core: (sum(lines[core::cores]), -core))
    own = range(first, blocks, cores)
    if len(lines) != blocks:
        mean = max(trace.instructions // blocks, 1)
        own = range(0, blocks, cores)
        counts = dict.fromkeys(own, mean)
    else:
        counts = {index: lines[index] for index in own}
    sampled = sorted(trace.sample)
    chosen: list[int] = []
    shares: list[_Share] = []
    for number, index in enumerate(list(own)[:per_core]):
        candidates = sampled if len(chosen) < _DISTINCT_BLOCKS else chosen

        def fit(candidate: int, index: int = index) -> tuple[int, int]:
            length = lines[candidate] if len(lines) == blocks else counts[index]
            return abs(length - counts[index]), abs(candidate - index)

        best = min(candidates, key=fit)
        if best not in chosen:
            chosen.append(best)
        shares.append(_Share(best, counts[index], 0 if best == index else number * _FOREIGN_LINES))
    return shares


def _execute(trace: KernelTrace, spec: GpuSpec, place: _Place, shares: list[_Share], limit: int) -> CoreTime:
    total = sum(share.instructions for share in shares)
    resident = place.resident
    count = len(shares)
    if total > limit:
        # Whole waves of blocks first; a single wave that is too long is cut in every warp alike.
        count, room = 0, limit
        while count < len(shares) and (count < 2 * resident or room > 0):
            room -= shares[count].instructions
            count += 1
            if count >= resident and room <= 0:
                break
    part = shares[:count]
    wanted = sum(share.instructions for share in part)
    keep = min(limit / wanted, 1.0) if total > limit else 1.0
    blocks: list[list[list[Instruction]]] = []
    for share in part:
        code = trace.block(share.sampled)
        if keep < 1.0:
            code = [warp[: max(int(len(warp) * keep), 1)] for warp in code]
        blocks.append(code)
    outcome = simulate(
        spec, Work(blocks, [share.salt for share in part], resident, 1.0), place.around, place.l1_bytes
    )
    cycles = outcome.cycles
    executed = outcome.issued
    if keep < 1.0 and len(outcome.quarters) >= 3:
        half = (
            outcome.quarters[2] - outcome.quarters[0]
        ) * 2.0  # time of as many instructions as were executed
        cycles += half * (wanted / max(executed, 1) - 1.0)
    elif executed and abs(wanted - executed) > wanted // 50:
        cycles *= wanted / executed  # the stand-ins are a little shorter or longer
    if count < len(shares):
        cycles += (
            _later_waves(outcome, resident, cycles, count)
            * sum(s.instructions for s in shares[count:])
            / wanted
            * count
        )
    return CoreTime(cycles, outcome, min(executed / max(total, 1), 1.0))


def _later_waves(outcome: Outcome, resident: int, cycles: float, count: int) -> float:
    """Cycles that each further block adds."""
    ends = sorted(outcome.block_ends)
    if len(ends) > resident:
        scale = cycles / max(outcome.cycles, 1.0)
        first = sum(ends[:resident]) / resident
        last = sum(ends[-resident:]) / resident
        return scale * (last - first) / (len(ends) - resident)
    return cycles / max(count, 1)
