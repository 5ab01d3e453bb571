"""Runs the request simulator: settings, telemetry, NATS, bucket, one reactor."""

import asyncio
import os
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

from cascade_core import lifecycle, telemetry
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.metrics import serve_metrics
from cascade_core.s3 import bucket as s3
from cascade_core.settings import load

from cascade_requestsim.base_store import BaseStore
from cascade_requestsim.reactor import ScenarioReactor
from cascade_requestsim.settings import RequestsimSettings


async def serve(settings: RequestsimSettings, stop: asyncio.Event) -> None:
    """Answer scenarios until `stop` is set."""
    serve_metrics(settings.metrics_port, settings.metrics_host)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connected(settings, name="cascade-requestsim"))
        await provision(client, replicas=settings.nats_replicas)
        bucket = await stack.enter_async_context(s3.opened(settings))
        # Threads, not processes: a profile is shared by all of them, and the loop gets its turn every few milliseconds.
        executor = ThreadPoolExecutor(settings.scenario_threads, thread_name_prefix="scenario")
        stack.callback(executor.shutdown, wait=False, cancel_futures=True)
        log = JetStreamLog(client)
        reactor = ScenarioReactor(
            log,
            client,
            BaseStore(log, bucket, prefix=settings.s3_prefix, executor=executor),
            executor=executor,
            holder=f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}",
            threads=settings.scenario_threads,
            max_age_s=settings.scenario_max_age_s,
        )
        await lifecycle.until_stopped(stop, reactor.run())


def main() -> int:
    """Entry point of the request simulator alone."""
    settings = load(RequestsimSettings)
    telemetry.configure(settings, service="requestsim")
    return lifecycle.run(lambda stop: serve(settings, stop), service="requestsim")


if __name__ == "__main__":
    raise SystemExit(main())
