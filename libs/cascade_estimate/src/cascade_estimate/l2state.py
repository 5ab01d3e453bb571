"""What one kernel leaves in L2 for the next, as ranges of 128-byte lines with the newest last."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Region:
    """Lines `low` up to but not including `high`, of which about `lines` were touched."""

    low: int
    high: int
    lines: float


@dataclass(frozen=True, slots=True)
class WarmL2:
    """Regions in L2, oldest first. L2 is not flushed between kernels."""

    regions: tuple[Region, ...] = ()

    def after(self, touched: tuple[Region, ...]) -> WarmL2:
        """L2 after a kernel touched these regions: they are the newest, older copies of them go."""
        kept = tuple(
            old
            for old in self.regions
            if not any(new.low <= old.low and old.high <= new.high for new in touched)
        )
        return WarmL2(kept + touched)

    def resident(self, capacity_lines: float) -> tuple[tuple[int, int], ...]:
        """Ranges still in an L2 of `capacity_lines`: the newest that fit, the first that does not fit in
        part."""
        ranges: list[tuple[int, int]] = []
        room = capacity_lines
        for region in reversed(self.regions):
            if room <= 0:
                break
            part = min(room / max(region.lines, 1.0), 1.0)
            # What was touched last is at the end of a region that is walked upwards.
            ranges.append((region.high - int((region.high - region.low) * part), region.high))
            room -= region.lines
        return tuple(ranges)
