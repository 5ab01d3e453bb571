"""From the lanes' addresses to what the memory system sees: 32-byte sectors, L1 bank cycles, shared-memory
conflicts.

Rules (those of the simulator for coalescing architectures 40 and later): an access is one sector; the L1
takes up to `-gpgpu_l1_banks` sectors of different banks a cycle, interleaved by sector; a shared-memory
instruction takes as many cycles as the busiest bank has distinct words, counting each lane's first word
only; an atomic splits where lanes meet in one word; local memory is laid out so that the lanes' copies of a
word follow each other and fill a line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

LINE_SHIFT = 7
WORD_SHIFT = 2
_LANES_SHIFT = 3  # lanes whose words of local memory share a sector
_SECTOR_SHIFT = 5


class Space(Enum):
    """What decides how an access is split."""

    SHARED = 0
    GLOBAL = 1
    ATOMIC = 2
    LOCAL = 3


@dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """What one warp access touches, relative to the 128-byte line of its first address.

    In local memory a line holds one word of each of the warp's threads, so lines count words there.

    Attributes:
        lines: (line offset, mask of the four sectors) in address order; empty for shared memory.
        sectors: sectors in all lines together.
        order: sector numbers in the order of the lanes, for L1 bank cycles.
        transactions: for atomics, accesses after splitting at equal words; otherwise `sectors`.
        conflicts: shared-memory cycles.
    """

    lines: tuple[tuple[int, int], ...]
    sectors: int
    order: tuple[int, ...]
    transactions: int
    conflicts: int

    def bank_cycles(self, banks: int) -> int:
        """Cycles in which the L1 accepts these sectors: each cycle goes on until a bank repeats."""
        cycles, used = 0, set[int]()
        for sector in self.order:
            bank = sector % banks
            if bank in used or not used:
                cycles, used = cycles + 1, set()
            used.add(bank)
        return cycles


@dataclass(slots=True, eq=False)
class Pattern:
    """Offsets of the active lanes (`mask`) from the first address; footprints are kept per alignment of that
    address."""

    offsets: tuple[int, ...]
    width: int
    space: Space
    mask: int = 0xFFFFFFFF
    _seen: dict[int, Footprint] = field(default_factory=dict)

    def at(self, base: int) -> Footprint:
        """Footprint when the first active lane's address is `base`."""
        alignment = base & 127
        found = self._seen.get(alignment)
        if found is None:
            found = self._seen[alignment] = _MAKERS[self.space](self, alignment)
        return found


def _shared_footprint(pattern: Pattern, alignment: int) -> Footprint:
    words = {alignment + offset >> 2 for offset in pattern.offsets}
    banks = [word & 31 for word in words]
    most = max(map(banks.count, set(banks))) if len(set(banks)) < len(banks) else 1
    return Footprint((), 0, (), 0, most)


def _global_footprint(pattern: Pattern, alignment: int) -> Footprint:
    first = [alignment + offset >> _SECTOR_SHIFT for offset in pattern.offsets]
    tail = max(pattern.width, 1) - 1
    if (alignment & 31) + tail > 31 or any(offset & tail for offset in pattern.offsets):
        # An access that crosses a sector boundary takes both sectors.
        first += [alignment + offset + tail >> _SECTOR_SHIFT for offset in pattern.offsets]
    order = tuple(dict.fromkeys(first))
    lines: dict[int, int] = {}
    for sector in order:
        line = sector >> 2
        lines[line] = lines.get(line, 0) | 1 << (sector & 3)
    transactions = len(order)
    if pattern.space is Space.ATOMIC:
        words = [alignment + offset >> 2 for offset in pattern.offsets]
        depth: dict[int, int] = {}
        for word in set(words):
            depth[word >> 3] = max(depth.get(word >> 3, 0), words.count(word))
        transactions = sum(depth.values())
    return Footprint(tuple(sorted(lines.items())), len(order), order, transactions, 1)


def _local_footprint(pattern: Pattern, alignment: int) -> Footprint:
    lanes = [lane for lane in range(pattern.mask.bit_length()) if pattern.mask >> lane & 1]
    own = alignment >> WORD_SHIFT
    sectors: dict[tuple[int, int], None] = {}
    for lane, offset in zip(lanes, pattern.offsets, strict=False):
        first, last = alignment + offset, alignment + offset + max(pattern.width, 1) - 1
        for word in range(first >> WORD_SHIFT, (last >> WORD_SHIFT) + 1):
            sectors[word - own, lane >> _LANES_SHIFT] = None
    lines: dict[int, int] = {}
    for word, sector in sectors:
        lines[word] = lines.get(word, 0) | 1 << sector
    order = tuple((word << 2) + sector for word, sector in sectors)
    return Footprint(tuple(sorted(lines.items())), len(order), order, len(order), 1)


_MAKERS = {
    Space.SHARED: _shared_footprint,
    Space.GLOBAL: _global_footprint,
    Space.ATOMIC: _global_footprint,
    Space.LOCAL: _local_footprint,
}


def lane_offsets(mask: int, mode: int, rest: list[int], base: int) -> tuple[int, ...]:
    """Offsets of the active lanes from `base` for the tracer's three address encodings.

    Args:
        mask: active lanes.
        mode: 0 lists every active lane's address (`rest` holds those after the first), 1 gives a stride for
            lanes that follow each other, 2 gives one difference per further active lane.
        rest: the numbers after the first address.
        base: the first address, needed for mode 0.
    """
    active = mask.bit_count()
    if mode == 0:
        return (0, *(address - base for address in rest[: active - 1]))
    if mode == 1:
        stride = rest[0] if rest else 0
        first = mask & -mask
        run = 0
        while mask & first << run:
            run += 1
        return tuple(stride * lane for lane in range(run))
    offsets = [0]
    for difference in rest[: active - 1]:
        offsets.append(offsets[-1] + difference)
    return tuple(offsets)
