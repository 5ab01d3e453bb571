"""The reader that streams the text of a processed trace and keeps a sample of its blocks; `raw_reader` has the
one of raw traces.

Blocks to keep are chosen from the header's grid before the first is met, so memory is bounded by constants
whatever the file's size, and nothing is read twice.
"""

from __future__ import annotations

import lzma
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, TypeAlias

from cascade_estimate.errors import TraceFormatError
from cascade_estimate.header import TraceHeader

_CHUNK_BYTES = 1 << 18
_COMPRESSED_BYTES = 1 << 16
BLOCK_LIMIT_BYTES = 8 << 20  # text kept of one block; a longer block is represented by its first warps
SAMPLE_LIMIT_BYTES = 24 << 20  # text kept of all blocks together
_TAIL_BYTES = 64  # kept of every block, to see its end
_LENGTHS = 1 << 14  # block lengths whose number of lines is remembered
_COUNTED_BLOCKS = 1 << 20  # blocks whose sizes are remembered one by one

Warps: TypeAlias = tuple[tuple[int, tuple[bytes, ...]], ...]
"""Per warp its number and its instruction lines."""

_COUNTS = re.compile(rb"\ninsts = (\d{1,12})\n")
_NUMBER = re.compile(rb"\s*\d{1,12}\s*")


@dataclass(frozen=True, slots=True)
class SampledBlock:
    """One block whose text was kept.

    Attributes:
        index: position in grid order (x fastest).
        text: the block's text from a processed trace, empty for a raw one.
        lines: per warp number its instruction lines, from a raw trace, where they were mixed.
        whole: whether all of the block's text is here.
        source: file name for messages.
        line: 1-based number of the line in which `text` begins, 0 for a raw trace.
        warps_expected: warps that the header's block size makes.
    """

    index: int
    text: bytes
    lines: Warps
    whole: bool
    source: str
    line: int = 0
    warps_expected: int = 0

    def line_of(self, warp: int, instruction: bytes) -> int:
        """Number of the line in which `warp` has this instruction first, 0 where that is not known."""
        at = self.text.find(b"\nwarp = %d\n" % warp)
        at = self.text.find(b"\n" + instruction + b"\n", at) if at >= 0 else -1
        return self.line + self.text.count(b"\n", 0, at + 1) if at >= 0 and self.line else 0

    def addresses(self) -> int:
        """Addresses in all of the block's lines."""
        if self.text:
            return self.text.count(b" 0x")
        return sum(line.count(b" 0x") for _, lines in self.lines for line in lines)

    def warps(self, most: int | None = None) -> Warps:
        """Per warp its number and instruction lines; a block that is not whole lacks its end.

        Args:
            most: take this many warps, evenly spread, where there are more.

        Raises:
            TraceFormatError: when the counts in the text and the lines disagree.
        """
        if self.lines:
            return tuple(self.lines[place] for place in _spread(len(self.lines), most))
        return _split_warps(self, most)


