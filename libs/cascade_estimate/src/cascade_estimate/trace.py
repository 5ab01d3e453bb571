"""Kernel traces, read once as a stream: the header, the size of every block, and a sample of blocks.

Two text forms exist: the tracer's raw `.trace`, where lines of all warps are mixed, and the processed
`.traceg`, where blocks follow each other. Both may be compressed (`.xz`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cascade_estimate.decode import Decoder, Instruction, accessing
from cascade_estimate.errors import TraceFormatError
from cascade_estimate.header import TraceHeader, parse_header
from cascade_estimate.loops import Loop, main_loop, shortened
from cascade_estimate.raw_reader import RawReader
from cascade_estimate.readers import ProcessedReader, SampledBlock, Warps, chunks_of
from cascade_estimate.sharing import BlockAccesses, block_accesses

_SMALL_BLOCK = 1500  # instructions of a block that is surely executed whole
_HEADER_LIMIT_BYTES = 1 << 16  # a kernel name of several thousand characters is the longest thing in a header


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
        block = self.sample[index]
        every = warps >= self.header.warps
        some = self.warps(index) if every else block.warps(warps)
        numbers = [number for number, _ in some]
        if every and sum(len(lines) for _, lines in some) <= _SMALL_BLOCK:
            # The whole block will be executed anyway, so it is decoded once.
            found = [[one for one in warp if one.line >= 0] for warp in self.block(index)]
            if block.whole and max(map(len, found)) <= most:
                return block_accesses(zip(numbers, found, strict=True))
        picked = [accessing(lines, most) for _, lines in some]
        passed = sum(addresses for _, addresses in picked)
        lines_of = zip(numbers, (lines for lines, _ in picked), strict=True)
        accesses = zip(numbers, self.decoder.block(lines_of, index), strict=True)
        return block_accesses(accesses, block.addresses() / max(passed, 1))


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
        with path.open("rb") as opened:
            chunks = chunks_of(name, opened, compressed=name.endswith(".xz"))
            return _read(name, chunks, raw=plain.endswith(".trace"))
    except FileNotFoundError:
        raise TraceFormatError(name, 0, "the file does not exist") from None


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
    before = head.count(b"\n") + 1
    reader = RawReader(name, header) if raw else ProcessedReader(name, header, before)
    size = len(buffer)
    reader.feed(body)
    for chunk in chunks:
        size += len(chunk)
        reader.feed(chunk)
    sample, block_lines, instructions = reader.finish()
    decoder = Decoder(
        name,
        header.lineinfo,
        (header.shared_base, header.local_base),
        lambda index, warp, line: sample[index].line_of(warp, line),
        header.tracer_version,
    )
    return KernelTrace(name, header, sample, decoder, block_lines, instructions, size)
