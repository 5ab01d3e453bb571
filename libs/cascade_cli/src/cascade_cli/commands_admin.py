"""Commands for whoever runs Cascade: doctor, rebuild, backup, restore, web."""

from pathlib import Path
from typing import Annotated

import typer

web = typer.Typer(help="The dashboard's build, with the Node that comes from a wheel.", no_args_is_help=True)


@web.command("build")
def web_build(
    quiet: Annotated[bool, typer.Option("--quiet", help="Show npm's output only on failure.")] = False,
) -> None:
    """Build the dashboard unless it is up to date."""
    from cascade_cli import web_commands

    built = web_commands.build(quiet=quiet)
    typer.echo("dashboard built" if built else "dashboard is up to date", err=True)


@web.command("test")
def web_test() -> None:
    """Run the dashboard's unit tests."""
    from cascade_cli import web_commands

    web_commands.test()


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Tell which servers are reachable, in which state, and what to do."""
    from cascade_cli.doctor import run_doctor
    from cascade_cli.serve_settings import loaded_by_operator

    raise typer.Exit(run_doctor(loaded_by_operator(), as_json=as_json))


def rebuild(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Throw the read models away and replay the log. The result is identical."""
    from cascade_cli.rebuild import run_rebuild
    from cascade_cli.serve_settings import loaded_by_operator

    raise typer.Exit(run_rebuild(loaded_by_operator(), as_json=as_json))


def backup(
    directory: Annotated[Path, typer.Argument(help="A folder that does not exist yet.")],
    objects: Annotated[
        bool, typer.Option("--objects", help="Copy the buckets' objects too, not only their listing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Write the event log and what the buckets hold into a folder. The app may go on working."""
    from cascade_cli.backup import commands

    raise typer.Exit(commands.backup(directory, objects=objects, as_json=as_json))


def restore(
    directory: Annotated[Path, typer.Argument(help="A folder that `cascade backup` wrote.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Bring a backup back, into empty servers with no app running. Every answer is as it was."""
    from cascade_cli.backup import commands

    raise typer.Exit(commands.restore(directory, as_json=as_json))
