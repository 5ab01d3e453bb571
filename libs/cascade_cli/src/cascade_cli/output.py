"""How the commands speak: errors that end with the next step, tables, one JSON object for scripts."""

import json
from typing import Any, NoReturn

import typer
from cascade_client.report_text import duration
from rich.console import Console

__all__ = ["console", "duration", "fail", "print_json", "stderr"]

console = Console()
stderr = Console(stderr=True)


def fail(problem: str, next_step: str = "", *, code: int = 1) -> NoReturn:
    """End the command with one clear error."""
    typer.echo(f"cascade: {problem}" + (f". Next: {next_step}" if next_step else ""), err=True)
    raise typer.Exit(code)


def print_json(value: dict[str, Any] | list[Any]) -> None:
    """One strict JSON value on stdout and nothing else."""
    typer.echo(json.dumps(value, allow_nan=False))
