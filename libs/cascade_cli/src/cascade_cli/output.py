"""How the commands speak: errors that end with the next step, tables, one JSON object for scripts."""

import json
import os
from typing import Any, Final, NoReturn

import typer
from cascade_client.report_text import duration
from rich.console import Console, ConsoleDimensions

__all__ = ["Output", "console", "duration", "fail", "print_json", "stderr"]

PIPED_WIDTH: Final = 1000


class Output(Console):
    """A console that cuts nothing in a pipe or a file, where nobody sees the edge of a screen.

    `COLUMNS` counts at the moment of printing, wherever the output goes.
    """

    @property
    def size(self) -> ConsoleDimensions:
        columns = os.environ.get("COLUMNS", "")
        if columns.isdigit() and int(columns):
            return ConsoleDimensions(int(columns), super().size.height)
        # Not is_terminal: FORCE_COLOR asks for colour, and says nothing about a width.
        return super().size if self.file.isatty() else ConsoleDimensions(PIPED_WIDTH, 25)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size


console = Output()
stderr = Output(stderr=True)


def fail(problem: str, next_step: str = "", *, code: int = 1) -> NoReturn:
    """End the command with one clear error."""
    typer.echo(f"cascade: {problem}" + (f". Next: {next_step}" if next_step else ""), err=True)
    raise typer.Exit(code)


def print_json(value: dict[str, Any] | list[Any]) -> None:
    """One strict JSON value on stdout and nothing else."""
    typer.echo(json.dumps(value, allow_nan=False))
