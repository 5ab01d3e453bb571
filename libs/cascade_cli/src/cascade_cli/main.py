"""The `cascade` command. Each subcommand imports what it needs when it runs, so that help and errors come at
once."""

import io
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from cascade_cli import (
    commands_admin,
    commands_app,
    commands_bench,
    commands_deploy,
    commands_estimate,
    commands_files,
)

HELP = "Trace an LLM workload once, simulate it on many GPU configs, see where every number comes from."

app = typer.Typer(
    name="cascade",
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.callback(help=HELP)
def speak() -> None:
    """Before every command: print a mark for what the terminal's encoding lacks, such as `×`, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


app.add_typer(commands_admin.web, name="web")
app.add_typer(commands_bench.bench, name="bench")
app.command()(commands_admin.doctor)
app.command()(commands_admin.rebuild)
app.command()(commands_admin.backup)
app.command()(commands_admin.restore)
commands_app.register(app)
app.command()(commands_files.simulate)
app.command()(commands_files.compare)
app.command()(commands_deploy.deploy)
app.command("get-started")(commands_deploy.get_started)
app.command()(commands_deploy.provision)
app.command("nats-config")(commands_deploy.nats_config)
app.command()(commands_estimate.estimate)


@app.command()
def serve(
    service: Annotated[
        str | None,
        typer.Argument(help="One service alone (api, ingest, launcher, parser, requestsim, samples)."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Address that the app listens on.", show_default="0.0.0.0"),  # noqa: S104 - spec
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the app.", show_default="8000")
    ] = None,
    s3_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of the embedded S3 endpoint.", show_default="9000"),
    ] = None,
    sims: Annotated[
        Literal["local", "kubernetes", "sail", "modal"] | None,
        typer.Option(help="Where sims run: local, kubernetes, sail or modal.", show_default="local"),
    ] = None,
) -> None:
    """Run the app: the API, the dashboard, the S3 endpoint and all services, until Ctrl+C."""
    from cascade_cli import serve as serving

    if service is not None:
        raise typer.Exit(serving.serve_one(service))
    settings = serving.settings_with(host=host, port=port, s3_port=s3_port, sims=sims)
    raise typer.Exit(serving.serve_all(settings))


@app.command()
def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON summary and nothing else.")] = False,
    engine: Annotated[
        str,
        typer.Option(
            help="What makes the numbers: estimate (of the bundled trace) or replay (a recorded log)."
        ),
    ] = "estimate",
    data_dir: Annotated[
        Path | None, typer.Option(help="Keep everything here.", show_default="a temporary folder")
    ] = None,
    stay: Annotated[
        bool | None,
        typer.Option("--stay/--exit", help="Keep serving afterwards.", show_default="in a terminal"),
    ] = None,
) -> None:
    """Show the main job, end to end, on embedded servers: upload a trace, launch sims, compare configs."""
    from cascade_cli.demo import run_demo

    raise typer.Exit(run_demo(as_json=as_json, engine=engine, data_dir=data_dir, stay=stay))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def worker(context: typer.Context) -> None:
    """Run one sim, as the launcher's environment says. Takes the flags of `python -m cascade_worker`."""
    from cascade_worker.main import parse_arguments, run_worker

    raise typer.Exit(run_worker(parse_arguments(context.args)))
