"""Measured kernel durations of the original GPU: `real_timing.json`, or the file that the metadata names.

A list of `{kernel_id, kernel_name, duration_ns, grid, block}`. Tools write grids as `"2x1x1"`, `"(2, 1, 1)"` or lists.
"""

import math
import re
from dataclasses import dataclass
from typing import Final

from cascade_accelsim.text import clean

_NUMBERS: Final = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RealKernel:
    """One measured kernel."""

    kernel_id: int
    kernel_name: str
    duration_ns: float | None
    """None where the row has no finite duration of 0 or more. [ns]"""
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class RealTiming:
    """`rows` by kernel id, or empty with the `problem` that keeps the file from being a timing."""

    rows: tuple[RealKernel, ...]
    problem: str | None

    @property
    def has_real_timing(self) -> bool:
        """spec: traces, has_real_timing: a list of rows with integer kernel ids."""
        return self.problem is None


def parse_real_timing(document: object) -> RealTiming:
    """Normalise a parsed JSON document. Never raises."""
    if not isinstance(document, list):
        return RealTiming((), f"expected a list of rows, met {_kind(document)}")
    if not document:
        return RealTiming((), "the list of rows is empty")
    rows: list[RealKernel] = []
    for index, row in enumerate(document):
        kernel_id = row.get("kernel_id") if isinstance(row, dict) else None
        if not isinstance(row, dict) or not isinstance(kernel_id, int) or isinstance(kernel_id, bool):
            met = f"kernel_id {kernel_id!r}" if isinstance(row, dict) else _kind(row)
            return RealTiming(
                (), f"row {index}: expected an object with an integer kernel_id, met {met[:80]}"
            )
        name = row.get("kernel_name")
        rows.append(
            RealKernel(
                kernel_id=kernel_id,
                kernel_name=clean(name) if isinstance(name, str) else "",
                duration_ns=_duration(row.get("duration_ns")),
                grid=_dimensions(row.get("grid")),
                block=_dimensions(row.get("block")),
            )
        )
    return RealTiming(tuple(sorted(rows, key=lambda row: row.kernel_id)), None)


def _duration(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        duration = float(value)
    except OverflowError:
        return None
    return duration if math.isfinite(duration) and duration >= 0 else None


def _dimensions(value: object) -> tuple[int, int, int] | None:
    """One to three sizes; left-out ones are 1."""
    if isinstance(value, str):
        sizes = [int(size) for size in _NUMBERS.findall(value)]
    elif isinstance(value, list):
        sizes = [size for size in value if isinstance(size, int) and not isinstance(size, bool)]
    else:
        return None
    if not 1 <= len(sizes) <= 3 or min(sizes) < 0:
        return None
    x, y, z = [*sizes, 1, 1][:3]
    return x, y, z


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return "a text"
        case _:
            return f"{value!r:.40}"
