"""The real service in a process of its own, on real servers: notifications, kills, restarts."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_cli.embedded.process import free_ports
from cascade_cli.embedded.s3_requests import S3Access
from cascade_core import subjects
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.s3.bucket import S3Bucket, opened
from cascade_core.settings import BucketSettings, NatsSettings
from cascade_core.testing.scraping import scraped_until
from cascade_core.traces import state as trace_state
from cascade_core.traces.facts import TraceFact, TraceReady
from cascade_core.traces.state import Trace
from cascade_ingest.testing import key_of, until
from nats.aio.client import Client
from pydantic import SecretStr

T = "20261107-120000__demo__model.layers.0"
RAW = {
    "metadata.json": "{}",
    "traces/kernel-1.trace": "one",
    "traces/kernel-2.trace": "two",
    "traces/kernelslist_ctx_0x1": "kernel-1.trace\nkernel-2.trace\n",
    "traces/stats_ctx_0x1": "",
}


@pytest.fixture
async def s3(bucket: S3Access) -> AsyncIterator[S3Bucket]:
    settings = BucketSettings(
        s3_endpoint=bucket.endpoint,
        s3_bucket=bucket.bucket,
        s3_access_key=bucket.access_key,
        s3_secret_key=SecretStr(bucket.secret_key or ""),
    )
    async with opened(settings) as store:
        yield store


@pytest.fixture
async def client(fresh_nats: EmbeddedNats) -> AsyncIterator[Client]:
    async with connected(NatsSettings(nats_url=fresh_nats.url), name="test") as client:
        await provision(client)
        yield client


@dataclass(frozen=True, slots=True)
class Servers:
    """What the service runs on, and where the test sees what it does."""

    nats: EmbeddedNats
    bucket: S3Access
    client: Client
    s3: S3Bucket

    @asynccontextmanager
    async def service(
        self, data_dir: Path, *, command: str, interval_s: float = 0.2, metrics_port: int | None = None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """The real service, ended as on SIGTERM."""
        environment = {
            "PATH": os.environ["PATH"],
            "CASCADE_NATS_URL": self.nats.url,
            "CASCADE_S3_ENDPOINT": self.bucket.endpoint,
            "CASCADE_S3_BUCKET": self.bucket.bucket,
            "CASCADE_S3_ACCESS_KEY": self.bucket.access_key or "",
            "CASCADE_S3_SECRET_KEY": self.bucket.secret_key or "",
            "CASCADE_DATA_DIR": str(data_dir),
            "CASCADE_POSTPROCESS_CMD": command,
            "CASCADE_SCAN_INTERVAL_S": str(interval_s),
            "CASCADE_METRICS_HOST": "127.0.0.1",
            "CASCADE_METRICS_PORT": "" if metrics_port is None else str(metrics_port),
        }
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cascade_ingest.main", env=environment
        )
        try:
            yield child
        finally:
            if child.returncode is None:
                child.terminate()
            await child.wait()


@pytest.fixture
def servers(fresh_nats: EmbeddedNats, bucket: S3Access, client: Client, s3: S3Bucket) -> Servers:
    return Servers(fresh_nats, bucket, client, s3)


async def put(s3: S3Bucket, files: dict[str, str], trace_id: str = T) -> None:
    for path, body in files.items():
        await s3.put(key_of(trace_id, path), body.encode())


async def trace_of(client: Client, trace_id: str = T) -> Trace | None:
    trace: Trace | None = None
    for record in await JetStreamLog(client).read([subjects.trace_filter(trace_id)]):
        assert isinstance(record.fact, TraceFact)
        trace = trace_state.apply(trace, record.fact)
    return trace


def in_state(client: Client, state: str, trace_id: str = T) -> Callable[[], Awaitable[bool]]:
    async def reached() -> bool:
        trace = await trace_of(client, trace_id)
        return trace is not None and trace.state.value == state

    return reached


async def exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def test_an_ingest_that_is_killed_in_the_middle_of_post_processing_begins_it_anew(
    servers: Servers, tmp_path: Path, stand_in: Callable[..., str]
) -> None:
    go_on = tmp_path / "go on"
    command = stand_in("wait", str(go_on))
    await put(servers.s3, RAW)
    async with servers.service(tmp_path, command=command) as doomed:
        await until(in_state(servers.client, "processing"))
        await until(lambda: exists(tmp_path / "work" / "postprocess" / f"{T}.log"))
        doomed.send_signal(signal.SIGKILL)
        await doomed.wait()
    await until(lambda: nobody_runs(str(go_on)))
    async with servers.service(tmp_path, command=command) as second:
        assert (await trace_of(servers.client)) is not None
        go_on.touch()
        await until(in_state(servers.client, "ready"))
        second.terminate()
        async with asyncio.timeout(60):
            assert await second.wait() == 0
    trace = await trace_of(servers.client)
    assert trace is not None
    assert trace.kernel_count == 2
    assert await servers.s3.get(key_of(T, "traces/kernelslist.g")) == b"kernel-1.traceg\nkernel-2.traceg\n"
    records = await JetStreamLog(servers.client).read([subjects.trace_filter(T)])
    assert sum(1 for record in records if isinstance(record.fact, TraceReady)) == 1
    assert not [path for path in (tmp_path / "work" / "scratch").iterdir() if path.name.startswith(T)]


async def nobody_runs(word: str) -> bool:
    def running() -> list[str]:
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = entry.read_bytes()
            except OSError:
                continue
            if word.encode() in line:
                found.append(str(entry))
        return found

    return await asyncio.to_thread(running) == []


async def test_a_bucket_notification_brings_the_scan_at_once(servers: Servers, tmp_path: Path) -> None:
    await put(servers.s3, {"metadata.json": "{}"}, "first")
    async with servers.service(tmp_path, command="none", interval_s=600):
        await until(in_state(servers.client, "uploading", "first"))
        await put(servers.s3, {"metadata.json": json.dumps({"status": "failed"})})
        # What MinIO publishes for a put; only that it came matters, the listing tells the rest.
        event = {
            "EventName": "s3:ObjectCreated:Put",
            "Key": f"{servers.bucket.bucket}/{key_of(T, 'metadata.json')}",
        }
        await servers.client.publish("minio.events", json.dumps(event).encode())
        await until(in_state(servers.client, "failed"))  # within its deadline, a tenth of the scan interval


async def test_its_metrics_tell_the_traces_by_state_and_what_it_wrote(
    servers: Servers, tmp_path: Path, stand_in: Callable[..., str]
) -> None:
    (port,) = free_ports(1)
    await put(servers.s3, {"traces/kernel-1.trace": "one"}, "begun")
    await put(servers.s3, {"metadata.json": json.dumps({"status": "failed"})}, "broken")
    await put(servers.s3, RAW)
    states = {"uploading": 1, "processing": 0, "ready": 1, "failed": 1}
    async with servers.service(tmp_path, command=stand_in("ok"), metrics_port=port):
        seen = await scraped_until(
            port,
            lambda seen: all(
                seen.value("cascade_traces", state=state) == count for state, count in states.items()
            ),
        )
    assert seen.value("cascade_facts_appended_total", type="trace.discovered") == 3
    assert seen.value("cascade_facts_appended_total", type="trace.ready") == 1
    assert seen.value("cascade_facts_appended_total", type="trace.failed") == 1
    assert seen.value("cascade_appends_refused_total") == 0
    assert seen.value("cascade_scans_failed_total") == 0
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes"} <= seen.names


async def test_two_instances_do_not_work_twice(
    servers: Servers, tmp_path: Path, stand_in: Callable[..., str]
) -> None:
    command = stand_in("ok")
    async with (
        servers.service(tmp_path / "a", command=command) as one,
        servers.service(tmp_path / "b", command=command) as other,
    ):
        await put(servers.s3, RAW)
        await until(in_state(servers.client, "ready"))
        # Whichever leads is killed: the other takes over and sees the next upload.
        await put(servers.s3, RAW, "next")
        one.send_signal(signal.SIGKILL)
        await one.wait()
        await until(in_state(servers.client, "ready", "next"))
        assert other.returncode is None
    records = await JetStreamLog(servers.client).read([subjects.trace_filter(T)])
    assert sum(1 for record in records if isinstance(record.fact, TraceReady)) == 1
