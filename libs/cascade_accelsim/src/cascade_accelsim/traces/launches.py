"""The tracer's statistics: one row a kernel launch, as the original GPU ran it.

`kernel-1-ctx_0x6165.trace.xz, _Z6vecAddPdS_S_i, 98, 1, 1, 98, 1024, 1, 1, 1024, 50066,50066`. Names are not quoted,
so a demangled one shifts the columns: they are counted from the right, and the products among them (blocks, threads)
tell where they begin. A tracer that was killed leaves a last row without its instruction counts. Some tracers add
columns at the end.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cascade_accelsim.text import clean
from cascade_accelsim.traces.names import kernel_id_of

_SHAPE_COLUMNS: Final = 8
"""grid x y z, blocks, block x y z, threads."""
_COUNT_COLUMNS: Final = 2
"""total_insts, total_reported_insts: appended when the kernel ends."""
_INTEGER: Final = re.compile(r"-?\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One kernel launch of the traced program. spec: types, KernelLaunch."""

    kernel_id: int
    """Matches the number in the trace's file name."""
    name: str
    """As the tracer wrote it, usually mangled."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    instructions: int | None
    """Warp instructions that the tracer counted; None when the kernel's trace was cut short."""


@dataclass(frozen=True, slots=True)
class LaunchTable:
    """The rows of one statistics file, in its order, and the lines that are no row."""

    launches: tuple[KernelLaunch, ...]
    unreadable: tuple[str, ...]


def parse_launches(text: str) -> LaunchTable:
    """Read a `stats_ctx_*` or `stats.csv` text. Never raises."""
    launches: list[KernelLaunch] = []
    unreadable: list[str] = []
    count_columns = _COUNT_COLUMNS
    for line in text.split("\n"):
        row = line.strip()
        if not row:
            continue
        if row.startswith("kernel id"):
            count_columns = max(_COUNT_COLUMNS, row.count(",") - 1 - _SHAPE_COLUMNS)
            continue
        launch = _launch(row, count_columns)
        if launch is None:
            unreadable.append(row)
        else:
            launches.append(launch)
    return LaunchTable(tuple(launches), tuple(unreadable))


def merge_launches(tables: Iterable[LaunchTable]) -> list[KernelLaunch]:
    """The rows of every context, by kernel id. Each context counts from 1, so an id may come up more than once."""
    return sorted(
        (launch for table in tables for launch in table.launches), key=lambda launch: launch.kernel_id
    )


def _launch(row: str, count_columns: int) -> KernelLaunch | None:
    parts = row.split(",")
    kernel_id = kernel_id_of(parts[0].strip())
    if kernel_id is None:
        return None
    fields = [part.strip() for part in parts]
    while not fields[-1]:  # a row cut short ends in a comma; the first field is not empty
        fields.pop()
    first = _first_shape_column(fields, count_columns)
    if first is None:
        return None
    x, y, z, _, block_x, block_y, block_z, _ = map(int, fields[first : first + _SHAPE_COLUMNS])
    counts = fields[first + _SHAPE_COLUMNS :]
    return KernelLaunch(
        kernel_id=kernel_id,
        name=clean(",".join(parts[1:first])),
        grid=(x, y, z),
        block=(block_x, block_y, block_z),
        instructions=int(counts[0]) if len(counts) >= _COUNT_COLUMNS else None,
    )


def _first_shape_column(fields: list[str], count_columns: int) -> int | None:
    """Where the eight numbers of grid and block begin: only numbers from there on, and the products hold.

    The place that a whole row has is tried first, then that of a row without counts, then any other, since a name
    may hold commas and numbers too.
    """
    numbers = 0
    while numbers < len(fields) - 2 and _INTEGER.fullmatch(fields[-1 - numbers]):
        numbers += 1
    last = len(fields) - _SHAPE_COLUMNS
    places: list[int] = [last - count_columns, *range(last, len(fields) - numbers - 1, -1)]
    for first in places:
        if len(fields) - numbers <= first <= last and _products_hold(fields[first : first + _SHAPE_COLUMNS]):
            return first
    return None


def _products_hold(columns: list[str]) -> bool:
    x, y, z, blocks, block_x, block_y, block_z, threads = map(int, columns)
    if min(x, y, z, block_x, block_y, block_z) < 1:
        return False
    # The tracer multiplies in 32 bits.
    return (x * y * z - blocks) % 2**32 == 0 and (block_x * block_y * block_z - threads) % 2**32 == 0
