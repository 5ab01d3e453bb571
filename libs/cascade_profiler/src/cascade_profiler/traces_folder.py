"""Reading what the NVBit tracer and the post-processor wrote: kernel lists and statistics. Pure.

Facts used here (all seen in real folders): every context has its own list and statistics file; list lines are
memory copies or file names; the first column of the statistics is the file name of the raw trace; names are not
quoted, so that columns count from the right; a row cut short by a killed run lacks its instruction counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cascade_profiler.errors import CaptureError

_SUFFIX = re.compile(r"\.(?:trace|traceg)(?:\.xz)?$|\.tracez$")
_KERNEL_FILE = re.compile(r"kernel-(\d+)(?:-.*)?")
_CONTEXT = re.compile(r"_ctx_0x[0-9a-fA-F]+$")
_COLUMNS_FROM_RIGHT = 10


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """One kernel launch with an instruction trace.

    kernel_id: the tracer's number, from the file name; counts every launch of the context, traced or not.
    name: as the tracer wrote it, which is also how the simulator's log will name it.
    """

    stem: str
    kernel_id: int
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


def stem_of(file_name: str) -> str:
    """Return a trace file's name without `.trace`, `.traceg`, `.tracez` and `.xz`: the same raw and processed."""
    return _SUFFIX.sub("", file_name.strip())


def kernel_id_of(file_name: str) -> int | None:
    """Return the number in `kernel-<n>...`, or None for any other name."""
    match = _KERNEL_FILE.fullmatch(stem_of(file_name))
    return None if match is None else int(match[1])


def is_kernel_list(file_name: str) -> bool:
    """Return whether this is a raw list: `kernelslist` or `kernelslist_ctx_0x...`."""
    return file_name == "kernelslist" or (
        file_name.startswith("kernelslist_ctx_") and _CONTEXT.search(file_name) is not None
    )


def is_statistics(file_name: str) -> bool:
    """Return whether this is a statistics file: `stats.csv` or `stats_ctx_0x...`."""
    return file_name == "stats.csv" or (
        file_name.startswith("stats_ctx_") and _CONTEXT.search(file_name) is not None
    )


def kernel_lines(list_text: str, *, growing: bool = False) -> tuple[str, ...]:
    """Return the kernel lines of a list, in launch order.

    growing: the tracer is still at work, so that a last line without newline may be half a name and is left out.
    """
    lines = list_text.split("\n")
    return tuple(line.strip() for line in (lines[:-1] if growing else lines) if line.startswith("kernel"))


def closed_traces(lists: Iterable[str], present: Iterable[str], *, finished: bool) -> tuple[str, ...]:
    """Return the raw kernel traces that the tracer will not write to again, in name order.

    lists: texts of the raw lists. present: names of the files in the folder. finished: the tracer has exited.

    The tracer closes a kernel's file before it opens the next one of the same context, and a list names a kernel when
    it is launched. So all but the last of every list are closed.
    """
    traces = {name for name in present if kernel_id_of(name) is not None and is_raw_trace(name)}
    if finished:
        return tuple(sorted(traces))
    closed = {stem_of(line) for text in lists for line in kernel_lines(text, growing=True)[:-1]}
    return tuple(sorted(name for name in traces if stem_of(name) in closed))


def is_raw_trace(file_name: str) -> bool:
    """Return whether this is a trace as the tracer writes it, compressed or not."""
    return file_name.endswith((".trace", ".trace.xz"))


def parse_statistics(text: str) -> dict[str, TracedKernel]:
    """Return the kernels of a statistics file by the stem of their trace file; a row cut short keeps its shape.

    Rows that hold no shape at all (the file was cut in the middle of a name) are left out.
    """
    kernels: dict[str, TracedKernel] = {}
    for line in text.split("\n")[1:]:
        kernel = _statistics_row(line)
        if kernel is not None:
            kernels[kernel.stem] = kernel
    return kernels


def listed_kernels(lines: Iterable[str], statistics: Mapping[str, TracedKernel]) -> tuple[TracedKernel, ...]:
    """Return the kernels of a list in its order. Raises CaptureError for one that the statistics lack."""
    kernels: list[TracedKernel] = []
    for line in lines:
        kernel = statistics.get(stem_of(line))
        if kernel is None:
            raise CaptureError(
                f"the kernel list names {line!r}, but no statistics file has a row for it; the trace is incomplete"
            )
        kernels.append(kernel)
    return tuple(kernels)


def _statistics_row(line: str) -> TracedKernel | None:
    fields = [part.strip() for part in line.split(",")]
    # A complete row has file, name (perhaps with commas) and ten numbers; a cut one ends behind #threads
    # with a trailing comma, so that its eight numbers are followed by an empty field.
    for numbers_behind in (_COLUMNS_FROM_RIGHT, _COLUMNS_FROM_RIGHT - 1):
        numbers = fields[-numbers_behind:][:8]
        if len(fields) < numbers_behind + 2 or not all(part.isascii() and part.isdigit() for part in numbers):
            continue
        gx, gy, gz, _, bx, by, bz, _ = map(int, numbers)
        number = kernel_id_of(fields[0]) if not fields[0].isdigit() else int(fields[0])
        if number is None:
            return None
        name = line.rsplit(",", numbers_behind)[0].partition(",")[2].strip()
        stem = stem_of(fields[0]) if not fields[0].isdigit() else f"kernel-{number}"
        return TracedKernel(stem, number, name, (gx, gy, gz), (bx, by, bz))
    return None
