"""Makes the event log's streams with the number of copies that is asked for, and says how they differ from the code."""

import dataclasses

from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.provision import inspect, provision
from cascade_core.settings import NatsSettings
from nats.aio.client import Client
from nats.errors import Error as NatsError

_STREAMS = (subjects.STREAM, f"OBJ_{subjects.CLAIMS}", f"KV_{subjects.LEASES}")


async def provision_streams(settings: NatsSettings) -> list[str]:
    """Create what is missing; returns a line for each thing that is now in place. Raises LogUnavailable."""
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
