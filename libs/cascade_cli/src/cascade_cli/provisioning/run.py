"""`cascade provision`: streams and buckets on servers that run elsewhere, with the operator's logins. Safe to rerun."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer
from cascade_core import telemetry
from cascade_core.errors import CascadeError, Unavailable
from cascade_core.settings import TelemetrySettings, load

from cascade_cli.output import fail
from cascade_cli.provisioning.buckets import provision_buckets
from cascade_cli.provisioning.settings import ProvisionSettings
from cascade_cli.provisioning.streams import provision_streams

RETRY_S = 0.5

T = TypeVar("T")


def run_provision() -> int:
    """Set everything up and say what is in place; returns the exit code."""
    settings = load(ProvisionSettings)
    telemetry.configure(load(TelemetrySettings), service="provision")
    try:
        for line in asyncio.run(_provision(settings)):
            typer.echo(line)
    except CascadeError as error:
        fail(str(error), "check the operator's NATS and S3 credentials, then run `cascade provision` again")
    return 0


async def _provision(settings: ProvisionSettings) -> list[str]:
    wait_s = settings.provision_wait_s
    return [
        *await _patiently(lambda: provision_streams(settings), wait_s),
        *await _patiently(lambda: provision_buckets(settings), wait_s),
    ]


async def _patiently(attempt: Callable[[], Awaitable[T]], wait_s: float) -> T:
    """The outcome of `attempt`, tried again while a server is not up yet."""
    give_up_at = asyncio.get_running_loop().time() + wait_s
    while True:
        try:
            return await attempt()
        except Unavailable:
            if asyncio.get_running_loop().time() >= give_up_at:
                raise
        await asyncio.sleep(RETRY_S)
