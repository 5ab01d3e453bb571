"""Commands on files: step timing without a server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cascade_timing.cli import CommandResult

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the JSON here; .gz is written gzipped.")
]


def simulate(
    timeline: Annotated[Path, typer.Argument(help="Measured corrected_timeline.json, plain or gzipped.")],
    durations: Annotated[
        Path | None,
        typer.Option("--durations", help="Simulated kernel durations; without, the measurement is replayed."),
    ] = None,
    output: Output = None,
) -> None:
    """Replay a measured step timeline with simulated kernel durations."""
    from cascade_timing.cli import simulate_files
    from cascade_timing.errors import TimingError

    from cascade_cli.output import fail

    try:
        result = simulate_files(timeline, durations=durations, output=output)
    except TimingError as error:
        fail(str(error))
    _print(result, output)


def compare(
    corrected: Annotated[Path, typer.Argument(help="Measured corrected_timeline.json, plain or gzipped.")],
    simulated: Annotated[Path, typer.Argument(help="What `cascade simulate` wrote.")],
    output: Output = None,
) -> None:
    """Compare a simulated step timeline with the measured one."""
    from cascade_timing.cli import compare_files
    from cascade_timing.errors import TimingError

    from cascade_cli.output import fail

    try:
        result = compare_files(corrected, simulated, output=output)
    except TimingError as error:
        fail(str(error))
    _print(result, output)


def _print(result: "CommandResult", output: Path | None) -> None:
    from cascade_timing.io import to_json

    if output is None:
        typer.echo(to_json(result.document), nl=False)  # it ends with a line break of its own
        typer.echo(result.summary, err=True)
    else:
        typer.echo(result.summary)
