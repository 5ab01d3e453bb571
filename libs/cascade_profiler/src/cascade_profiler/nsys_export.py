"""Reading Nsight Systems' SQLite export: kernels, memory operations, CUDA API calls and NVTX ranges.

The export's tables are made lazily (an empty one is left out), carry a `_V2`, `_V3` suffix in newer versions,
name kernels by number into `StringIds`, may lack columns such as `mangledName`, and hold rows in no order.
All that ends here: callers get typed rows, sorted by start.
Source: Nsight Systems user guide, "SQLite Schema Reference".
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cascade_profiler.errors import CaptureError

NVTX_PUSH_POP_RANGE = 59
NVTX_START_END_RANGE = 60
"""Values of NVTX_EVENTS.eventType. Source: the export's ENUM_NSYS_EVENT_TYPE."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """Ties a GPU activity to the API call that launched it. Numbers repeat between processes.

    process: the export's process number, None where the export does not tell.
    """

    process: int | None
    number: int


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel execution. Times in ns since the capture's own origin."""

    start_ns: int
    end_ns: int
    kernel_name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    stream_id: int
    correlation: Correlation | None

    @property
    def duration_ns(self) -> int:
        """[ns] from start to end on the GPU."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One copy or fill on the GPU. It makes the GPU busy, but is no kernel."""

    start_ns: int
    end_ns: int
    correlation: Correlation | None


@dataclass(frozen=True, slots=True)
class ApiRow:
    """One CUDA runtime or driver call on the host."""

    start_ns: int
    end_ns: int
    correlation: Correlation | None


@dataclass(frozen=True, slots=True)
class RangeRow:
    """One closed NVTX range."""

    start_ns: int
    end_ns: int
    label: str


@dataclass(frozen=True, slots=True)
class Capture:
    """Everything that the profile needs from one export; each part is sorted by start."""

    kernels: tuple[KernelRow, ...]
    memory: tuple[MemoryRow, ...]
    api_calls: tuple[ApiRow, ...]
    ranges: tuple[RangeRow, ...]


def read_capture(path: Path) -> Capture:
    """Read an export. A table that the export leaves out reads as empty; a capture without kernels is one, too.

    Raises CaptureError if `path` is missing, no SQLite database, or lacks columns that every version has.
    """
    if not path.is_file():
        raise CaptureError(f"no Nsight export at {path}; did 'nsys export --type=sqlite' run?")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            return Capture(
                kernels=tuple(sorted(_kernels(database), key=lambda row: (row.start_ns, row.end_ns))),
                memory=tuple(sorted(_memory(database), key=lambda row: (row.start_ns, row.end_ns))),
                api_calls=tuple(sorted(_api_calls(database), key=lambda row: (row.start_ns, row.end_ns))),
                ranges=tuple(sorted(_ranges(database), key=lambda row: (row.start_ns, row.end_ns))),
            )
    except sqlite3.Error as error:
        raise CaptureError(f"{path} is no Nsight SQLite export that can be read: {error}") from error


def _kernels(database: sqlite3.Connection) -> Iterator[KernelRow]:
    table = _table(database, "CUPTI_ACTIVITY_KIND_KERNEL")
    if table is None:
        return
    columns = _columns(database, table)
    # The tracer writes mangled names, so these come first; older or trimmed exports lack the column or a value.
    name = [f"n{i}.value" for i, _ in enumerate(_NAME_COLUMNS) if _NAME_COLUMNS[i] in columns]
    if not name:
        raise CaptureError(f"table {table} names no kernels (none of {', '.join(_NAME_COLUMNS)})")
    joins = " ".join(
        f'LEFT JOIN StringIds n{i} ON n{i}.id = k."{column}"'
        for i, column in enumerate(_NAME_COLUMNS)
        if column in columns
    )
    # Table and column names come from the fixed lists of this module, checked against the schema.
    query = (
        f"SELECT k.start, k.\"end\", COALESCE({', '.join(name)}, '<unnamed>'), k.gridX, k.gridY, k.gridZ, "  # noqa: S608
        f"k.blockX, k.blockY, k.blockZ, {_or_null(columns, 'streamId')}, {_correlation(columns)} "
        f'FROM "{table}" k {joins}'
    )
    for start, end, kernel, gx, gy, gz, bx, by, bz, stream, number, process in database.execute(query):
        yield KernelRow(
            start_ns=int(start),
            end_ns=int(end),
            kernel_name=str(kernel),
            grid=(int(gx), int(gy), int(gz)),
            block=(int(bx), int(by), int(bz)),
            stream_id=int(stream or 0),
            correlation=_correlation_of(number, process),
        )


_NAME_COLUMNS = ("mangledName", "demangledName", "shortName")


def _memory(database: sqlite3.Connection) -> Iterator[MemoryRow]:
    for base in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
        for start, end, correlation in _spans(database, base):
            yield MemoryRow(start, end, correlation)


def _api_calls(database: sqlite3.Connection) -> Iterator[ApiRow]:
    for base in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"):
        for start, end, correlation in _spans(database, base):
            yield ApiRow(start, end, correlation)


def _spans(database: sqlite3.Connection, base: str) -> Iterator[tuple[int, int, Correlation | None]]:
    table = _table(database, base)
    if table is None:
        return
    correlation = _correlation(_columns(database, table))
    query = f'SELECT k.start, k."end", {correlation} FROM "{table}" k WHERE k."end" IS NOT NULL'  # noqa: S608
    for start, end, number, process in database.execute(query):
        yield int(start), int(end), _correlation_of(number, process)


def _ranges(database: sqlite3.Connection) -> Iterator[RangeRow]:
    table = _table(database, "NVTX_EVENTS")
    if table is None:
        return
    columns = _columns(database, table)
    text = "k.text" if "text" in columns else "NULL"
    join = 'LEFT JOIN StringIds s ON s.id = k."textId"' if "textId" in columns else ""
    value = "s.value" if join else "NULL"
    query = (
        f'SELECT k.start, k."end", COALESCE({text}, {value}) FROM "{table}" k {join} '  # noqa: S608
        'WHERE k.eventType IN (?, ?) AND k."end" IS NOT NULL'
    )
    for start, end, label in database.execute(query, (NVTX_PUSH_POP_RANGE, NVTX_START_END_RANGE)):
        if label is not None:
            yield RangeRow(int(start), int(end), str(label))


def _table(database: sqlite3.Connection, base: str) -> str | None:
    """Return the newest version of a table, or None if the export left it out."""
    names = [str(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    versions = [(int(match[1] or 1), name) for name in names if (match := _versioned(base).fullmatch(name))]
    return max(versions)[1] if versions else None


def _versioned(base: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(base)}(?:_V(\d+))?")


def _columns(database: sqlite3.Connection, table: str) -> frozenset[str]:
    rows: Sequence[tuple[str]] = database.execute(
        "SELECT name FROM pragma_table_info(?)", (table,)
    ).fetchall()
    return frozenset(row[0] for row in rows)


def _correlation(columns: frozenset[str]) -> str:
    """Two selected columns: correlation number and process (a serialized id without its lowest 24 bits)."""
    owner = next((column for column in ("globalPid", "globalTid") if column in columns), None)
    process = "NULL" if owner is None else f'k."{owner}" >> 24'
    return f"{_or_null(columns, 'correlationId')}, {process}"


def _correlation_of(number: object, process: object) -> Correlation | None:
    if not isinstance(number, int):
        return None
    return Correlation(process if isinstance(process, int) else None, number)


def _or_null(columns: frozenset[str], column: str) -> str:
    return f'k."{column}"' if column in columns else "NULL"
