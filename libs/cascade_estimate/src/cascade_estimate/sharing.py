"""How the blocks' accesses meet: lines shared by blocks, at the same time or not, and the spread over slices
and channels.

Block 0 is compared with its neighbours at distances 1, 2, 4, ... along each dimension of the grid. The share
of block 0's lines that a neighbour touches too, weighted with the blocks that it stands for, gives the
number of blocks that share a line; dimensions multiply. Where the same warp touches the same line at the
same place of its program, the requests also meet in time, and their slice serves them one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from cascade_estimate.addressing import AddressMap
from cascade_estimate.config import GpuSpec
from cascade_estimate.decode import Instruction
from cascade_estimate.opcodes import Kind

_EPOCHS = 4  # epochs examined
_LINES_PER_EPOCH = 192
_LEAST_LINES = 12  # fewer distinct lines say nothing about a distribution over slices


@dataclass(frozen=True, slots=True)
class Access:
    """Properties of one static memory instruction over the grid.

    Attributes:
        sharers: blocks that touch a line that block 0 touches there, at any time.
        meeting: blocks that touch it at the same place of their program.
        slices: slices over which accesses made at about the same time spread (effective number).
        channels: the same for DRAM channels.
    """

    sharers: float
    meeting: float
    slices: float
    channels: float


@dataclass(frozen=True, slots=True)
class BlockAccesses:
    """The lines that a block touches: per (warp, program counter, occurrence), and all together per program
    counter.

    `kinds` holds each program counter's kind of instruction.
    """

    by_place: dict[tuple[int, int, int], tuple[int, ...]]
    by_pc: dict[int, set[int]]
    kinds: dict[int, int]


def block_accesses(warps: list[list[Instruction]]) -> BlockAccesses:
    """Collect the lines of a block's global accesses. `warps` may hold memory instructions only."""
    by_place: dict[tuple[int, int, int], tuple[int, ...]] = {}
    by_pc: dict[int, set[int]] = {}
    kinds: dict[int, int] = {}
    for warp, instructions in enumerate(warps):
        seen: dict[int, int] = {}
        for instruction in instructions:
            line = instruction.line
            if line < 0 or instruction.kind < Kind.LOAD:
                continue
            pc = instruction.pc
            occurrence = seen.get(pc, 0)
            seen[pc] = occurrence + 1
            lines = tuple([line + offset for offset, _ in instruction.footprint.lines])
            by_place[warp, pc, occurrence] = lines
            known = by_pc.get(pc)
            if known is None:
                by_pc[pc] = set(lines)
                kinds[pc] = instruction.kind
            else:
                known.update(lines)
    return BlockAccesses(by_place, by_pc, kinds)


def analyse(
    grid: tuple[int, int, int],
    blocks: dict[int, BlockAccesses],
    epochs: dict[tuple[int, int], int],
    spec: GpuSpec,
    addresses: AddressMap,
) -> dict[int, Access]:
    """Access properties per program counter.

    Args:
        grid: blocks along each dimension.
        blocks: accesses of sampled blocks; block 0 must be there.
        epochs: (program counter, occurrence) to the epoch of block 0's program in which it is in flight.
        spec: the config.
        addresses: its address map.
    """
    own = blocks[0]
    sharers = dict.fromkeys(own.by_pc, 1.0)
    meeting = dict.fromkeys(own.by_pc, 1.0)
    places: dict[int, int] = {}
    for _, pc, _ in own.by_place:
        places[pc] = places.get(pc, 0) + 1
    for stride, extent in ((1, grid[0]), (grid[0], grid[1]), (grid[0] * grid[1], grid[2])):
        reach = dict.fromkeys(own.by_pc, 1.0)
        meet = dict.fromkeys(own.by_pc, 1.0)
        distance = 1
        while distance < extent:
            other = blocks.get(distance * stride)
            if other is not None:
                weight = _weight(distance, extent)
                everything: set[int] = set().union(*other.by_pc.values()) if other.by_pc else set()
                for pc, lines in own.by_pc.items():
                    common = len(lines & everything)
                    if common:
                        reach[pc] += weight * common / len(lines)
                same: dict[int, int] = {}
                for place, lines_here in own.by_place.items():
                    if other.by_place.get(place) == lines_here:
                        same[place[1]] = same.get(place[1], 0) + 1
                for pc, count in same.items():
                    meet[pc] += weight * count / places[pc]
            distance *= 2
        for pc in own.by_pc:
            sharers[pc] *= reach[pc]
            meeting[pc] *= min(meet[pc], reach[pc])
    spread = _spread(grid, blocks, epochs, spec, addresses)
    even = (float(spec.slices), float(spec.channels))
    return {pc: Access(sharers[pc], meeting[pc], *spread.get(pc, even)) for pc in own.by_pc}


