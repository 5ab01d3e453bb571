"""Instruction lines to decoded instructions.

A trace repeats itself: the same instruction is issued by thousands of warps and differs only in its
addresses. So everything but the first address is decoded once per distinct text and looked up afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from cascade_estimate.coalesce import LINE_SHIFT, WORD_SHIFT, Footprint, Pattern, Space, lane_offsets
from cascade_estimate.errors import TraceFormatError
from cascade_estimate.opcodes import (
    BY_UNIT_ONLY,
    LOCAL_KINDS,
    Kind,
    Unit,
    access_bytes,
    classify,
    memory_operand_expected,
)

_REMEMBERED_HEADS = 1 << 14  # distinct line beginnings kept over all traces, as kernels repeat
_REMEMBERED_NAMES = 1 << 12  # opcodes, and registers, over all traces
_REMEMBERED_PATTERNS = 1 << 12  # address patterns kept of one kernel: random ones never come again
_REMEMBERED_LINES = 1 << 14  # decoded lines kept of one kernel
_LOCAL_WINDOW_BYTES = 1 << 14  # of generic addresses, gpgpu-sim's LOCAL_MEM_SIZE_MAX
_IMMEDIATE_VERSION = 5  # of the tracer, from which on a line ends with an immediate
_MODES = (0, 1, 2)
_ADDRESS = b" 0x"
_ADDRESSES = 1 << 64
_NO_LANE = b" 00000000 "
_GENERIC = int(Kind.GENERIC_LOAD)
_NO_FOOTPRINT = Footprint((), 0, (), 0, 0)


_SPACES = {
    Kind.SHARED: Space.SHARED,
    Kind.SHARED_ATOMIC: Space.SHARED,
    Kind.ATOMIC: Space.ATOMIC,
    Kind.LOCAL_LOAD: Space.LOCAL,
    Kind.LOCAL_STORE: Space.LOCAL,
}


class Instruction(NamedTuple):
    """One warp instruction.

    Attributes:
        unit, kind: where it runs and what it does.
        writes: destination registers. regs: all registers that it must find free (destinations and sources).
        reads: distinct source registers, which the operand collector fetches.
        lanes: active lanes.
        width: bytes a lane.
        pc: program counter, which groups the accesses of one static instruction.
        group: for DEPBAR, how many younger copy groups may be outstanding.
        line: 128-byte line of the first address, in local memory its word; -1 where nothing is accessed: no
            memory instruction, or no active lane.
        footprint: what it touches relative to `line`.
    """

    unit: int
    kind: int
    writes: tuple[int, ...]
    regs: tuple[int, ...]
    reads: int
    lanes: int
    width: int
    pc: int
    group: int
    line: int
    footprint: Footprint


class _Head(NamedTuple):
    """The text before the first address, decoded."""

    unit: Unit
    kind: Kind
    writes: tuple[int, ...]
    regs: tuple[int, ...]
    reads: int
    mask: int
    width: int
    mode: int
    pc: int


class _KnownHead:
    """A head with the address patterns that were met after it.

    Attributes:
        common: all of an instruction but its line and footprint.
        idle: the instruction where nothing is accessed, whatever addresses the tracer wrote; None otherwise.
        shift: bits of an address within what `Instruction.line` counts.
    """

    __slots__ = ("_by_kind", "common", "head", "idle", "patterns", "shift")

    def __init__(self, head: _Head, kind: int) -> None:
        self.head = head
        self.shift = WORD_SHIFT if kind in LOCAL_KINDS else LINE_SHIFT
        lanes = head.mask.bit_count()
        self.common = (head.unit, kind, head.writes, head.regs, head.reads, lanes, head.width, head.pc, 0)
        self.idle = None if head.mask and memory_operand_expected(head.kind) else _idle(head)
        self.patterns: dict[bytes, Pattern] = {}
        self._by_kind: dict[int, _KnownHead] = {}

    def for_kind(self, kind: int) -> _KnownHead:
        """The same head with patterns of its own for one resolved kind."""
        found = self._by_kind.get(kind)
        if found is None:
            found = self._by_kind[kind] = _KnownHead(self.head, kind)
        return found


def _idle(head: _Head, group: int = 0) -> Instruction:
    """An instruction that accesses no memory."""
    return Instruction(
        head.unit,
        head.kind,
        head.writes,
        head.regs,
        head.reads,
        head.mask.bit_count(),
        0,
        head.pc,
        group,
        -1,
        _NO_FOOTPRINT,
    )


_new_instruction = tuple.__new__


@dataclass(slots=True)
class Decoder:
    """Decodes the lines of one kernel.

    Attributes:
        line_of: number of the line in which block and warp have an instruction, 0 where that is not known.
        tracer_version: from the header.
        unknown: opcodes that are not listed, with the number of distinct lines in which they were met.
        by_unit_only: the same for opcodes of which only the unit's time counts.
    """

    source: str
    lineinfo: bool = False
    shared_window: tuple[int, int] = (0, 0)
    line_of: Callable[[int, int, bytes], int] = lambda _index, _warp, _line: 0
    tracer_version: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    by_unit_only: dict[str, int] = field(default_factory=dict)
    _lines: dict[bytes, Instruction] = field(default_factory=dict)
    _heads: dict[bytes, _KnownHead] = field(default_factory=dict)
    _patterns: int = 0  # kept

    def decode(self, line: bytes) -> Instruction:
        """Decode one instruction line (PC first, no block and warp prefix).

        Raises:
            TraceFormatError: without the place, which `block` adds.
        """
        return self._lines.get(line) or self._decode_new(line)

    def _decode_new(self, line: bytes) -> Instruction:
        cut = line.find(_ADDRESS)
        if cut < 0:
            instruction = self._lines[line] = self._without_address(line)
            return instruction
        start = line[:cut]
        known_head = self._heads.get(start)
        if known_head is None:
            head = self._head(start)
            known_head = self._heads[start] = _KnownHead(head, head.kind)
        if known_head.idle is not None:
            return known_head.idle
        head = known_head.head
        end = line.find(b" ", cut + 3)
        text, rest = (line[cut + 3 : end], line[end + 1 :]) if end >= 0 else (line[cut + 3 :], b"")
        try:
            base = int(text, 16)
        except ValueError:
            base = -1
        if not 0 <= base < _ADDRESSES:
            shown = text[:40].decode(errors="replace")
            raise TraceFormatError(self.source, 0, f"0x{shown} is not an address of 64 bits in hexadecimal")
        kind: int = head.kind
        if kind >= _GENERIC:
            # The space follows from the address, so each space has patterns of its own.
            kind = self._resolve(head.kind, base)
            known_head = known_head.for_kind(kind)
        shape = rest if head.mode else line[cut:]
        pattern = known_head.patterns.get(shape)
        kept = True
        if pattern is None:
            pattern = self._pattern(head, rest, base, _SPACES.get(Kind(kind), Space.GLOBAL))
            kept = self._patterns < _REMEMBERED_PATTERNS
            if kept:
                self._patterns += 1
                known_head.patterns[shape] = pattern
        # Calling the named tuple's class would cost twice as much, for every access of every sampled warp.
        instruction = _new_instruction(
            Instruction, (*known_head.common, base >> known_head.shift, pattern.at(base))
        )
        if kept and len(self._lines) < _REMEMBERED_LINES:
            self._lines[line] = instruction  # shorter and longer parts of a program share its lines
        return instruction

    def block(self, warps: Iterable[tuple[int, tuple[bytes, ...]]], index: int) -> list[list[Instruction]]:
        """Decode a block's warps. Raises TraceFormatError naming block, warp and instruction."""
        known, decode = self._lines.get, self._decode_new
        block: list[list[Instruction]] = []
        for number, lines in warps:
            try:
                block.append([known(line) or decode(line) for line in lines])
            except TraceFormatError as error:
                place = self._first_fault(lines)
                where = f"block {index}, warp {number}, instruction {place + 1}"
                at = self.line_of(index, number, lines[place])
                raise TraceFormatError(self.source, at, f"{where}: {error.problem}") from None
        return block

    def _first_fault(self, lines: tuple[bytes, ...]) -> int:
        """Place of the first line that cannot be decoded."""
        for place, line in enumerate(lines):
            try:
                self.decode(line)
            except TraceFormatError:
                return place
        raise AssertionError("all lines could be decoded")

    def _resolve(self, kind: Kind, address: int) -> Kind:
        shared, local = self.shared_window
        if not shared or not local or shared <= address < local:
            return Kind.SHARED
        load = kind is Kind.GENERIC_LOAD
        if local <= address < local + _LOCAL_WINDOW_BYTES:
            return Kind.LOCAL_LOAD if load else Kind.LOCAL_STORE
        return Kind.LOAD if load else Kind.STORE

    def _pattern(self, head: _Head, rest: bytes, base: int, space: Space) -> Pattern:
        if head.mode not in _MODES:
            raise TraceFormatError(self.source, 0, f"address mode {head.mode} is not one of 0, 1, 2")
        needed = 1 if head.mode == 1 else head.mask.bit_count() - 1
        parts = rest.split()
        found = len(parts) - (self.tracer_version >= _IMMEDIATE_VERSION)
        if found < needed:
            raise TraceFormatError(
                self.source,
                0,
                f"{needed} numbers expected after the first address, found {max(found, 0)}; is the line cut?",
            )
        try:
            numbers = [int(part, 10 if head.mode else 16) for part in parts[:needed]]
        except ValueError:
            raise TraceFormatError(
                self.source, 0, "an address list holds something that is not a number"
            ) from None
        if max(map(abs, numbers), default=0) >= _ADDRESSES:
            raise TraceFormatError(self.source, 0, "an address list holds something beyond 64 bits")
        return Pattern(lane_offsets(head.mask, head.mode, numbers, base), head.width, space, head.mask)

    def _without_address(self, line: bytes) -> Instruction:
        head = self._head_of(line, with_address=False)
        if memory_operand_expected(head.kind) and head.mask:
            shown = line[:80].decode(errors="replace").strip()
            raise TraceFormatError(self.source, 0, f"a memory instruction without addresses: {shown!r}")
        group = 0
        if head.kind is Kind.COPY_WAIT:
            last = line.split()[-1]
            group = int(last) if last.isdigit() else 0
        return _idle(head, group)

    def _head(self, text: bytes) -> _Head:
        return self._head_of(text, with_address=True)

    def _head_of(self, text: bytes, *, with_address: bool) -> _Head:
        try:
            head, unlisted = _parse_head(text, self.lineinfo, with_address)
        except (IndexError, KeyError, ValueError):
            shown = text[:80].decode(errors="replace").strip()
            raise TraceFormatError(self.source, 0, f"not an instruction line: {shown!r}") from None
        if unlisted is not None:
            where = self.by_unit_only if unlisted in BY_UNIT_ONLY else self.unknown
            where[unlisted] = where.get(unlisted, 0) + 1
        return head


