"""Fixtures of the launcher's tests: a log on a real server, a bucket with a trace, a simulator that can
misbehave."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_cli.embedded.s3 import EmbeddedS3
from cascade_cli.embedded.s3_requests import S3Access
from cascade_cli.embedded.testing import run_now
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.s3 import bucket as s3
from cascade_core.s3.bucket import S3Bucket
from cascade_core.settings import BucketSettings, NatsSettings
from cascade_launcher.testing import PREFIX, TRACE_ID, Simulator
from pydantic import SecretStr


def bucket_settings(access: S3Access) -> BucketSettings:
    """How a service is told of the test's bucket."""
    return BucketSettings(
        s3_endpoint=access.endpoint,
        s3_bucket=access.bucket,
        s3_access_key=access.access_key,
        s3_secret_key=SecretStr(access.secret_key) if access.secret_key else None,
    )


async def _put_trace(opened: S3Bucket) -> None:
    base = f"{PREFIX}/{TRACE_ID}"
    await opened.put(f"{base}/traces/kernelslist.g", b"kernel-1.traceg\n")
    await opened.put(f"{base}/traces/kernel-1.traceg", b"-kernel name = a\n" * 100)
    await opened.put(f"{base}/metadata.json", b"{}")


@pytest.fixture
async def traces(bucket: S3Access) -> AsyncIterator[S3Bucket]:
    """A bucket of the test's own, with one small trace in it."""
    async with s3.opened(bucket_settings(bucket)) as opened:
        await _put_trace(opened)
        yield opened


@pytest.fixture(scope="session")
def filled_bucket(s3_server: EmbeddedS3) -> S3Access:
    """One bucket for every test that only reads the trace in it."""
    access = replace(s3_server.access, bucket="launcher-reads-only")

    async def fill() -> None:
        await s3_server.create_bucket(access.bucket)
        async with s3.opened(bucket_settings(access)) as opened:
            await _put_trace(opened)

    run_now(fill())
    return access


@pytest.fixture
async def stored_trace(filled_bucket: S3Access) -> AsyncIterator[S3Bucket]:
    """The trace, to be read only."""
    async with s3.opened(bucket_settings(filled_bucket)) as opened:
        yield opened


@pytest.fixture
async def log(fresh_nats: EmbeddedNats) -> AsyncIterator[JetStreamLog]:
    """An empty log on a server of this test's own."""
    async with connected(NatsSettings(nats_url=fresh_nats.url), name="test") as client:
        await provision(client)
        yield JetStreamLog(client)


@pytest.fixture
def simulator(tmp_path: Path) -> Simulator:
    """See `Simulator`."""
    directory = tmp_path / "simulator"
    directory.mkdir()
    return Simulator(directory)
