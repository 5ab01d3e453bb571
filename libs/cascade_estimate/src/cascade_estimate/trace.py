"""Kernel traces, read once as a stream: the header, the size of every block, and the text of a sample of
blocks.

Two text forms exist: the tracer's raw `.trace`, where lines of all warps are mixed, and the processed
`.traceg`, where blocks follow each other. Both may be compressed (`.xz`). Blocks to keep are chosen from the
header's grid before the first is met, so memory is bounded by constants whatever the file's size.
"""

from __future__ import annotations

import ast
import lzma
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeAlias

from cascade_estimate.decode import Decoder, Instruction
from cascade_estimate.errors import TraceFormatError
from cascade_estimate.loops import Loop, main_loop, shortened
from cascade_estimate.sharing import BlockAccesses, block_accesses

_CHUNK_BYTES = 1 << 18
_HEADER_LIMIT_BYTES = 1 << 16  # a kernel name of several thousand characters is the longest thing in a header
_BLOCK_LIMIT_BYTES = 4 << 20  # text kept of one block; a longer block is represented by its beginning
_SAMPLE_LIMIT_BYTES = 24 << 20  # text kept of all blocks together
_TAIL_BYTES = 64  # kept of blocks that are only counted, to see their end
_COUNTED_BLOCKS = 1 << 20  # blocks whose sizes are remembered one by one


Warps: TypeAlias = tuple[tuple[int, tuple[bytes, ...]], ...]
"""Per warp its number and its instruction lines."""


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """The `-key = value` lines at the head of a kernel trace."""

    name: str
    kernel_id: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    registers: int
    binary_version: int
    stream: int
    shared_base: int
    local_base: int
    tracer_version: int
    lineinfo: bool
    lines: tuple[str, ...]

    @property
    def blocks(self) -> int:
        """Thread blocks in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Warps in a block."""
        return (self.threads + 31) // 32


@dataclass(frozen=True, slots=True)
class SampledBlock:
    """One block whose text was kept.

    Attributes:
        index: position in grid order (x fastest).
        text: the block's text from a processed trace, empty for a raw one.
        lines: per warp number its instruction lines, from a raw trace, where they were mixed.
        whole: whether all of the block's text is here.
        source: file name for messages.
    """

    index: int
    text: bytes
    lines: Warps
    whole: bool
    source: str

    def warps(self) -> Warps:
        """Per warp its number and instruction lines; a block that is not whole lacks its end.

        Raises:
            TraceFormatError: when the counts in the text and the lines disagree.
        """
        return self.lines or _split_warps(self.source, self.index, self.text, whole=self.whole)


