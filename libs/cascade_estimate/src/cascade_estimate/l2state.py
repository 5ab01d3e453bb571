"""What one kernel leaves in L2 for the next, as ranges of 128-byte lines with the newest last."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_REGIONS = 64  # older ones have long been replaced, or their lines touched again
_MOST_KNOWN_LINES = 1 << 16  # single lines remembered over all regions


@dataclass(frozen=True, slots=True)
class Region:
    """Lines `low` up to but not including `high`, of which about `lines` were touched, those in `known` surely."""

    low: int
    high: int
    lines: float
    known: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class WarmRange:
    """A range in L2: lines in `known` are there, of the others a share of `density`."""

    low: int
    high: int
    density: float
    known: frozenset[int]


@dataclass(frozen=True, slots=True)
class WarmL2:
    """Regions in L2, oldest first. L2 is not flushed between kernels."""

    regions: tuple[Region, ...] = ()

    def after(self, touched: tuple[Region, ...]) -> WarmL2:
        """L2 after a kernel touched these regions: they are the newest, older copies of them go."""
        kept = [
            old
            for old in self.regions
            if not any(
                new.low <= old.low and old.high <= new.high and new.lines >= old.lines for new in touched
            )
        ]
        room = _MOST_KNOWN_LINES
        newest: list[Region] = []
        for region in reversed((*kept, *touched)):
            known = region.known if len(region.known) <= room else frozenset()
            room -= len(known)
            newest.append(Region(region.low, region.high, region.lines, known))
            if len(newest) == _MOST_REGIONS:
                break
        return WarmL2(tuple(reversed(newest)))

    def resident(self, capacity_lines: float) -> tuple[WarmRange, ...]:
        """Ranges still in an L2 of `capacity_lines`: the newest that fit, the first that does not fit in part."""
        ranges: list[WarmRange] = []
        room = capacity_lines
        for region in reversed(self.regions):
            if room <= 0:
                break
            part = min(room / max(region.lines, 1.0), 1.0)
            span = region.high - region.low
            # What was touched last is at the end of a region that is walked upwards.
            low = region.high - int(span * part)
            ranges.append(WarmRange(low, region.high, min(region.lines / span, 1.0), region.known))
            room -= region.lines
        return tuple(ranges)
