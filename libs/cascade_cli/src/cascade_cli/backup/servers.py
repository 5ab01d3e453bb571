"""The servers that a backup is of: those of a running app, external ones, or the embedded ones, started for it."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import asyncpg
from cascade_api.read_models import database
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.provision import provision
from cascade_core.s3 import bucket as s3
from cascade_core.settings import BucketSettings, NatsSettings
from nats.aio.client import Client
from pydantic import SecretStr

from cascade_cli import running
from cascade_cli.app_stack import embedded_stack
from cascade_cli.backup.format import BackupProblem, BucketRole
from cascade_cli.embedded.s3_requests import S3Access
from cascade_cli.serve_settings import ServeSettings


@dataclass(frozen=True, slots=True)
class Servers:
    """Everything that holds state, connected with the operator's credentials."""

    nats: Client
    pool: "asyncpg.Pool[asyncpg.Record]"
    buckets: dict[BucketRole, s3.S3Bucket]


@asynccontextmanager
async def opened(settings: ServeSettings, *, while_running: bool) -> AsyncIterator[Servers]:
    """The servers, for the length of the block.

    while_running: whether an app may be using them. Raises BackupProblem, Unavailable, EmbeddedServerError.
    """
    async with AsyncExitStack() as stack:
        urls = running.read(settings.data_dir)
        if urls is not None and not while_running:
            raise BackupProblem(
                f"an app runs on {settings.data_dir} (process {urls.pid}); it must not write meanwhile. Stop it first"
            )
        if urls is None:
            embedded = (await stack.enter_async_context(embedded_stack(settings))).urls
            nats_url, database_url, access = embedded.nats_url, embedded.database_url, embedded.s3
        else:
            nats_url, database_url = urls.nats_url, urls.database_url
            access = S3Access(
                endpoint=urls.s3_endpoint,
                access_key=urls.s3_access_key,
                secret_key=urls.s3_secret_key,
                bucket=urls.s3_bucket,
                internal_bucket=urls.s3_internal_bucket,
            )
        nats_settings = NatsSettings(nats_url=nats_url)
        client = await stack.enter_async_context(
            connected(nats_settings, name=f"cascade-backup-{os.getpid()}")
        )
        await provision(client, replicas=nats_settings.nats_replicas)
        pool = await stack.enter_async_context(database.opened(database_url))
        store = BucketSettings(
            s3_endpoint=access.endpoint,
            s3_access_key=access.access_key,
            s3_secret_key=SecretStr(access.secret_key) if access.secret_key else None,
        )
        uploads = await stack.enter_async_context(s3.opened(store, bucket=access.bucket))
        internal = await stack.enter_async_context(s3.opened(store, bucket=access.internal_bucket))
        yield Servers(client, pool, {"uploads": uploads, "internal": internal})
