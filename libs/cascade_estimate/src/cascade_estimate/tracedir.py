"""A whole trace folder: every kernel of `kernelslist.g` in order, L2 handed from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cascade_accelsim.traces.kernels_list import parse_kernels_list

from cascade_estimate.config import GpuSpec
from cascade_estimate.errors import TraceFormatError
from cascade_estimate.estimate import KernelEstimate, estimate_kernel, l2_after
from cascade_estimate.l2state import WarmL2
from cascade_estimate.trace import read_trace

_LIST = "kernelslist.g"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a folder is estimated: kernels done of kernels listed, and the file that was just done."""

    done: int
    total: int
    source: str


def estimate_trace(
    path: str | Path, spec: GpuSpec, progress: Callable[[Progress], None] | None = None
) -> list[KernelEstimate]:
    """Estimate all kernels of a trace.

    Args:
        path: `kernelslist.g`, or a folder that holds it or has it in `traces/`.
        spec: the config.
        progress: called after each kernel.

    Raises:
        TraceFormatError: the list or a kernel trace is missing, empty or damaged.
        EstimateError: a block does not fit a core of this config.
    """
    return list(iter_estimates(path, spec, progress))


def iter_estimates(
    path: str | Path, spec: GpuSpec, progress: Callable[[Progress], None] | None = None
) -> Iterator[KernelEstimate]:
    """As `estimate_trace`, one kernel at a time."""
    listing = find_list(Path(path))
    # Copies to the device do not warm L2: measured with the simulator of October 2024, where a kernel after
    # a copy of its data took as many cycles as without (docs/estimate-accuracy.md).
    entries = parse_kernels_list(listing.read_text(encoding="utf-8", errors="replace")).kernels
    total = len(entries)
    if not total:
        raise TraceFormatError(listing.name, 0, "the list names no kernel trace")
    warm = WarmL2()
    for done, entry in enumerate(entries, 1):
        trace = read_trace(listing.parent / entry)
        yield estimate_kernel(trace, spec, warm)
        if done < total:
            warm = l2_after(trace, warm)
        if progress is not None:
            progress(Progress(done, total, entry))


def find_list(path: Path) -> Path:
    """The kernel list that `path` means. Raises TraceFormatError when there is none."""
    if path.is_file():
        return path
    for candidate in (path / _LIST, path / "traces" / _LIST):
        if candidate.is_file():
            return candidate
    raise TraceFormatError(str(path), 0, f"no {_LIST} here or in traces/; post-process the raw traces first")
