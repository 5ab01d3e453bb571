"""The stream, the object store and the lease bucket, declared from code. Idempotent; differences are reported."""

from dataclasses import dataclass

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import api
from nats.js.errors import APIError, NotFoundError

from cascade_core import subjects
from cascade_core.errors import LogUnavailable

DUPLICATE_WINDOW_S = 120.0
"""How long the server itself recognises a repeated event id. Consumers are idempotent beyond it."""
LEASE_TTL_S = 5.0
"""A leader that is killed is replaced after this time."""


@dataclass(frozen=True, slots=True)
class StreamReport:
    """What `cascade doctor` tells of the stream."""

    exists: bool
    messages: int = 0
    bytes: int = 0
    last_position: int = 0
    differences: tuple[str, ...] = ()


def stream_config(replicas: int) -> api.StreamConfig:
    """The event log: file storage, kept for ever, one total order."""
    return api.StreamConfig(
        name=subjects.STREAM,
        description="Cascade's event log: one total order of facts.",
        subjects=[subjects.ALL],
        retention=api.RetentionPolicy.LIMITS,
        # A full store refuses new facts (503 at the gateway) instead of dropping old ones.
        discard=api.DiscardPolicy.NEW,
        storage=api.StorageType.FILE,
        num_replicas=replicas,
        duplicate_window=DUPLICATE_WINDOW_S,
        allow_direct=True,
        compression=api.StoreCompression.S2,
        max_age=0,
    )


async def provision(client: Client, *, replicas: int = 1) -> None:
    """Create what is missing. Raises LogUnavailable."""
    js = client.jetstream()
    try:
        await _ensure_stream(client, replicas)
        try:
            await js.object_store(subjects.CLAIMS)
        except NotFoundError:
            await js.create_object_store(
                subjects.CLAIMS,
                config=api.ObjectStoreConfig(
                    description="Payloads that do not fit a message.",
                    storage=api.StorageType.FILE,
                    replicas=replicas,
                ),
            )
        try:
            await js.key_value(subjects.LEASES)
        except NotFoundError:
            await js.create_key_value(
                api.KeyValueConfig(
                    bucket=subjects.LEASES,
                    description="Who leads.",
                    ttl=LEASE_TTL_S,
                    history=1,
                    # In memory the bucket itself would be gone after a restart of the server, and nobody could lead.
                    storage=api.StorageType.FILE,
                    replicas=replicas,
                )
            )
    except (NatsError, TimeoutError) as error:
        raise LogUnavailable(
            f"the event log cannot be set up: {error}. NATS must run with JetStream (`nats-server -js`)."
        ) from error


async def _ensure_stream(client: Client, replicas: int) -> None:
    js = client.jetstream()
    try:
        await js.stream_info(subjects.STREAM)
    except NotFoundError:
        await js.add_stream(stream_config(replicas))


async def inspect(client: Client) -> StreamReport:
    """The stream as it stands, and how it differs from what the code declares."""
    try:
        info = await client.jetstream().stream_info(subjects.STREAM)
    except NotFoundError:
        return StreamReport(exists=False)
    except (APIError, NatsError, TimeoutError) as error:
        raise LogUnavailable(f"JetStream does not answer: {error}") from error
    found, wanted = info.config, stream_config(info.config.num_replicas or 1)
    differences = tuple(
        f"{name}: is {getattr(found, name)!r}, should be {getattr(wanted, name)!r}"
        for name in ("subjects", "retention", "discard", "storage", "allow_direct")
        if getattr(found, name) != getattr(wanted, name)
    )
    return StreamReport(
        exists=True,
        messages=info.state.messages,
        bytes=info.state.bytes,
        last_position=info.state.last_seq,
        differences=differences,
    )
