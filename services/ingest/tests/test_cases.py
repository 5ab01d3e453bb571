"""The uploads and trace directories that broke others, scan by scan, on a real NATS server and a real S3 store.

`cases/` holds our own copies: each has the bucket's contents scan by scan, and what must hold after each.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_cli.embedded.s3_requests import S3Access
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.s3.bucket import S3Bucket, opened
from cascade_core.settings import BucketSettings, NatsSettings
from cascade_core.traces.state import Trace
from cascade_ingest.testing import PREFIX, Bench, key_of
from pydantic import SecretStr

CASES = Path(__file__).parent / "cases"
Case = dict[str, Any]


def cases(kind: str) -> list[str]:
    folders = sorted(CASES.iterdir())
    return [folder.name for folder in folders if read(folder.name)["kind"] == kind]


def read(name: str) -> Case:
    case: Case = json.loads((CASES / name / "case.json").read_text("utf-8"))
    return case


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
async def nats_log(fresh_nats: EmbeddedNats) -> AsyncIterator[JetStreamLog]:
    async with connected(NatsSettings(nats_url=fresh_nats.url), name="test") as client:
        await provision(client)
        yield JetStreamLog(client)


@pytest.mark.timeout(600)  # the upload of a thousand files took 33 s on two busy cores
@pytest.mark.parametrize("name", cases("upload_scans"))
async def test_an_upload_goes_scan_by_scan_as_the_case_says(
    name: str, s3: S3Bucket, nats_log: JetStreamLog, tmp_path: Path, stand_in: Callable[..., str]
) -> None:
    case, folder = read(name), CASES / name
    given = case["input"].get("postprocess_output")
    command = stand_in("given", str(folder / given)) if given else stand_in("ok")
    bench = Bench(nats_log, s3, tmp_path, command=command)
    seen: list[str] = []
    before: dict[str, bytes] = {}
    for objects, expected in zip(case["input"]["scans"], case["expect"]["after_scan"], strict=True):
        contents = contents_of(objects["objects"], folder)
        await fill(s3, before, contents)
        before = contents
        await bench.scan()
        seen += [trace.state.value for trace in bench.ingest.traces.values()]
        for trace_id, fields in expected.items():
            check(bench.ingest.traces.get(trace_id), fields)
    expect = case["expect"]
    assert expect.get("never") not in seen
    for trace_id, state in expect.get("finally", {}).items():
        assert bench.trace(trace_id).state.value == state
    if "trace_ids" in expect:
        assert sorted(bench.ingest.traces) == expect["trace_ids"]
    check_when_ready(bench, expect)
    if "processed_content" in expect:
        processed = await s3.get(f"{PREFIX}/again/traces/kernel-1.traceg")
        assert processed == b"processed " + (folder / expect["processed_content"]).read_bytes()
    # Another ingest that starts here knows the same from the log alone.
    again = Bench(nats_log, s3, tmp_path, command=command)
    await again.ingest.load()
    assert again.ingest.traces == bench.ingest.traces


def check_when_ready(bench: Bench, expect: Case) -> None:
    ready = [trace for trace in bench.ingest.traces.values() if trace.state.value == "ready"]
    if "kernels_when_ready" in expect:
        check(ready[0], {"kernels": expect["kernels_when_ready"]})
    if "kernels_when_ready_count" in expect:
        assert len(ready[0].kernels) == expect["kernels_when_ready_count"]
        assert ready[0].kernels[-1].kernel_id == expect["kernels_when_ready_last_id"]
    if "when_ready" in expect:
        assert ready[0].kernel_count == expect["when_ready"]["kernel_count"]
        found = [(row.kernel_id, row.name, row.instructions) for row in ready[0].kernels]
        wanted = [
            (row["kernel_id"], row["name"], row["instructions"]) for row in expect["when_ready"]["kernels"]
        ]
        assert [row[0] for row in found] == [row[0] for row in wanted]
        assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("name", cases("trace_dir"))
async def test_a_trace_directory_is_read_as_the_case_says(
    name: str, s3: S3Bucket, nats_log: JetStreamLog, tmp_path: Path, stand_in: Callable[..., str]
) -> None:
    case, folder = read(name), CASES / name / read(name)["input"]["dir"]
    bench = Bench(nats_log, s3, tmp_path, command=stand_in("fail"))
    for path in files_below(folder):
        await s3.put(key_of("t", path.relative_to(folder).as_posix()), path.read_bytes())
    await bench.scan(3)
    check(bench.trace("t"), case["expect"])


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def contents_of(objects: list[Case], folder: Path) -> dict[str, bytes]:
    """The whole bucket, as one scan of a case describes it."""
    contents: dict[str, bytes] = {}
    for one in objects:
        numbers = range(1, one.get("count", 0) + 1)
        if "generate" in one:
            contents |= {one["generate"].replace("{i}", str(i)): b"x" * one["size"] for i in numbers}
        elif "generate_lines" in one:
            head = (folder / one["file_head"]).read_text("utf-8") if "file_head" in one else ""
            lines = [one["generate_lines"].replace("{i}", str(i)) for i in numbers]
            contents[one["key"]] = (head + "\n".join(lines) + "\n").encode()
        elif "file" in one:
            contents[one["key"]] = (folder / one["file"]).read_bytes()
        else:
            contents[one["key"]] = b"x" * one["size"]
    return contents


async def fill(s3: S3Bucket, before: dict[str, bytes], contents: dict[str, bytes]) -> None:
    """Make the bucket match, apart from what the post-processor has put there."""
    gate = asyncio.Semaphore(16)

    async def put(key: str, body: bytes) -> None:
        async with gate:
            await s3.put(key, body)

    await s3.delete(sorted(set(before) - set(contents)))
    await asyncio.gather(*(put(key, body) for key, body in contents.items() if before.get(key) != body))


def check(trace: Trace | None, expected: Case | str) -> None:
    """Compare a trace with what a case says of it."""
    if isinstance(expected, str):
        assert expected == "absent"
        assert trace is None
        return
    assert trace is not None
    for key, value in expected.items():
        match key:
            case "state":
                assert trace.state.value == value
            case "state_in":
                assert trace.state.value in value
            case "kernel_count":
                assert trace.kernel_count == value
            case "bytes":
                assert trace.size_bytes == value
            case "metadata":
                assert trace.metadata == value
            case "kernels":
                rows = [row.model_dump(mode="json") for row in trace.kernels]
                assert [
                    {name: row[name] for name in one} for row, one in zip(rows, value, strict=True)
                ] == value
            case _:
                raise AssertionError(f"this case speaks of {key}, which no check reads")
