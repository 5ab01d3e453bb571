"""Runs the parser: settings, telemetry, NATS, one reactor."""

import asyncio
import os
import socket
import uuid

import uvloop
from cascade_core import lifecycle, telemetry
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.metrics import serve_metrics
from cascade_core.settings import NatsSettings, TelemetrySettings, load

from cascade_parser.reactor import ParserReactor
from cascade_parser.shares import Shares


class ParserSettings(NatsSettings, TelemetrySettings):
    """Everything the parser needs to know."""


def holder_name() -> str:
    """Names this instance among others, also after a restart on the same host."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}".replace(".", "-")


async def serve(settings: ParserSettings, stop: asyncio.Event) -> None:
    """Parse until `stop` is set."""
    serve_metrics(settings.metrics_port, settings.metrics_host)
    async with connected(settings, name="cascade-parser") as client:
        await provision(client, replicas=settings.nats_replicas)
        reactor = ParserReactor(JetStreamLog(client))
        shares = Shares(client, holder_name(), gained=reactor.gained, lost=reactor.lost)
        await lifecycle.until_stopped(stop, reactor.run(shares))


def main() -> int:
    """Entry point of the parser service alone."""
    settings = load(ParserSettings)
    telemetry.configure(settings, service="parser")
    return lifecycle.run(
        lambda stop: serve(settings, stop), service="parser", loop_factory=uvloop.new_event_loop
    )


if __name__ == "__main__":
    raise SystemExit(main())
