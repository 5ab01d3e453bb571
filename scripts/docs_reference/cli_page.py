"""The commands, from the programs' own definitions."""

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer.main
from cascade_cli.main import app as cascade
from cascade_profiler.cli import app as profiler
from cascade_worker.main import parse_arguments

from scripts.docs_reference.blocks import table

PROGRAMS = {"cascade": cascade, "cascade-profiler": profiler}


def cli(arguments: Sequence[str]) -> str:
    """Every command of one program, each with its arguments and options."""
    (program,) = arguments
    parts = []
    for name, command in commands(program):
        parts += [f"### {name}", "", " ".join((command.help or "").split()), ""]
        if name == "cascade worker":
            parts += ["```text", worker_help(), "```", ""]
        elif rows := _rows(command):
            parts += [table(["argument or option", "default", "meaning"], rows), ""]
    return "\n".join(parts)


def commands(program: str) -> Iterator[tuple[str, Any]]:
    """Every command with its whole name, such as `cascade bench pipeline`."""
    yield from _below(program, typer.main.get_command(PROGRAMS[program]))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, child in sorted(inner.items()):
        yield from _below(f"{name} {word}", child)


def worker_help() -> str:
    """The worker's flags, which it reads itself."""
    said = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            parse_arguments(["--help"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return said.getvalue().strip()


def _rows(command: Any) -> list[list[str]]:
    hints = get_type_hints(command.callback)
    return [
        _row(parameter, hints)
        for parameter in command.params
        if not parameter.hidden and "--help" not in parameter.opts
    ]


def _row(parameter: Any, hints: Mapping[str, object]) -> list[str]:
    if any(word.startswith("-") for word in parameter.opts):
        name = ", ".join([*parameter.opts, *parameter.secondary_opts])
        if not parameter.is_flag:
            name += f" {parameter.metavar or _kind(hints.get(parameter.name))}"
    else:
        plain = parameter.name.upper()
        name = parameter.metavar or (plain if parameter.required else f"[{plain}]")
    return [f"`{name}`", _default(parameter), parameter.help or ""]


def _kind(hint: object) -> str:
    """The word for a value, such as `NUMBER`."""
    kinds = {*get_args(hint), hint}
    if int in kinds or float in kinds:
        return "NUMBER"
    return "PATH" if Path in kinds else "TEXT"


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return parameter.show_default  # in words, where the value comes from elsewhere
    if value is None or callable(value) or value == ():
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    if str(value) == tempfile.gettempdir():
        return "the temporary folder"  # differs between machines
    return f"`{value}`" if str(value) else "empty"
