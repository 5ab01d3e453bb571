"""`cascade provision`: streams and buckets on servers that run elsewhere, with the operator's logins. Safe to rerun."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer
from cascade_core import subjects
from cascade_core.errors import CascadeError, LogUnavailable, Unavailable
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.provision import inspect, provision
from cascade_core.settings import load
from nats.aio.client import Client
from nats.errors import Error as NatsError

from cascade_cli.output import fail
from cascade_cli.provisioning.buckets import provision_buckets
from cascade_cli.provisioning.settings import ProvisionSettings

RETRY_S = 0.5
_STREAMS = (subjects.STREAM, f"OBJ_{subjects.CLAIMS}", f"KV_{subjects.LEASES}")

T = TypeVar("T")


def run_provision() -> int:
    """Set everything up and say what is in place; returns the exit code."""
    settings = load(ProvisionSettings)
    try:
        for line in asyncio.run(_provision(settings)):
            typer.echo(line)
    except CascadeError as error:
        fail(str(error), "check the operator's NATS and S3 credentials, then run `cascade provision` again")
    return 0


async def _provision(settings: ProvisionSettings) -> list[str]:
    wait_s = settings.provision_wait_s
    return [
        *await _patiently(lambda: _streams(settings), wait_s),
        *await _patiently(lambda: provision_buckets(settings), wait_s),
    ]


async def _streams(settings: ProvisionSettings) -> list[str]:
    async with connected(settings, name="cascade-provision") as client:
        await provision(client, replicas=settings.nats_replicas)
        changed = await _match_replicas(client, settings.nats_replicas)
        report = await inspect(client)
    return [
        *(f"stream {name}: {settings.nats_replicas} replica(s)" for name in _STREAMS),
        *changed,
        *(
            f"stream {subjects.STREAM} differs from what this version declares: {one}"
            for one in report.differences
        ),
    ]


async def _match_replicas(client: Client, replicas: int) -> list[str]:
    """Give streams of an earlier set-up the number of copies that is asked for now."""
    js = client.jetstream()
    changed: list[str] = []
    try:
        for name in _STREAMS:
            config = (await js.stream_info(name)).config
            if config.num_replicas != replicas:
                await js.update_stream(dataclasses.replace(config, num_replicas=replicas))
                changed.append(f"stream {name}: had {config.num_replicas} replica(s)")
    except (NatsError, TimeoutError) as error:
        raise LogUnavailable(
            f"the streams cannot have {replicas} replicas: {error}. Run as many NATS servers in one cluster, or set "
            "CASCADE_NATS_REPLICAS to what there is"
        ) from error
    return changed


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
