"""Where each kernel of a replayed step starts: the `scaled-gaps` host model.

The measured idle time between kernels is scaled by one factor so that the new durations and the idle time
fill the new wall. Overlap between kernels is not idle time and is kept as measured.

Source: the step-timing page, section 2, "Kernel placement". Two choices are this module's own, where the page
is silent: a kernel that lies inside a longer one does not extend the step, and a kernel that overlapped its
predecessor does not start before it when that predecessor shrinks.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placing:
    """One kernel to place: as it was measured, and how long it now takes. All in ns."""

    seq: int
    measured_start_ns: float
    measured_duration_ns: float
    duration_ns: float


@dataclass(frozen=True, slots=True)
class _Piece:
    index: int
    idle_ns: float
    """Positive: idle time to scale. Otherwise the overlap to keep, at most 0."""
    advance_ns: float
    """How far the kernel moves the latest end, beyond its scaled idle time."""


def place(kernels: Sequence[Placing], *, measured_wall_ns: float, wall_ns: float) -> list[float]:
    """New start offsets, one a kernel, in the order of `kernels`. [ns]

    measured_wall_ns: wall of the step in which the starts were measured. [ns]
    wall_ns: wall to fill. If the kernels alone do not fit, idle time is 0 and the last ones run past it. [ns]
    """
    pieces, trailing = _pieces(kernels, measured_wall_ns)
    scalable = sum(piece.idle_ns for piece in pieces if piece.idle_ns > 0) + max(trailing, 0)
    fixed = sum(piece.advance_ns for piece in pieces) + min(trailing, 0)
    # Linear in the scale, because an overlapping kernel's advance does not depend on it.
    scale = max(0.0, (wall_ns - fixed) / scalable) if scalable > 0 else 0.0
    starts = [0.0] * len(kernels)
    latest_end = 0.0
    for piece in pieces:
        idle = piece.idle_ns * scale if piece.idle_ns > 0 else piece.idle_ns
        starts[piece.index] = latest_end + idle
        latest_end += max(idle, 0.0) + piece.advance_ns
    return starts


def _pieces(kernels: Sequence[Placing], measured_wall_ns: float) -> tuple[list[_Piece], float]:
    """The kernels in launch order with the idle time before each, and the idle time after the last."""
    order = sorted(range(len(kernels)), key=lambda i: (kernels[i].measured_start_ns, kernels[i].seq))
    pieces: list[_Piece] = []
    measured_end = 0.0
    # Distance from the previous kernel's new start to the latest new end: bounds how far back one may reach.
    reach: float | None = None
    for index in order:
        kernel = kernels[index]
        idle = kernel.measured_start_ns - measured_end
        measured_end = max(measured_end, kernel.measured_start_ns + kernel.measured_duration_ns)
        if idle > 0:
            advance = reach = kernel.duration_ns
        else:
            idle = idle if reach is None else max(idle, -reach)
            advance = max(0.0, idle + kernel.duration_ns)
            reach = advance - idle
        pieces.append(_Piece(index, idle, advance))
    return pieces, measured_wall_ns - measured_end