def _spread(count: int, most: int | None) -> list[int]:
    """All of `count` places, or `most` of them from the first to the last."""
    if most is None or most >= count:
        return list(range(count))
    return sorted({place * (count - 1) // max(most - 1, 1) for place in range(most)})


def planned_blocks(grid: tuple[int, int, int]) -> list[int]:
    """Blocks to keep, most wanted first.

    Blocks spread evenly over the grid stand for all; the neighbours of block 0 at distances 1, 2, 4, ...
    along each dimension show how many blocks share what it touches.
    """
    total = grid[0] * grid[1] * grid[2]
    wanted: dict[int, None] = {0: None}
    for parts in (2, 4, 8, 16):
        for part in range(parts + 1):
            wanted[min(part * total // parts, total - 1)] = None
        if parts == 4:
            for stride, extent in ((1, grid[0]), (grid[0], grid[1]), (grid[0] * grid[1], grid[2])):
                distance = 1
                while distance < extent:
                    wanted[distance * stride] = None
                    distance *= 2
    return list(wanted)


def chunks_of(name: str, stream: BinaryIO, *, compressed: bool) -> Iterator[bytes]:
    """Pieces of the uncompressed text.

    Raises:
        TraceFormatError: the compressed data is damaged or ends early.
    """
    return _xz_chunks(name, stream) if compressed else iter(partial(stream.read, _CHUNK_BYTES), b"")


def _xz_chunks(name: str, stream: BinaryIO) -> Iterator[bytes]:
    decoder = lzma.LZMADecompressor()
    while True:
        fresh = stream.read(_COMPRESSED_BYTES) if decoder.needs_input or decoder.eof else b""
        if decoder.eof:
            fresh = decoder.unused_data + fresh
            if not fresh.strip(b"\0"):
                return
            decoder = lzma.LZMADecompressor()  # several streams in one file follow each other
        elif decoder.needs_input and not fresh:
            raise TraceFormatError(name, 0, "the xz data is damaged or cut (it ends before its end marker)")
        try:
            chunk = decoder.decompress(fresh, _CHUNK_BYTES)
        except (lzma.LZMAError, EOFError) as error:
            raise TraceFormatError(name, 0, f"the xz data is damaged or cut ({error})") from None
        if chunk:
            yield chunk


class ProcessedReader:
    """Cuts a processed trace into blocks as it streams by."""

    _BEGIN = b"#BEGIN_TB"

    def __init__(self, source: str, header: TraceHeader, lines_before: int = 0) -> None:
        self._source, self._header = source, header
        self._lines_before = lines_before  # of the header
        self._wanted = set(planned_blocks(header.grid))
        self._sample: dict[int, SampledBlock] = {}
        self._kept_bytes = 0
        self._block_lines = array("l")
        self._lines = 0
        self._index = -1
        self._pieces: list[bytes] = []
        self._piece_bytes = 0
        self._tail = b""
        self._newlines = 0
        self._keep = False
        # Blocks of one kernel that are equally long have equally many lines, so each length is counted once.
        self._lines_of: dict[int, int] = {}
        self._rest = b""
        self._overhead: int | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of the uncompressed text."""
        text = self._rest + chunk
        begin = self._BEGIN
        # A marker may straddle two pieces: the last bytes wait for the next one.
        last = len(text) - len(begin) + 1
        start = place = 0
        while True:
            at = text.find(b"#", place, last)  # a single byte is found many times faster than the marker
            if at < 0:
                break
            if not text.startswith(begin, at):
                place = at + 1
                continue
            self._take(text, start, at, whole=start > 0)
            self._close()
            self._index += 1
            self._keep = self._index in self._wanted and self._kept_bytes < SAMPLE_LIMIT_BYTES
            start = place = at + len(begin)
        cut = max(last, start)
        self._take(text, start, cut)
        self._rest = text[cut:]

    def _take(self, text: bytes, start: int, end: int, *, whole: bool = False) -> None:
        if start >= end:
            return
        lines = self._lines_of.get(end - start) if whole else None
        if lines is None:
            lines = text.count(b"\n", start, end)
            if whole and len(self._lines_of) < _LENGTHS:
                self._lines_of[end - start] = lines
        self._newlines += lines
        if self._index < 0:
            return
        self._tail = (self._tail + text[max(start, end - _TAIL_BYTES) : end])[-_TAIL_BYTES:]
        if not self._keep:
            return
        room = BLOCK_LIMIT_BYTES - self._piece_bytes
        if room > 0:
            piece = text[start : min(end, start + room)]
            self._pieces.append(piece)
            self._piece_bytes += len(piece)

    def _close(self) -> None:
        if self._index < 0:
            self._lines_before += self._newlines
            self._newlines = 0
            self._pieces = []
            return
        text = b"".join(self._pieces)
        kept = self._piece_bytes > 0
        whole = kept and self._piece_bytes < BLOCK_LIMIT_BYTES
        if b"#END_TB" not in self._tail:
            end = self._lines_before + self._lines + self._newlines
            problem = f"block {self._index} ends without #END_TB; the trace is cut or damaged"
            raise TraceFormatError(self._source, end, problem)
        if kept:
            line = self._lines_before + self._lines + 1
            self._sample[self._index] = SampledBlock(
                self._index, text, (), whole, self._source, line, self._header.warps
            )
            self._kept_bytes += self._piece_bytes
            if whole and self._overhead is None:
                # The last block lacks the empty line that parts it from a next one, so the first block sets
                # the rule.
                self._overhead = self._newlines - sum(int(count) for count in _COUNTS.findall(text))
        if len(self._block_lines) < _COUNTED_BLOCKS:
            self._block_lines.append(self._newlines)
        self._lines += self._newlines
        self._newlines = 0
        self._pieces = []
        self._piece_bytes = 0
        self._tail = b""

    def finish(self) -> tuple[dict[int, SampledBlock], array[int], int]:
        self._take(self._rest, 0, len(self._rest))
        self._close()
        found = self._index + 1
        if found != self._header.blocks:
            raise TraceFormatError(
                self._source,
                0,
                f"the header's grid has {self._header.blocks} blocks, the trace holds {found}; is it cut?",
            )
        overhead = self._overhead or 0
        counted = array("l", (max(lines - overhead, 0) for lines in self._block_lines))
        if counted and found > 1:
            last = self._sample.get(found - 1)
            if last is not None and last.whole:
                counted[-1] = sum(int(count) for count in _COUNTS.findall(last.text))
        return (
            self._sample,
            counted,
            sum(counted) if len(counted) == found else max(self._lines - overhead * found, 0),
        )


def _split_warps(block: SampledBlock, most: int | None) -> Warps:
    """Split a block's text into warps, checking the counts that the processing tool wrote."""
    text, whole = block.text, block.whole
    end = text.find(b"#END_TB")
    body = text if end < 0 else text[:end]
    found: list[tuple[int, tuple[bytes, ...]]] = []
    parts = body.split(b"\nwarp = ")

    def fault(position: int, problem: str) -> TraceFormatError:
        before = sum(part.count(b"\n") + 1 for part in parts[:position])
        return TraceFormatError(
            block.source, block.line + before if block.line else 0, f"block {block.index}, {problem}"
        )

    if whole and len(parts) - 1 != block.warps_expected:
        problem = f"{block.warps_expected} warps expected from the header's block dim, {len(parts) - 1} found"
        raise fault(1, problem)
    for place in _spread(len(parts) - 1, most):
        position, part = place + 1, parts[place + 1]
        number, _, rest = part.partition(b"\n")
        announced, _, rest = rest.partition(b"\n")
        if (
            _NUMBER.fullmatch(number) is None
            or not announced.startswith(b"insts = ")
            or _NUMBER.fullmatch(announced, 8) is None
        ):
            if not whole and position == len(parts) - 1:
                break  # the text was cut at the limit
            shown = number[:20].decode(errors="replace")
            raise fault(position, f"warp {shown}: the line 'insts = <n>' is missing")
        lines = rest.rstrip(b"\n").split(b"\n") if rest.strip() else []
        expected = int(announced[8:])
        if not whole and position == len(parts) - 1 and len(lines) <= expected:
            lines = lines[:-1]  # maybe cut inside the last line
        elif len(lines) != expected:
            raise fault(
                position, f"warp {int(number)}: {expected} instructions announced, {len(lines)} found"
            )
        elif not lines or b" EXIT " not in lines[-1]:
            # The simulator stops at such a warp.
            problem = "ends without EXIT" if lines else "has no instruction"
            raise fault(position, f"warp {int(number)} {problem}; is the trace cut?")
        found.append((int(number), tuple(lines)))
    if not found:
        raise fault(0, "no warp is in it")
    return tuple(found)
