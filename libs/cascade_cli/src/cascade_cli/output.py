"""How the commands speak: errors that end with the next step, tables, one JSON object for scripts."""

import json
from typing import Any, NoReturn

import typer
from rich.console import Console

console = Console()
stderr = Console(stderr=True)


def fail(problem: str, next_step: str = "", *, code: int = 1) -> NoReturn:
    """End the command with one clear error."""
    typer.echo(f"cascade: {problem}" + (f". Next: {next_step}" if next_step else ""), err=True)
    raise typer.Exit(code)


def print_json(value: dict[str, Any] | list[Any]) -> None:
    """One strict JSON value on stdout and nothing else."""
    typer.echo(json.dumps(value, allow_nan=False))


_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def duration(ns: float | None) -> str:
    """A time in the largest unit that keeps the number above 1."""
    if ns is None:
        return "–"
    for scale, unit in _UNITS:
        if abs(ns) >= scale:
            return f"{ns / scale:.3g} {unit}" if ns / scale < 1000 else f"{ns / scale:.0f} {unit}"
    return f"{ns:.3g} ns"
