"""Runs ingest: settings, telemetry, NATS, the bucket, one leader."""

import asyncio
import os
import socket
import uuid
from contextlib import AsyncExitStack

from cascade_core import lifecycle, telemetry
from cascade_core.jetstream import lease
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.metrics import serve_metrics
from cascade_core.s3 import bucket as s3
from cascade_core.settings import load
from nats.aio.client import Client
from nats.aio.msg import Msg

from cascade_ingest.postprocess import Postprocessor
from cascade_ingest.reactor import Ingest
from cascade_ingest.settings import IngestSettings


async def serve(settings: IngestSettings, stop: asyncio.Event) -> None:
    """Watch the bucket until `stop` is set; one instance at a time does."""
    serve_metrics(settings.metrics_port, settings.metrics_host)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connected(settings, name="cascade-ingest"))
        await provision(client, replicas=settings.nats_replicas)
        bucket = await stack.enter_async_context(s3.opened(settings))
        await lifecycle.until_stopped(stop, _lead_for_ever(settings, client, bucket))


async def _lead_for_ever(settings: IngestSettings, client: Client, bucket: s3.S3Bucket) -> None:
    holder = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    while True:
        async with lease.held(client, "ingest", holder) as held:
            ingest = Ingest(
                JetStreamLog(client),
                bucket,
                prefix=settings.s3_prefix,
                postprocessor=Postprocessor(settings.postprocess_command, settings.data_dir / "work"),
                scan_interval_s=settings.scan_interval_s,
            )

            async def on_notification(_msg: Msg, ingest: Ingest = ingest) -> None:
                ingest.hint.set()

            hints = await client.subscribe(settings.s3_events_subject, cb=on_notification)
            try:
                await lifecycle.until_stopped(held.lost, ingest.run())
            finally:
                if not client.is_closed:
                    await hints.unsubscribe()


def main() -> int:
    """Entry point of the ingest service alone."""
    settings = load(IngestSettings)
    telemetry.configure(settings, service="ingest")
    return lifecycle.run(lambda stop: serve(settings, stop), service="ingest")


if __name__ == "__main__":
    raise SystemExit(main())
