"""Fetching a trace from a real S3 store, over a line that can be cut."""

import asyncio
import hashlib
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import Popen

import pytest
from cascade_cli.embedded.s3 import EmbeddedS3
from cascade_cli.embedded.s3_requests import S3Access
from cascade_client.object_store import open_store
from cascade_client.upload import upload_trace
from cascade_worker.download import fetch_trace
from cascade_worker.errors import TraceDownloadError
from cascade_worker.settings import WorkerSettings
from cascade_worker.testing import FakeGateway

_numbers = itertools.count()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Access]:
    server = EmbeddedS3(
        tmp_path_factory.mktemp("s3"),
        access_key="owner",
        secret_key="owner-secret",
        internal_key="internal-key-of-this-test-run",
        bucket="cascade",
        internal_bucket="cascade-internal",
        anonymous=True,
    )
    asyncio.run(server.start())
    yield server.access
    asyncio.run(server.stop())


@pytest.fixture
def prefix() -> str:
    return f"accelsim-traces-{next(_numbers)}"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A processed trace with its raw files still beside it."""
    directory = tmp_path / "original" / "my run #1"
    (directory / "traces").mkdir(parents=True)
    (directory / "traces" / "kernelslist.g").write_text(
        "MemcpyHtoD,0x00007f0000000000,64\nkernel-1.traceg.xz\nkernel-2.traceg\n# a comment\n"
    )
    (directory / "traces" / "kernel-1.traceg.xz").write_bytes(os.urandom(300_000))
    (directory / "traces" / "kernel-2.traceg").write_bytes(b"-kernel name = b\n" * 40_000)
    (directory / "traces" / "kernel-2.trace").write_bytes(b"raw\n" * 1000)
    (directory / "corrected_timeline.json").write_text("{}")
    return directory


async def put(store: S3Access, original: Path, prefix: str) -> None:
    await upload_trace(
        original, endpoint=store.endpoint, bucket=store.bucket, prefix=prefix, run_name=original.name, meta={}
    )


def settings(store: S3Access, target: Path, prefix: str, **more: object) -> WorkerSettings:
    values: dict[str, object] = {
        "sim_id": "sim-1",
        "main_url": "http://127.0.0.1:1",
        "gpu_config": "SM86_RTX3070",
        "trace_dir": target,
        "s3_endpoint": store.endpoint,
        "s3_prefix": prefix,
        **more,
    }
    return WorkerSettings.model_validate(values)


@pytest.fixture
def target(tmp_path: Path, original: Path) -> Path:
    return tmp_path / "fetched" / original.name


def content_of(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".download.lock"
    }


async def test_the_list_the_files_it_names_and_the_timing_files_are_fetched(
    store: S3Access, original: Path, prefix: str, target: Path
) -> None:
    await put(store, original, prefix)
    await fetch_trace(settings(store, target, prefix))
    expected = content_of(original)
    del expected["traces/kernel-2.trace"]  # raw files are not what a simulation reads
    assert content_of(target) == expected


async def test_a_trace_on_disk_or_without_a_bucket_is_left_alone(
    store: S3Access, original: Path, prefix: str, target: Path
) -> None:
    await fetch_trace(settings(store, original, prefix, s3_endpoint="http://127.0.0.1:1"))
    await fetch_trace(settings(store, target, prefix, s3_endpoint=None))
    assert content_of(target) == {}


async def test_a_trace_url_wins_over_prefix_and_directory(
    store: S3Access, original: Path, prefix: str, tmp_path: Path
) -> None:
    await put(store, original, prefix)
    elsewhere = tmp_path / "elsewhere"
    url = f"s3://{store.bucket}/{prefix}/my%20run%20%231/"
    await fetch_trace(settings(store, elsewhere, "wrong", trace_url=url))
    assert (elsewhere / "traces" / "kernelslist.g").is_file()


async def test_keys_are_used_where_the_bucket_is_closed(
    store: S3Access, original: Path, prefix: str, target: Path
) -> None:
    await upload_trace(
        original,
        endpoint=store.endpoint,
        bucket=store.internal_bucket,
        prefix=prefix,
        run_name=original.name,
        meta={},
        access_key=store.access_key,
        secret_key=store.secret_key,
    )
    closed = {"s3_bucket": store.internal_bucket, "retry_for_s": 0}
    with pytest.raises(TraceDownloadError, match="CASCADE_S3_ACCESS_KEY"):
        await fetch_trace(settings(store, target, prefix, **closed))
    keys = {"s3_access_key": store.access_key, "s3_secret_key": store.secret_key}
    await fetch_trace(settings(store, target, prefix, **closed, **keys))
    assert (target / "traces" / "kernelslist.g").is_file()


async def test_a_broken_download_goes_on_where_it_stopped(
    store: S3Access, original: Path, prefix: str, target: Path
) -> None:
    await put(store, original, prefix)
    async with cut_line(store, after_bytes=100_000, times=4) as proxy:
        await fetch_trace(settings(store, target, prefix, s3_endpoint=proxy.url))
    expected = content_of(original)
    del expected["traces/kernel-2.trace"]
    assert content_of(target) == expected
    assert proxy.cuts == 4
    # 980,000 bytes of files; without going on, every cut would repeat up to 100,000 of them.
    assert proxy.passed_bytes < 980_000 + 200_000


async def test_a_part_of_another_version_is_not_used(
    store: S3Access, original: Path, prefix: str, target: Path
) -> None:
    await put(store, original, prefix)
    (target / "traces").mkdir(parents=True)
    (target / "traces" / ".kernel-2.traceg.0123456789abcdef.part").write_bytes(b"old" * 100)
    await fetch_trace(settings(store, target, prefix))
    fetched, wanted = (path / "traces" / "kernel-2.traceg" for path in (target, original))
    assert fetched.read_bytes() == wanted.read_bytes()


async def test_a_damaged_part_is_fetched_again(
    store: S3Access, original: Path, prefix: str, target: Path
) -> None:
    await put(store, original, prefix)
    wanted = (original / "traces" / "kernel-2.traceg").read_bytes()
    version = hashlib.sha256(hashlib.md5(wanted).hexdigest().encode()).hexdigest()[:16]
    (target / "traces").mkdir(parents=True)
    (target / "traces" / f".kernel-2.traceg.{version}.part").write_bytes(b"\0" * 1000)
    await fetch_trace(settings(store, target, prefix))
    assert (target / "traces" / "kernel-2.traceg").read_bytes() == wanted


async def test_a_file_that_the_list_names_and_the_bucket_lacks_is_named(
    store: S3Access, original: Path, prefix: str, target: Path
) -> None:
    with (original / "traces" / "kernelslist.g").open("a") as kernels:
        kernels.write("kernel-3.traceg\n")
    await put(store, original, prefix)
    with pytest.raises(TraceDownloadError, match=r"missing s3://.*/traces/kernel-3\.traceg in the bucket"):
        await fetch_trace(settings(store, target, prefix))
    assert not (target / "traces" / "kernelslist.g").exists()


async def test_a_list_that_points_outside_the_trace_is_refused(
    store: S3Access, original: Path, prefix: str, target: Path, tmp_path: Path
) -> None:
    (original / "traces" / "kernelslist.g").write_text("kernel/../../../../etc/passwd\n")
    await put(store, original, prefix)
    with pytest.raises(TraceDownloadError, match="no path inside the trace"):
        await fetch_trace(settings(store, target, prefix))


async def test_an_object_that_is_gone_is_missing_and_a_bucket_that_is_away_is_waited_for(
    store: S3Access, prefix: str, target: Path
) -> None:
    with pytest.raises(TraceDownloadError, match=r"missing s3://cascade/.*kernelslist\.g in the bucket"):
        await fetch_trace(settings(store, target, prefix))
    away = settings(store, target, prefix, s3_endpoint="http://127.0.0.1:1", retry_for_s=0)
    with pytest.raises(TraceDownloadError, match="cannot fetch"):
        await fetch_trace(away)


async def test_two_workers_share_one_download(
    store: S3Access, original: Path, prefix: str, target: Path
) -> None:
    await put(store, original, prefix)
    same = settings(store, target, prefix)
    await asyncio.gather(fetch_trace(same), fetch_trace(same), fetch_trace(same))
    assert (target / "traces" / "kernelslist.g").is_file()


async def test_an_object_sent_in_parts_is_checked_by_its_size(
    store: S3Access, original: Path, prefix: str, target: Path
) -> None:
    large = original / "traces" / "kernel-2.traceg"
    large.write_bytes(os.urandom(2**20) * 6)
    await put(store, original, prefix)
    async with open_store(endpoint=store.endpoint, bucket=store.bucket) as bucket:
        await bucket.put_file(
            f"{prefix}/{original.name}/traces/kernel-2.traceg",
            large,
            size_bytes=6 * 2**20,
            part_bytes=5 * 2**20,
        )
    await fetch_trace(settings(store, target, prefix))
    assert (target / "traces" / "kernel-2.traceg").read_bytes() == large.read_bytes()


async def test_the_worker_fetches_a_trace_before_it_simulates(
    store: S3Access,
    original: Path,
    prefix: str,
    target: Path,
    gateway: FakeGateway,
    *,
    start_worker: Callable[..., "Popen[str]"],
    recorded: Callable[[str], Path],
) -> None:
    await put(store, original, prefix)
    log = recorded("rtx3070-babelstream")
    worker = start_worker(
        "--replay", str(log), "--delay", "0",
        CASCADE_TRACE_DIR=str(target), CASCADE_S3_ENDPOINT=store.endpoint, CASCADE_S3_PREFIX=prefix,
    )  # fmt: skip
    assert await asyncio.to_thread(worker.wait, 60) == 0
    assert (target / "traces" / "kernel-1.traceg.xz").is_file()

    gateway.state = "launching"  # before the next one asks, which would find its sim over
    other = start_worker(
        "--replay", str(log), CASCADE_TRACE_DIR=str(target.with_name("absent")),
        CASCADE_S3_ENDPOINT=store.endpoint, CASCADE_S3_PREFIX=prefix,
    )  # fmt: skip
    assert await asyncio.to_thread(other.wait, 60) == 2
    assert f"missing s3://cascade/{prefix}/absent/traces/kernelslist.g" in str(
        gateway.heartbeats[-1]["error"]
    )


class CutLine:
    """A proxy that cuts each of the first few replies that grow too long."""

    def __init__(self, *, host: str, port: int, after_bytes: int, times: int) -> None:
        self._host, self._port = host, port
        self._after_bytes = after_bytes
        self._times = times
        self.url = ""
        self.cuts = 0
        self.passed_bytes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(self._host, self._port)
        asking = asyncio.create_task(self._pass(reader, forth))
        passed = 0
        while piece := await back.read(16_384):
            passed += len(piece)
            if passed > self._after_bytes and self.cuts < self._times:
                self.cuts += 1
                break
            self.passed_bytes += len(piece)
            writer.write(piece)
            await writer.drain()
        asking.cancel()
        for end in (writer, forth):
            end.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(16_384):
            writer.write(piece)
            await writer.drain()


@asynccontextmanager
async def cut_line(store: S3Access, *, after_bytes: int, times: int) -> AsyncIterator[CutLine]:
    host, port = store.endpoint.removeprefix("http://").split(":")
    line = CutLine(host=host, port=int(port), after_bytes=after_bytes, times=times)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield line
        server.close()
