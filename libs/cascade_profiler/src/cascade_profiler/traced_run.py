"""Reading a traced run's directory back: which kernels, in which order, of which step.

The post-processor's exit code says nothing (old ones exit 0 whatever happens), so that what it left is checked here
before anybody relies on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cascade_profiler.alignment import ListSpan, StepKey
from cascade_profiler.errors import CaptureError
from cascade_profiler.traces_folder import (
    TracedKernel,
    is_kernel_list,
    is_statistics,
    kernel_lines,
    listed_kernels,
    parse_statistics,
    stem_of,
)

PROCESSED_LIST = "kernelslist.g"


@dataclass(frozen=True, slots=True)
class TracedRun:
    """What the tracer and the post-processor left.

    kernels: in the order in which a simulator will launch them; the position, from 1, is the uid.
    spans: the kernel lines that each traced step added to the raw lists.
    lists: stems of the kernel lines of each raw list.
    """

    kernels: tuple[TracedKernel, ...]
    spans: Mapping[StepKey, tuple[ListSpan, ...]]
    lists: Mapping[str, tuple[str, ...]]


def read_traced_run(traced: Path, *, processed: bool) -> TracedRun:
    """Read `traced/`. With `processed`, the order is kernelslist.g's, otherwise the raw list's it will be made from.

    Raises CaptureError if the tracer wrote no kernels, or the post-processor left its work undone.
    """
    traces = traced / "traces"
    names = sorted(path.name for path in traces.iterdir()) if traces.is_dir() else []
    raw = {name: kernel_lines(_text(traces / name)) for name in names if is_kernel_list(name)}
    if not any(raw.values()):
        raise CaptureError(f"the tracer wrote no kernels into {traces}; see logs/trace.log")
    statistics: dict[str, TracedKernel] = {}
    for name in filter(is_statistics, names):
        statistics |= parse_statistics(_text(traces / name))
    lines = _processed_lines(traces, raw) if processed else next(lines for lines in raw.values() if lines)
    return TracedRun(
        kernels=listed_kernels(lines, statistics),
        spans=_spans(traced / "trace_steps.json"),
        lists={name: tuple(map(stem_of, lines)) for name, lines in raw.items()},
    )


def _processed_lines(traces: Path, raw: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    path = traces / PROCESSED_LIST
    if not path.is_file():
        raise CaptureError(f"post-processing left no {PROCESSED_LIST}; see logs/postprocess.log")
    lines = kernel_lines(_text(path))
    stems = [stem_of(line) for line in lines]
    if stems not in [list(map(stem_of, own)) for own in raw.values()]:
        counts = ", ".join(f"{len(own)} in {name}" for name, own in raw.items())
        raise CaptureError(
            f"{PROCESSED_LIST} lists {len(stems)} kernels, which is none of the raw lists ({counts}); "
            "post-processing did not finish, see logs/postprocess.log"
        )
    missing = [line for line in lines if not (traces / line).is_file() or (traces / line).stat().st_size <= 1]
    if missing:
        raise CaptureError(
            f"{len(missing)} of the {len(lines)} traces in {PROCESSED_LIST} are missing or empty, "
            f"first {missing[0]}; see logs/postprocess.log"
        )
    return lines


def _spans(path: Path) -> dict[StepKey, tuple[ListSpan, ...]]:
    try:
        steps = json.loads(_text(path))["steps"]
        return {
            (int(step["repeat"]), int(step["step"])): tuple(
                ListSpan(name, int(span["first"]), int(span["end"])) for name, span in step["lists"].items()
            )
            for step in steps
        }
    except FileNotFoundError as error:
        raise CaptureError("trace_steps.json was not written; the traced run was cut off") from error
    except (json.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CaptureError(f"trace_steps.json is not what the driver writes: {error!r}") from error


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