@dataclass(frozen=True, slots=True)
class KernelTrace:
    """What `read_trace` keeps of a kernel.

    Attributes:
        source: file name for messages.
        header: the header.
        sample: sampled blocks by index.
        decoder: decodes its lines; what it learns serves every config.
        block_lines: instruction lines of each block, or empty where not counted one by one (raw traces).
        instructions: warp instructions in the whole trace (exact for processed traces).
        size_bytes: uncompressed size.
        witnesses: accesses of the blocks that are compared, filled on first use.
    """

    source: str
    header: TraceHeader
    sample: dict[int, SampledBlock]
    decoder: Decoder
    block_lines: array[int]
    instructions: int
    size_bytes: int
    witnesses: dict[int, BlockAccesses] = field(default_factory=dict)
    _warps: dict[int, Warps] = field(default_factory=dict)
    _loops: list[Loop | None] = field(default_factory=list)
    _decoded: dict[tuple[int, float], list[list[Instruction]]] = field(default_factory=dict)

    def warps(self, index: int) -> Warps:
        """Instruction lines of a sampled block, split once."""
        found = self._warps.get(index)
        if found is None:
            found = self._warps[index] = self.sample[index].warps()
        return found

    def block(self, index: int, part: float = 1.0) -> list[list[Instruction]]:
        """Decoded warps of a sampled block, kept for further configs; `part` takes the beginning of every warp."""
        found = self._decoded.get((index, part))
        if found is None:
            warps = self.warps(index)
            if part < 1.0:
                warps = tuple((number, lines[: max(int(len(lines) * part), 1)]) for number, lines in warps)
            found = self._decoded[index, part] = self.decoder.block(warps, index)
        return found

    @property
    def loop(self) -> Loop | None:
        """The main loop of block 0's longest warp."""
        if not self._loops:
            lines = max((lines for _, lines in self.warps(0)), key=len)
            self._loops.append(main_loop(lines, lineinfo=self.header.lineinfo))
        return self._loops[0]

    def shortened(self, index: int, keep: int) -> tuple[list[list[Instruction]], float]:
        """A block with at most `keep` iterations of the main loop, and how many a warp leaves out on average."""
        loop = self.loop
        assert loop is not None
        warps = [(number, shortened(lines, loop, keep)) for number, lines in self.warps(index)]
        code = self.decoder.block(((number, part) for number, (part, _) in warps), index)
        return code, sum(left for _, (_, left) in warps) / len(warps)

    def program(self, most: int) -> list[Instruction]:
        """The first `most` instructions of the longest warp of block 0."""
        number, lines = max(self.warps(0), key=lambda warp: len(warp[1]))
        return self.decoder.block(((number, lines[:most]),), 0)[0]

    def accesses_of(self, index: int, most: int, warps: int) -> BlockAccesses | None:
        """The first `most` accesses of `warps` evenly spread warps of a block, None if it was not sampled."""
        if index not in self.sample:
            return None
        every = self.warps(index)
        last = len(every) - 1
        picked = (
            sorted({place * last // max(warps - 1, 1) for place in range(warps)}) if warps <= last else None
        )
        accesses = self.decoder.accesses(
            every if picked is None else [every[place] for place in picked], index, most
        )
        text = self.sample[index].text
        total = text.count(b" 0x") if text else sum(b" 0x" in line for _, lines in every for line in lines)
        numbers = range(len(every)) if picked is None else picked
        return block_accesses(zip(numbers, accesses, strict=True), total / max(sum(map(len, accesses)), 1))


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


def read_trace(path: str | Path) -> KernelTrace:
    """Read a kernel trace (`.trace`, `.traceg`, each plain or `.xz`).

    Raises:
        TraceFormatError: the file is missing, cut, damaged, of another format, or its blocks and grid
        disagree.
    """
    path = Path(path)
    name = path.name
    plain = name.removesuffix(".xz")
    if plain.endswith(".tracez"):
        raise TraceFormatError(
            name, 0, "the .tracez format is not read; process the raw trace with --text to get .traceg"
        )
    if not plain.endswith((".trace", ".traceg")):
        raise TraceFormatError(name, 0, "a kernel trace ends with .trace, .trace.xz, .traceg or .traceg.xz")
    try:
        opened: BinaryIO
        with lzma.open(path) if name.endswith(".xz") else path.open("rb") as opened:  # type: ignore[assignment]
            return _read(name, _chunks(name, opened), raw=plain.endswith(".trace"))
    except FileNotFoundError:
        raise TraceFormatError(name, 0, "the file does not exist") from None


def _chunks(name: str, stream: BinaryIO) -> Iterator[bytes]:
    while True:
        try:
            chunk = stream.read(_CHUNK_BYTES)
        except (lzma.LZMAError, EOFError) as error:
            raise TraceFormatError(name, 0, f"the xz data is damaged or cut ({error})") from None
        if not chunk:
            return
        yield chunk


def _read(name: str, chunks: Iterator[bytes], *, raw: bool) -> KernelTrace:
    buffer = b""
    while b"#traces format" not in buffer:
        more = next(chunks, b"")
        if not more or len(buffer) > _HEADER_LIMIT_BYTES:
            what = (
                "the file is empty"
                if not buffer.strip()
                else "the line '#traces format' that ends the header is missing"
            )
            raise TraceFormatError(name, 0, what)
        buffer += more
    head, _, body = buffer.partition(b"#traces format")
    while b"\n" not in body:
        more = next(chunks, b"")
        if not more:
            break
        body += more
    body = body.partition(b"\n")[2]
    header = parse_header(name, head.decode("utf-8", errors="replace"))
    reader = _RawReader(name, header) if raw else _ProcessedReader(name, header)
    size = len(buffer)
    reader.feed(body)
    for chunk in chunks:
        size += len(chunk)
        reader.feed(chunk)
    sample, block_lines, instructions = reader.finish()
    decoder = Decoder(name, header.lineinfo, (header.shared_base, header.local_base))
    return KernelTrace(name, header, sample, decoder, block_lines, instructions, size)


def parse_header(source: str, text: str) -> TraceHeader:
    """Parse the header lines. Raises TraceFormatError naming the line and key."""
    values: dict[str, tuple[int, str]] = {}
    lines: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        key, equals, value = line.partition(" = ")
        if not line.startswith("-") or not equals:
            raise TraceFormatError(
                source, number, f"a header line '-key = value' expected, found {line[:60]!r}"
            )
        values[key[1:].strip()] = (number, value)
        lines.append(line)

    def number_of(key: str, fallback: int | None = None) -> int:
        if key not in values:
            if fallback is None:
                raise TraceFormatError(source, 0, f"the header has no line '-{key} = ...'")
            return fallback
        line, value = values[key]
        try:
            return int(value, 0)
        except ValueError:
            raise TraceFormatError(source, line, f"-{key}: a number expected, found {value!r}") from None

    def triple(key: str) -> tuple[int, int, int]:
        if key not in values:
            raise TraceFormatError(source, 0, f"the header has no line '-{key} = (x,y,z)'")
        line, value = values[key]
        try:
            x, y, z = ast.literal_eval(value)
            if min(x, y, z) < 1:
                raise ValueError
            return int(x), int(y), int(z)
        except (ValueError, SyntaxError, TypeError):
            raise TraceFormatError(
                source, line, f"-{key}: (x,y,z) of at least 1 expected, found {value!r}"
            ) from None

    return TraceHeader(
        name=values.get("kernel name", (0, ""))[1].strip(),
        kernel_id=number_of("kernel id", 0),
        grid=triple("grid dim"),
        block=triple("block dim"),
        shared_bytes=number_of("shmem", 0),
        registers=number_of("nregs", 0),
        binary_version=number_of("binary version", 0),
        stream=number_of("cuda stream id", 0),
        shared_base=number_of("shmem base_addr", 0),
        local_base=number_of("local mem base_addr", 0),
        tracer_version=number_of("accelsim tracer version", 0),
        lineinfo=number_of("enable lineinfo", 0) == 1,
        lines=tuple(lines),
    )


class _ProcessedReader:
    """Cuts a processed trace into blocks as it streams by."""

    _BEGIN = b"#BEGIN_TB"

    def __init__(self, source: str, header: TraceHeader) -> None:
        self._source, self._header = source, header
        self._wanted = set(planned_blocks(header.grid))
        self._sample: dict[int, SampledBlock] = {}
        self._kept_bytes = 0
        self._block_lines = array("l")
        self._lines = 0
        self._index = -1
        self._pieces: list[bytes] = []
        self._piece_bytes = 0
        self._newlines = 0
        self._keep = False
        self._rest = b""
        self._overhead: int | None = None

    def feed(self, chunk: bytes) -> None:
        text = self._rest + chunk
        # A marker may straddle two chunks: the last bytes wait for the next one.
        hold = len(self._BEGIN) - 1
        start = 0
        while True:
            at = text.find(self._BEGIN, start)
            if at < 0:
                break
            self._take(text, start, at)
            self._close()
            self._index += 1
            self._keep = self._index in self._wanted and self._kept_bytes < _SAMPLE_LIMIT_BYTES
            start = at + len(self._BEGIN)
        cut = max(len(text) - hold, start)
        self._take(text, start, cut)
        self._rest = text[cut:]

    def _take(self, text: bytes, start: int, end: int) -> None:
        if start >= end:
            return
        self._newlines += text.count(b"\n", start, end)
        if self._index < 0:
            return
        if not self._keep:
            self._pieces = [
                (b"".join(self._pieces) + text[max(start, end - _TAIL_BYTES) : end])[-_TAIL_BYTES:]
            ]
            return
        room = _BLOCK_LIMIT_BYTES - self._piece_bytes
        if room > 0:
            piece = text[start : min(end, start + room)]
            self._pieces.append(piece)
            self._piece_bytes += len(piece)

    def _close(self) -> None:
        if self._index < 0:
            self._newlines = 0
            self._pieces = []
            return
        text = b"".join(self._pieces)
        kept = self._piece_bytes > 0
        whole = kept and self._piece_bytes < _BLOCK_LIMIT_BYTES
        if (whole or not kept) and b"#END_TB" not in text[-_TAIL_BYTES:]:
            raise TraceFormatError(
                self._source, 0, f"block {self._index} ends without #END_TB; the trace is cut or damaged"
            )
        if kept:
            self._sample[self._index] = SampledBlock(self._index, text, (), whole, self._source)
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


_COUNTS = re.compile(rb"\ninsts = (\d+)\n")


def _split_warps(source: str, index: int, text: bytes, *, whole: bool) -> Warps:
    """Split a block's text into warps, checking the counts that the processing tool wrote."""
    end = text.find(b"#END_TB")
    body = text if end < 0 else text[:end]
    found: list[tuple[int, tuple[bytes, ...]]] = []
    parts = body.split(b"\nwarp = ")
    for position, part in enumerate(parts[1:], 1):
        number, _, rest = part.partition(b"\n")
        announced, _, rest = rest.partition(b"\n")
        if (
            not number.strip().isdigit()
            or not announced.startswith(b"insts = ")
            or not announced[8:].strip().isdigit()
        ):
            if not whole and position == len(parts) - 1:
                break  # the text was cut at the limit
            raise TraceFormatError(
                source,
                0,
                f"block {index}, warp {number[:20].decode(errors='replace')}: the line 'insts = <n>' is missing",
            )
        lines = rest.rstrip(b"\n").split(b"\n") if rest.strip() else []
        expected = int(announced[8:])
        if not whole and position == len(parts) - 1 and len(lines) <= expected:
            lines = lines[:-1]  # maybe cut inside the last line
        elif len(lines) != expected:
            raise TraceFormatError(
                source,
                0,
                f"block {index}, warp {int(number)}: {expected} instructions announced, {len(lines)} found",
            )
        found.append((int(number), tuple(lines)))
    if not found:
        raise TraceFormatError(source, 0, f"block {index} holds no warp")
    return tuple(found)


class _RawReader:
    """Collects the lines of wanted blocks from a raw trace, where all warps are mixed."""

    def __init__(self, source: str, header: TraceHeader) -> None:
        self._source, self._header = source, header
        grid = header.grid
        self._of_prefix: dict[bytes, int] = {}
        for index in planned_blocks(grid):
            x, y, z = index % grid[0], index // grid[0] % grid[1], index // (grid[0] * grid[1])
            self._of_prefix[b"%d %d %d" % (x, y, z)] = index
        alternatives = b"|".join(sorted(self._of_prefix))
        self._line = re.compile(rb"^(" + alternatives + rb") (\d+) (.*)$", re.MULTILINE)
        self._warps: dict[int, dict[int, list[bytes]]] = {}
        self._kept_bytes = 0
        self._instructions = 0
        self._rest = b""
        self._cluster = header.tracer_version >= 6

    def feed(self, chunk: bytes) -> None:
        text = self._rest + chunk
        cut = text.rfind(b"\n") + 1
        self._rest = text[cut:]
        text = text[:cut]
        self._instructions += len(re.findall(rb"^\d", text, re.MULTILINE))
        if self._kept_bytes > _SAMPLE_LIMIT_BYTES:
            return
        for prefix, warp, line in self._line.findall(text):
            rest = line.split(b" ", 7)[7] if self._cluster else line
            self._warps.setdefault(self._of_prefix[prefix], {}).setdefault(int(warp), []).append(rest)
            self._kept_bytes += len(rest)

    def finish(self) -> tuple[dict[int, SampledBlock], array[int], int]:
        if self._rest.strip():
            raise TraceFormatError(
                self._source, 0, f"the last line is cut: {self._rest[-60:].decode(errors='replace')!r}"
            )
        if not self._warps:
            raise TraceFormatError(
                self._source, 0, "no instruction of the sampled blocks is in the trace; is it cut?"
            )
        sample = {
            index: SampledBlock(
                index,
                b"",
                tuple((warp, tuple(lines)) for warp, lines in sorted(warps.items())),
                True,
                self._source,
            )
            for index, warps in sorted(self._warps.items())
        }
        for index, block in sample.items():
            for warp, lines in block.lines:
                if b" EXIT " not in lines[-1]:
                    raise TraceFormatError(
                        self._source,
                        0,
                        f"block {index}, warp {warp} does not end with EXIT; is the trace cut?",
                    )
        return sample, array("l"), self._instructions