def _weight(distance: int, extent: int) -> int:
    """Blocks that the neighbour at `distance` stands for; the weights of 1, 2, 4, ... add up to `extent` -
    1."""
    low = distance // 2 + distance // 4 + 1 if distance > 1 else 1
    high = distance + distance // 2 if distance * 2 < extent else extent - 1
    return max(high - low + 1, 0)


def _spread(
    grid: tuple[int, int, int],
    blocks: dict[int, BlockAccesses],
    epochs: dict[tuple[int, int], int],
    spec: GpuSpec,
    addresses: AddressMap,
) -> dict[int, tuple[float, float]]:
    """Effective slices and channels per program counter, from the lines in flight together in each epoch.

    Where lines move by a constant from block to block, the lines of all active blocks follow from block 0
    and its neighbours. Irregular accesses are taken to spread evenly.
    """
    per_epoch: dict[int, list[tuple[int, tuple[int, int, int]]]] = {}
    for (warp, pc, occurrence), lines in blocks[0].by_place.items():
        epoch = epochs.get((pc, occurrence))
        if epoch is None:
            continue
        step = _step(grid, blocks, (warp, pc, occurrence), lines[0])
        if step is None:
            per_epoch.setdefault(epoch, [])
            continue
        known = per_epoch.setdefault(epoch, [])
        for line in lines:
            known.append((line, step))
    active = min(grid[0] * grid[1] * grid[2], spec.cores)
    inverse: dict[int, tuple[float, float]] = {}
    for epoch in _picked(sorted(per_epoch), _EPOCHS):
        distinct: set[int] = set()
        found = per_epoch[epoch]
        if found:
            for number in range(_LINES_PER_EPOCH):
                line, (dx, dy, dz) = found[number * 7919 % len(found)]
                block = number * 104729 % active
                x, y, z = block % grid[0], block // grid[0] % grid[1], block // (grid[0] * grid[1])
                distinct.add(line + x * dx + y * dy + z * dz)
        if len(distinct) >= _LEAST_LINES:
            located = [addresses.locate(line) for line in distinct]
            inverse[epoch] = (
                _concentration([place.slice for place in located], spec.slices),
                _concentration([place.channel for place in located], spec.channels),
            )
    collected: dict[int, list[tuple[float, float]]] = {}
    for (pc, _), epoch in epochs.items():
        if epoch in inverse:
            collected.setdefault(pc, []).append(inverse[epoch])
    return {
        pc: (len(values) / sum(value[0] for value in values), len(values) / sum(value[1] for value in values))
        for pc, values in collected.items()
    }


def _step(
    grid: tuple[int, int, int], blocks: dict[int, BlockAccesses], place: tuple[int, int, int], line: int
) -> tuple[int, int, int] | None:
    """Lines by which a place moves from block to block along each dimension; None when not constant."""
    steps = [0, 0, 0]
    stride = 1
    for dimension, extent in enumerate(grid):
        if extent > 1:
            near = blocks[stride].by_place.get(place) if stride in blocks else None
            if near is None:
                return None
            steps[dimension] = near[0] - line
            if extent > 2:
                far = blocks[2 * stride].by_place.get(place) if 2 * stride in blocks else None
                if far is None or abs(far[0] - line - 2 * steps[dimension]) > 1:
                    return None
        stride *= extent
    return steps[0], steps[1], steps[2]


def _picked(values: list[int], most: int) -> list[int]:
    return (
        values
        if len(values) <= most
        else [values[number * (len(values) - 1) // (most - 1)] for number in range(most)]
    )


def _concentration(places: list[int], count: int) -> float:
    """Chance that two accesses go to the same place, corrected for the sample's size; 1 / count when spread
    evenly."""
    tally: dict[int, int] = {}
    for place in places:
        tally[place] = tally.get(place, 0) + 1
    total = len(places)
    pairs = sum(number * (number - 1) for number in tally.values())
    return max(pairs / (total * (total - 1)), 1.0 / count)


def epochs_of(instructions: list[Instruction]) -> dict[tuple[int, int], int]:
    """Group a warp's global accesses by what is in flight together: a reader of loaded data begins a new
    epoch."""
    epoch = 0
    pending: set[int] = set()
    found: dict[tuple[int, int], int] = {}
    seen: dict[int, int] = {}
    for instruction in instructions:
        if pending and not pending.isdisjoint(instruction.regs):
            pending.clear()
            epoch += 1
        if instruction.line >= 0 and instruction.kind >= Kind.LOAD:
            occurrence = seen.get(instruction.pc, 0)
            seen[instruction.pc] = occurrence + 1
            found[instruction.pc, occurrence] = epoch
            pending.update(instruction.writes)
    return found
