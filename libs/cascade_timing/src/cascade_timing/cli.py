"""What `cascade simulate` and `cascade compare` do, without the command line itself.

The commands parse their flags, call these functions, print the summary and turn a `TimingError` into one line
and an exit status.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cascade_timing.compare import compare
from cascade_timing.errors import FileError
from cascade_timing.fields import JsonObject
from cascade_timing.io import read_durations, read_timeline, write_json
from cascade_timing.replay import simulate


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command computed."""

    document: JsonObject
    """The whole result, also when it was written to a file."""
    summary: str
    """A few lines for a person."""


def simulate_files(
    timeline: Path, *, durations: Path | None = None, output: Path | None = None
) -> CommandResult:
    """`cascade simulate TIMELINE [--durations FILE] [--output FILE]`.

    timeline: measured `corrected_timeline.json`. durations: simulated kernel durations; without, the measurement
    is replayed as it is. output: where to write `simulated_timeline.json`. Every file may be gzipped.

    Raises:
        TimingError: a file cannot be read or written, or the inputs do not fit together.
    """
    _check_output(output, timeline, *([durations] if durations else []))
    rows = read_durations(durations) if durations else ()
    document = simulate(read_timeline(timeline), rows)
    if output is not None:
        write_json(output, document)
    return CommandResult(document, _simulation_summary(document))


def compare_files(corrected: Path, simulated: Path, *, output: Path | None = None) -> CommandResult:
    """`cascade compare CORRECTED SIMULATED [--output FILE]`.

    corrected: the measured timeline. simulated: what `cascade simulate` wrote. output: where to write
    `compare.json`. Every file may be gzipped.

    Raises:
        TimingError: a file cannot be read or written, or the two timelines are the wrong way round.
    """
    _check_output(output, corrected, simulated)
    measured = read_timeline(corrected)
    document = compare(read_timeline(simulated), measured)
    if output is not None:
        write_json(output, document)
    return CommandResult(document, "\n".join([_comparison_summary(document), *_origin(measured.meta)]))


def _check_output(output: Path | None, *inputs: Path) -> None:
    """A result must not replace what it was computed from: a measurement cannot be made again."""
    if output is not None and output.resolve() in [path.resolve() for path in inputs]:
        raise FileError(f"--output {output} is also an input; name another file")


def _simulation_summary(document: JsonObject) -> str:
    simulation = _object(_object(document["summary"])["simulation"])
    coverage = _object(simulation["coverage"])
    share = 100 * _number(coverage["gpu_time_fraction"])
    lines = [
        f"{coverage['simulated_kernels']} of {coverage['kernels']} kernels replaced, {share:.2f} % of GPU time"
    ]
    for kind, row in _object(_object(document["summary"])["per_kind"]).items():
        means = _object(row)
        lines.append(
            f"{kind}: {means['steps']} steps, wall {_number(means['wall_ns_mean']) / 1e6:.6f} ms, "
            f"GPU busy {_number(means['gpu_busy_ns_mean']) / 1e3:.3f} µs on average"
        )
    return "\n".join([*lines, *_origin(_object(document["meta"]))])


def _origin(meta: Mapping[str, object]) -> list[str]:
    """What a timeline says of where it comes from: it stands beside every number that is made from it."""
    provenance = meta.get("fixture_provenance")
    if not isinstance(provenance, str) or not provenance:
        return []
    # The text comes from a file: nothing in it may steer a terminal.
    label = "".join(char if char.isprintable() else " " for char in provenance)
    return [f"The timeline says of itself: {label}"]


def _comparison_summary(document: JsonObject) -> str:
    lines = []
    for field, label in (("wall_ns", "step wall"), ("gpu_busy_ns", "GPU busy")):
        row = _object(_object(document["summary"])[field])
        if row["count"] == 0:
            lines.append(f"{label}: no steps to compare")
            continue
        # All percentages are null where every measured value is 0.
        share = "" if row["mean_abs_error_pct"] is None else f" ({_number(row['mean_abs_error_pct']):.3f} %)"
        lines.append(
            f"{label}: {row['count']} steps, mean absolute error "
            f"{_number(row['mean_abs_error']) / 1e3:.3f} µs{share}"
        )
    return "\n".join(lines)


def _object(value: object) -> Mapping[str, object]:
    assert isinstance(value, Mapping)  # the document is our own result
    return value


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return value