def accessing(lines: tuple[bytes, ...], most: int) -> tuple[tuple[bytes, ...], int]:
    """The first `most` lines that access memory, and the addresses passed up to there, those of lines without an
    active lane too."""
    picked: list[bytes] = []
    passed = 0
    for line in lines:
        if _ADDRESS in line:
            passed += line.count(_ADDRESS)
            if _NO_LANE not in line:
                picked.append(line)
                if len(picked) == most:
                    break
    return tuple(picked), passed


@lru_cache(maxsize=_REMEMBERED_HEADS)
def _parse_head(text: bytes, lineinfo: bool, with_address: bool) -> tuple[_Head, str | None]:
    """The head of a line, and its opcode if that needs a note. Raises IndexError or ValueError when it is no line."""
    fields = text.split()
    at = 1 if lineinfo else 0
    pc, mask, count = int(fields[at], 16), int(fields[at + 1], 16), int(fields[at + 2])
    at += 3
    writes = tuple([_register(part) for part in fields[at : at + count]])
    at += count
    unit, kind, width, note = _opcode(fields[at])
    sources = int(fields[at + 1])
    at += 2
    reads = tuple([_register(part) for part in fields[at : at + sources]])
    at += sources
    width = width if int(fields[at]) else 0
    mode = int(fields[at + 1]) if with_address else 0
    if mask >> 32 or len(writes) != count or len(reads) != sources:
        raise ValueError(text)
    regs = tuple(dict.fromkeys(writes + reads))
    return _Head(unit, kind, writes, regs, len(set(reads)), mask, width, mode, pc), note


@lru_cache(maxsize=_REMEMBERED_NAMES)
def _opcode(text: bytes) -> tuple[Unit, Kind, int, str | None]:
    """Unit, kind, bytes a lane, and its name if that needs a note. Raises ValueError when it is no opcode."""
    opcode = text.decode("ascii")
    if not opcode[:1].isalpha():
        raise ValueError(opcode)
    unit, kind, listed = classify(opcode)
    name = opcode.split(".", 1)[0]
    return unit, kind, access_bytes(opcode), name if not listed or name in BY_UNIT_ONLY else None


_REGISTER_FILES = {b"R": 0, b"UR": 1 << 10, b"P": 1 << 11, b"UP": 1 << 12}


@lru_cache(maxsize=_REMEMBERED_NAMES)
def _register(text: bytes) -> int:
    """Number of a register; uniform and predicate registers, which some tracers name, are told apart."""
    number = text.lstrip(b"RUP")
    return _REGISTER_FILES[text[: len(text) - len(number)]] + int(number)
