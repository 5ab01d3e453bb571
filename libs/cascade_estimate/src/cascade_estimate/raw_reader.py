"""The reader of the tracer's raw text, where the lines of all warps are mixed.

What does not fit is given up whole: blocks, the least wanted first, and of a block that is too long its last
warps. So a warp that is kept is complete, but for a single one that is too long by itself.
"""

from __future__ import annotations

import re
from array import array

from cascade_estimate.errors import TraceFormatError
from cascade_estimate.header import TraceHeader
from cascade_estimate.readers import BLOCK_LIMIT_BYTES, SAMPLE_LIMIT_BYTES, SampledBlock, planned_blocks

_CLUSTER_VERSION = 6  # of the tracer, from which on a line holds the place in a cluster
_CLUSTER_NUMBERS = 7


class RawReader:
    """Collects the lines of wanted blocks from a raw trace."""

    def __init__(self, source: str, header: TraceHeader) -> None:
        self._source, self._header = source, header
        grid = header.grid
        self._planned = planned_blocks(grid)
        self._of_prefix: dict[bytes, int] = {}
        for index in self._planned:
            x, y, z = index % grid[0], index // grid[0] % grid[1], index // (grid[0] * grid[1])
            self._of_prefix[b"%d %d %d" % (x, y, z)] = index
        alternatives = b"|".join(sorted(self._of_prefix))
        self._line = re.compile(rb"^(" + alternatives + rb") (?:(\d{1,9}) )?(.*)$", re.MULTILINE)
        self._blocks = {index: _Lines(header.warps) for index in self._planned}
        self._kept = list(self._planned)
        self._instructions = 0
        self._rest = b""
        self._cluster = header.tracer_version >= _CLUSTER_VERSION

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of the uncompressed text."""
        text = self._rest + chunk
        cut = text.rfind(b"\n") + 1
        self._rest = text[cut:]
        text = text[:cut]
        self._instructions += len(re.findall(rb"^\d", text, re.MULTILINE))
        for prefix, warp, line in self._line.findall(text):
            index = self._of_prefix[prefix]
            rest = line
            if self._cluster:
                rest = line.split(b" ", _CLUSTER_NUMBERS)[-1] if line.count(b" ") > _CLUSTER_NUMBERS else b""
            if not warp or not rest:
                shown = b" ".join((prefix, warp, line))[:60].decode(errors="replace")
                raise self._fault(f"a line is cut or damaged: {shown!r}")
            self._blocks[index].add(int(warp), rest)
        self._give_up()

    def _give_up(self) -> None:
        """Let go of what is beyond the limits."""
        for index in self._kept:
            self._blocks[index].shorten()
        while len(self._kept) > 1 and sum(self._blocks[i].size for i in self._kept) > SAMPLE_LIMIT_BYTES:
            self._blocks[self._kept.pop()].drop()

    def _fault(self, problem: str) -> TraceFormatError:
        return TraceFormatError(self._source, 0, problem)

    def finish(self) -> tuple[dict[int, SampledBlock], array[int], int]:
        """The sampled blocks, no lines of each block, and the instructions in all.

        Raises:
            TraceFormatError: the trace lacks blocks or warps of the header's grid, or the ends of warps.
        """
        header = self._header
        if self._rest.strip():
            raise self._fault(f"the last line is cut: {self._rest[-60:].decode(errors='replace')!r}")
        if self._instructions < header.blocks * header.warps:
            raise self._fault(
                f"the header's grid has {header.blocks} blocks of {header.warps} warps, the trace holds "
                f"{self._instructions} instructions; is it cut?"
            )
        for index in sorted(self._planned):
            self._check(index, self._blocks[index])
        sample = {
            index: SampledBlock(
                index, b"", self._blocks[index].warps(), self._blocks[index].whole, self._source
            )
            for index in sorted(self._kept)
        }
        return sample, array("l"), self._instructions

    def _check(self, index: int, block: _Lines) -> None:
        met, warps = block.met, self._header.warps
        if not met:
            raise self._fault(f"block {index} of the header's grid is not in the trace; is it cut?")
        if len(met) != warps or max(met) >= warps:
            raise self._fault(
                f"block {index}, {warps} warps expected from the header's block dim, {len(met)} found, "
                f"the last one {max(met)}; is the trace cut?"
            )
        for warp, lines in block.warps():
            if warp not in block.cut and b" EXIT " not in lines[-1]:
                raise self._fault(f"block {index}, warp {warp} does not end with EXIT; is the trace cut?")


class _Lines:
    """The lines of one block.

    Attributes:
        met: numbers of its warps in the trace, kept or not.
        cut: warps that are too long to be kept whole.
        size: bytes kept.
    """

    __slots__ = ("_below", "_lines", "cut", "met", "size")

    def __init__(self, warps: int) -> None:
        self._lines: dict[int, list[bytes]] = {}
        self._below = warps  # warps from this number on are given up
        self.met: set[int] = set()
        self.cut: set[int] = set()
        self.size = 0

    @property
    def whole(self) -> bool:
        """Whether all lines are here."""
        return len(self._lines) == len(self.met) and not self.cut

    def add(self, warp: int, line: bytes) -> None:
        self.met.add(warp)
        if warp < self._below and warp not in self.cut:
            self._lines.setdefault(warp, []).append(line)
            self.size += len(line)

    def shorten(self) -> None:
        """Give up the last warps of a block that is too long."""
        while self.size > BLOCK_LIMIT_BYTES and len(self._lines) > 1:
            self._below = max(self._lines)
            self.size -= sum(map(len, self._lines.pop(self._below)))
        if self.size > BLOCK_LIMIT_BYTES:
            self.cut.update(self._lines)

    def drop(self) -> None:
        """Give up the block."""
        self._below = self.size = 0
        self._lines.clear()

    def warps(self) -> tuple[tuple[int, tuple[bytes, ...]], ...]:
        """Per kept warp its number and lines."""
        return tuple((warp, tuple(lines)) for warp, lines in sorted(self._lines.items()))
