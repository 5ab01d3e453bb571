"""`cascade rebuild`: on the servers of a running app, on external ones, or on the embedded ones, started for it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop
from cascade_api.read_models import database
from cascade_api.read_models.rebuild import rebuild
from cascade_core import lifecycle, telemetry
from cascade_core.errors import CascadeError
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.settings import NatsSettings, TelemetrySettings
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cascade_cli import running
from cascade_cli.app_stack import embedded_stack
from cascade_cli.output import console, fail, print_json, stderr
from cascade_cli.serve_settings import DATABASE_PROBLEMS, ServeSettings


def run_rebuild(settings: ServeSettings, *, as_json: bool) -> int:
    """Rebuild and report; the exit code."""
    telemetry.configure(TelemetrySettings(log_level="WARNING"), service="rebuild")
    try:
        lifecycle.collect_seldom()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            facts, seconds = runner.run(_rebuild(settings, quiet=as_json))
    except (CascadeError, *DATABASE_PROBLEMS) as error:
        fail(str(error).rstrip("."), "cascade doctor")
    if as_json:
        print_json({"facts": facts, "seconds": round(seconds, 3)})
    else:
        console.print(f"rebuilt from {facts:,} facts in {seconds:.1f} s")
    return 0


async def _rebuild(settings: ServeSettings, *, quiet: bool) -> tuple[int, float]:
    columns = (TextColumn("replaying the log"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    async with (
        _servers(settings) as (nats_url, database_url),
        connected(NatsSettings(nats_url=nats_url), name="cascade-rebuild") as client,
        database.opened(database_url) as pool,
    ):
        await provision(client)
        await database.migrate(pool)
        started = time.monotonic()
        with Progress(*columns, console=stderr, disable=quiet) as progress:
            bar = progress.add_task("", total=None)
            facts = await rebuild(
                pool,
                JetStreamLog(client),
                lambda done, total: progress.update(bar, completed=done, total=total),
            )
        return facts, time.monotonic() - started


@asynccontextmanager
async def _servers(settings: ServeSettings) -> AsyncIterator[tuple[str, str]]:
    urls = running.read(settings.data_dir)
    if urls is not None:
        yield urls.nats_url, urls.database_url
        return
    async with contextlib.AsyncExitStack() as stack:
        servers = await stack.enter_async_context(embedded_stack(settings))
        yield servers.urls.nats_url, servers.urls.database_url
