"""`cascade serve`: the whole app until Ctrl+C."""

import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

import typer
from cascade_core import telemetry
from cascade_core.settings import TelemetrySettings, load

from cascade_cli import app_stack, bundled, web_commands
from cascade_cli.demo import healthy
from cascade_cli.embedded.errors import EmbeddedServerError
from cascade_cli.output import fail
from cascade_cli.serve_settings import ServeSettings, loaded
from cascade_cli.supervisor import ServiceFailed


def settings_with(**overrides: object) -> ServeSettings:
    """The settings of the environment with the flags that were given on top."""
    for name, value in overrides.items():
        if value is not None:
            os.environ[f"CASCADE_{name.upper()}"] = str(value)
    settings = loaded()
    # Only here: the demo and the tools for operators start an endpoint of their own or none.
    if not settings.run_s3 and settings.s3_endpoint is None:
        fail(
            "CASCADE_RUN_S3 is false, so no S3 endpoint is started, and CASCADE_S3_ENDPOINT is not set",
            "set it to the endpoint to use, or leave CASCADE_RUN_S3 out",
            code=2,
        )
    return settings


def serve_one(service: str) -> int:
    """Run a single service in this process, on servers given by their URLs."""
    if service not in app_stack.MODULES:
        fail(f"there is no service {service!r}", f"choose one of {', '.join(sorted(app_stack.MODULES))}")
    return int(importlib.import_module(app_stack.MODULES[service]).main())


def serve_all(settings: ServeSettings) -> int:
    """Run everything until SIGINT or SIGTERM; returns the exit code."""
    telemetry.configure(load(TelemetrySettings), service="serve")
    try:
        asyncio.run(_serve(settings))
    except (EmbeddedServerError, ServiceFailed) as error:
        fail(str(error))
    return 0


async def _serve(settings: ServeSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with app_stack.running_app(settings) as app:
        _announce(app)
        build = build_dashboard()
        welcome = asyncio.create_task(_say_when_up(settings))
        tasks: Sequence[asyncio.Task[object]] = [
            asyncio.create_task(stop.wait()),
            asyncio.create_task(app.stack.failed())
            if app.stack.servers
            else asyncio.create_task(stop.wait()),
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in [*tasks, build, welcome]:
            task.cancel()
        with suppress(asyncio.CancelledError):
            for task in done:
                task.result()


async def _say_when_up(settings: ServeSettings) -> None:
    """The line that a person (and the quickstart) waits for, once requests are answered."""
    await healthy(settings.local_url())
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    typer.echo(
        f"INFO:     Uvicorn running on http://{host}:{settings.port} (Press CTRL+C to quit)",
        err=True,
    )


def build_dashboard() -> "asyncio.Task[None]":
    """Build the dashboard beside the running app where it is missing or out of date; the API does not wait for it."""

    async def build() -> None:
        if not (bundled.WEB_SOURCES / "package.json").is_file():
            return
        if web_commands.built_digest() == web_commands.source_digest(bundled.WEB_SOURCES):
            return
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cascade_cli", "web", "build", "--quiet", stdin=asyncio.subprocess.DEVNULL
        )
        try:
            await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):  # it may have ended without the event loop knowing yet
                process.terminate()
            await process.wait()
            raise

    return asyncio.create_task(build())


def _announce(app: app_stack.RunningApp) -> None:
    settings = app.settings
    typer.echo(f"data:  {settings.data_dir.absolute()}", err=True)
    typer.echo(
        f"s3:    {app.urls.s3.endpoint} (bucket {settings.s3_bucket}, prefix {settings.s3_prefix}, path-style"
        f"{', unsigned' if settings.s3_anonymous and settings.s3_endpoint is None else ''})",
        err=True,
    )
    typer.echo(f"sims:  {settings.sims}, {settings.resolved_sim_cmd()}", err=True)
