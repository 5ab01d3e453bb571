"""The header of a kernel trace: its `-key = value` lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cascade_estimate.errors import TraceFormatError

_MOST = (1 << 64) - 1  # of any number in a header
_TRIPLE = re.compile(r"\(\s*(\d{1,10})\s*,\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)", re.ASCII)


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

    def number_of(key: str, fallback: int | None = None, *, least: int | None = None) -> int:
        if key not in values:
            if fallback is None:
                raise TraceFormatError(source, 0, f"the header has no line '-{key} = ...'")
            return fallback
        line, value = values[key]
        try:
            number = int(value, 0)
            if abs(number) > _MOST:
                raise ValueError
        except ValueError:
            raise TraceFormatError(source, line, f"-{key}: a number expected, found {value[:60]!r}") from None
        if least is not None and number < least:
            raise TraceFormatError(source, line, f"-{key}: at least {least} expected, found {number}")
        return number

    def triple(key: str) -> tuple[int, int, int]:
        if key not in values:
            raise TraceFormatError(source, 0, f"the header has no line '-{key} = (x,y,z)'")
        line, value = values[key]
        found = _TRIPLE.fullmatch(value.strip())
        sizes = [int(part) for part in found.groups()] if found else [0, 0, 0]
        if 0 in sizes:
            raise TraceFormatError(
                source, line, f"-{key}: (x,y,z) of at least 1 expected, found {value[:60]!r}"
            )
        return sizes[0], sizes[1], sizes[2]

    return TraceHeader(
        name=values.get("kernel name", (0, ""))[1].strip(),
        kernel_id=number_of("kernel id", 0),
        grid=triple("grid dim"),
        block=triple("block dim"),
        shared_bytes=number_of("shmem", 0, least=0),
        registers=number_of("nregs", 0, least=0),
        binary_version=number_of("binary version", 0),
        stream=number_of("cuda stream id", 0),
        shared_base=number_of("shmem base_addr", 0),
        local_base=number_of("local mem base_addr", 0),
        tracer_version=number_of("accelsim tracer version", 0),
        lineinfo=number_of("enable lineinfo", 0) == 1,
        lines=tuple(lines),
    )
