"""How the blocks' accesses meet: lines shared by blocks, at the same time or not.

Block 0 is compared with its neighbours at distances 1, 2, 4, ... along each dimension of the grid. The share
of block 0's lines that a neighbour touches too, weighted with the blocks that it stands for, gives the
number of blocks that share a line; dimensions multiply. Where the same warp touches the same line at the
same place of its program, the requests also meet in time, and their slice serves them one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from cascade_estimate.decode import Instruction
from cascade_estimate.opcodes import GLOBAL_KINDS

_BURST_LINES = 8  # that show how an access spreads over slices

Place: TypeAlias = tuple[int, int, int]
"""Warp, program counter, and how often the warp was there before."""

Step: TypeAlias = tuple[int, int, int]
"""Lines by which an access moves from block to block along x, y and z."""


@dataclass(frozen=True, slots=True)
class Access:
    """Properties of one static memory instruction over the grid.

    Attributes:
        sharers: blocks that touch a line that block 0 touches there, at any time.
        meeting: blocks that touch it at the same place of their program.
        first: whether it is among the program's first accesses, when all cores are still in step.
        step: lines by which it moves from block to block along each dimension, None when not constant.
        burst: lines that block 0's warps touch when they come there first, each with a mask of its sectors.
    """

    sharers: float
    meeting: float
    first: bool
    step: Step | None = None
    burst: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BlockAccesses:
    """The lines that a block touches: per (warp, program counter, occurrence), and all together per program
    counter.

    `bursts` holds each program counter's first lines with their sectors, `kinds` its kind of instruction,
    `everything` all lines, and `scale`
    is the number of the block's accesses over those looked at.
    """

    by_place: dict[tuple[int, int, int], tuple[int, ...]]
    bursts: dict[int, list[tuple[int, int]]]
    by_pc: dict[int, set[int]]
    kinds: dict[int, int]
    everything: set[int]
    scale: float


def block_accesses(warps: Iterable[tuple[int, list[Instruction]]], scale: float = 1.0) -> BlockAccesses:
    """Collect the lines of a block's global accesses. `warps` holds position and instructions, of which those
    without an address do not matter."""
    by_place: dict[tuple[int, int, int], tuple[int, ...]] = {}
    by_pc: dict[int, set[int]] = {}
    bursts: dict[int, list[tuple[int, int]]] = {}
    kinds: dict[int, int] = {}
    for warp, instructions in warps:
        seen: dict[int, int] = {}
        for instruction in instructions:
            line = instruction.line
            if line < 0 or instruction.kind not in GLOBAL_KINDS:
                continue
            pc = instruction.pc
            occurrence = seen.get(pc, 0)
            seen[pc] = occurrence + 1
            lines = tuple([line + offset for offset, _ in instruction.footprint.lines])
            by_place[warp, pc, occurrence] = lines
            if occurrence == 0:
                burst = bursts.setdefault(pc, [])
                if len(burst) < _BURST_LINES:
                    burst += [(line + offset, mask) for offset, mask in instruction.footprint.lines]
            known = by_pc.get(pc)
            if known is None:
                by_pc[pc] = set(lines)
                kinds[pc] = instruction.kind
            else:
                known.update(lines)
    return BlockAccesses(by_place, bursts, by_pc, kinds, set().union(*by_pc.values()), scale)


def regular(grid: tuple[int, int, int], blocks: dict[int, BlockAccesses]) -> bool:
    """Whether every access moves by a constant from block to block, so that the nearest neighbours tell all."""
    return None not in _steps(grid, blocks).values()


def analyse(
    grid: tuple[int, int, int], blocks: dict[int, BlockAccesses], first: frozenset[int]
) -> dict[int, Access]:
    """Access properties per program counter.

    Args:
        grid: blocks along each dimension.
        blocks: accesses of sampled blocks; block 0 must be there with all warps, the others may hold a few.
        first: from `first_accesses`.
    """
    own = blocks[0]
    steps = _steps(grid, blocks)
    places: dict[int, list[Place]] = {}
    for place in own.by_place:
        places.setdefault(place[1], []).append(place)
    found: dict[int, tuple[float, float]] = {}
    step_of: dict[int, Step | None] = {}
    for pc, mine in places.items():
        sharers = meeting = 1.0
        moves = [steps[place[1:]] for place in mine]
        for dimension, extent in enumerate(grid):
            if extent > 1:
                stride = (1, grid[0], grid[0] * grid[1])[dimension]
                reach, meet = _reach(blocks, mine, stride, extent)
                still = sum(move is not None and move[dimension] == 0 for move in moves) / len(moves)
                if None not in moves:
                    reach = min(1.0 + still * (extent - 1) + (1.0 - still) * (reach - 1.0), float(extent))
                    meet = 1.0 + still * (extent - 1)
                sharers *= reach
                meeting *= min(meet, reach)
        found[pc] = sharers, meeting
        distinct = set(moves)
        step_of[pc] = distinct.pop() if len(distinct) == 1 else None
    return {
        pc: Access(*found[pc], pc in first, step_of[pc], tuple(own.bursts[pc][:_BURST_LINES]))
        for pc in own.by_pc
    }


def _reach(
    blocks: dict[int, BlockAccesses], mine: list[Place], stride: int, extent: int
) -> tuple[float, float]:
    """Blocks along one dimension that share the lines of `pc`, at any time and at the same place."""
    own = blocks[0]
    reach = meet = 1.0
    distance = 1
    while distance < extent:
        other = blocks.get(distance * stride)
        if other is not None:
            both = [place for place in mine if place in other.by_place]
            lines = {line for place in both for line in own.by_place[place]}
            common = len(lines & other.everything) if lines else 0
            if common:
                weight = _weight(distance, extent)
                # What was looked at of the other block is a part of what it touches.
                reach += weight * min(common / len(lines) * other.scale / own.scale, 1.0)
                meet += (
                    weight * sum(other.by_place[place] == own.by_place[place] for place in both) / len(both)
                )
        distance *= 2
    return reach, meet


def _weight(distance: int, extent: int) -> int:
    """Blocks that the neighbour at `distance` stands for; the weights of 1, 2, 4, ... add up to `extent` -
    1."""
    low = distance // 2 + distance // 4 + 1 if distance > 1 else 1
    high = distance + distance // 2 if distance * 2 < extent else extent - 1
    return max(high - low + 1, 0)


def _steps(
    grid: tuple[int, int, int], blocks: dict[int, BlockAccesses]
) -> dict[tuple[int, int], Step | None]:
    """Per program counter and occurrence, the lines by which it moves from block to block; None when not constant."""
    own = blocks[0]
    result: dict[tuple[int, int], Step | None] = {place[1:]: (0, 0, 0) for place in own.by_place}
    stride = 1
    for dimension, extent in enumerate(grid):
        if extent > 1:
            near, far = blocks.get(stride), blocks.get(2 * stride)
            moves: dict[tuple[int, int], set[int]] = {}
            for place, lines in (near.by_place if near else {}).items():
                here = own.by_place.get(place)
                if here is not None:
                    move = lines[0] - here[0]
                    moves.setdefault(place[1:], set()).update((move, lines[-1] - here[-1]))
                    ahead = far.by_place.get(place) if far else None
                    if (extent > 2 and (ahead is None or abs(ahead[0] - here[0] - 2 * move) > 1)) or len(
                        lines
                    ) != len(here):
                        moves[place[1:]].add(move + 2)  # not a straight line
            for key, step in result.items():
                found = moves.get(key, set())
                if step is None or not found or max(found) - min(found) > 1:
                    result[key] = None
                else:
                    result[key] = (*step[:dimension], min(found, key=abs), *step[dimension + 1 :])  # type: ignore[assignment]
        stride *= extent
    return result


def first_accesses(instructions: list[Instruction]) -> frozenset[int]:
    """Program counters of the global accesses before anything waits for loaded data."""
    pending: set[int] = set()
    found: set[int] = set()
    for instruction in instructions:
        if pending and not pending.isdisjoint(instruction.regs):
            break
        if instruction.line >= 0 and instruction.kind in GLOBAL_KINDS:
            found.add(instruction.pc)
            pending.update(instruction.writes)
    return frozenset(found)
