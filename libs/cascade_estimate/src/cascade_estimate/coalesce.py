"""From the lanes' addresses to what the memory system sees: 32-byte sectors, L1 bank cycles, shared-memory
conflicts.

Rules (those of the simulator for coalescing architectures 40 and later): an access is one sector; the L1
takes up to `-gpgpu_l1_banks` sectors of different banks a cycle, interleaved by sector; a shared-memory
instruction takes as many cycles as the busiest bank has distinct words, counting each lane's first word
only; an atomic splits where lanes meet in one word.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LINE_SHIFT = 7
_SECTOR_SHIFT = 5


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one warp access touches, relative to the 128-byte line of its first address.

    Attributes:
        lines: (line offset, mask of the four sectors) in address order.
        sectors: sectors in all lines together.
        banks: sector index modulo 64 of each access in order, for L1 bank cycles.
        transactions: for atomics, accesses after splitting at equal words; otherwise `sectors`.
        conflicts: shared-memory cycles.
    """

    lines: tuple[tuple[int, int], ...]
    sectors: int
    banks: tuple[int, ...]
    transactions: int
    conflicts: int

    def bank_cycles(self, banks: int) -> int:
        """Cycles in which the L1 accepts these sectors: each cycle goes on until a bank repeats."""
        cycles, used = 0, set[int]()
        for sector in self.banks:
            bank = sector % banks
            if bank in used or not used:
                cycles, used = cycles + 1, set()
            used.add(bank)
        return cycles


@dataclass(slots=True)
class Pattern:
    """Offsets of the active lanes from the first address; footprints are kept per alignment of that
    address."""

    offsets: tuple[int, ...]
    width: int
    _seen: dict[int, Footprint] = field(default_factory=dict)

    def at(self, base: int) -> Footprint:
        """Footprint when the first active lane's address is `base`."""
        alignment = base & 127
        found = self._seen.get(alignment)
        if found is None:
            found = self._seen[alignment] = _footprint(self.offsets, alignment, self.width)
        return found


def _footprint(offsets: tuple[int, ...], alignment: int, width: int) -> Footprint:
    sectors: dict[int, None] = {}
    words: dict[int, int] = {}
    banks: dict[int, set[int]] = {}
    tail = max(width, 1) - 1
    for offset in offsets:
        address = alignment + offset
        first, last = address >> _SECTOR_SHIFT, (address + tail) >> _SECTOR_SHIFT
        sectors[first] = None
        if last != first:
            sectors[last] = None
        word = address >> 2
        words[word] = words.get(word, 0) + 1
        banks.setdefault(word & 31, set()).add(word)
    depth: dict[int, int] = {}
    for word, lanes in words.items():
        sector = word >> 3
        depth[sector] = max(depth.get(sector, 0), lanes)
    lines: dict[int, int] = {}
    for sector in sectors:
        lines[sector >> 2] = lines.get(sector >> 2, 0) | 1 << (sector & 3)
    return Footprint(
        lines=tuple(sorted(lines.items())),
        sectors=len(sectors),
        banks=tuple(sector & 63 for sector in sectors),
        transactions=sum(depth.values()),
        conflicts=max((len(found) for found in banks.values()), default=0),
    )


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
