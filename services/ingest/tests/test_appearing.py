"""Ingest over ports in memory: what appears in the bucket, and what of it is a trace."""

from pathlib import Path

import pytest
from cascade_core.testing.memory_bucket import MemoryBucket
from cascade_core.testing.memory_log import MemoryLog
from cascade_core.traces.state import TraceState
from cascade_ingest.testing import PREFIX, READY, Bench, T


async def test_an_empty_bucket_has_no_traces(bench: Bench, log: MemoryLog) -> None:
    await bench.scan(2)
    assert bench.ingest.traces == {}
    assert log.facts == []


async def test_a_trace_appears_with_its_first_file_and_grows(bench: Bench) -> None:
    await bench.put(T, {"traces/kernel-1.trace": "xxxx"})
    await bench.scan()
    assert (bench.trace(T).state, bench.trace(T).kernel_count, bench.trace(T).size_bytes) == (
        TraceState.UPLOADING,
        1,
        4,
    )
    await bench.put(T, {"traces/kernel-2.trace": "yy", "metadata.json": '{"model": "m"}'})
    await bench.scan()
    assert (bench.trace(T).kernel_count, bench.trace(T).size_bytes) == (2, 20)
    assert bench.trace(T).text("model") == "m"


async def test_objects_beside_the_traces_are_no_traces(bench: Bench, store: MemoryBucket) -> None:
    for key in (
        f"{PREFIX}/README.txt",
        f"{PREFIX}/",
        f"{PREFIX}/empty/",
        f"{PREFIX}/.hidden/x",
        "other/t/metadata.json",
    ):
        await store.put(key, b"x")
    await store.put(f"{PREFIX}/dots/.rclone_temp_put_1", b"x")
    await bench.scan(2)
    assert bench.ingest.traces == {}


async def test_a_scan_that_sees_nothing_new_writes_nothing(bench: Bench, log: MemoryLog) -> None:
    await bench.put(T, {"traces/kernel-1.trace": "x"})
    await bench.scan()
    written = len(log.facts)
    await bench.scan(5)
    assert len(log.facts) == written


async def test_half_a_metadata_file_is_no_metadata_yet(bench: Bench) -> None:
    await bench.put(T, {**READY, "metadata.json": '{"model": "m"'})
    await bench.scan(3)
    assert (bench.trace(T).state, bench.trace(T).metadata) == (TraceState.UPLOADING, None)
    await bench.put(T, {"metadata.json": '{"model": "m"}'})
    await bench.scan(2)
    assert bench.trace(T).state is TraceState.READY


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "[]",
        "null",
        "1",
        '"text"',
        "{",
        "[" * 500 + "]" * 500,
        '{"a":' * 150 + "1" + "}" * 150,
        "\x00",
    ],
    ids=lambda text: text[:10],
)
async def test_metadata_that_is_no_object_keeps_the_upload_waiting_and_others_going(
    bench: Bench, metadata: str
) -> None:
    await bench.put("a", {**READY, "metadata.json": metadata})
    await bench.put("b", READY)
    await bench.scan(3)
    assert bench.trace("a").state is TraceState.UPLOADING
    assert bench.trace("b").state is TraceState.READY


async def test_odd_but_whole_metadata_is_stored(bench: Bench, log: MemoryLog) -> None:
    odd = '{"a\\ud800": "\\udfff", "b": 1e400, "c": "\\u0000", "e": NaN, "d": ' + "[" * 60 + "]" * 60 + "}"
    await bench.put(T, {**READY, "metadata.json": odd})
    await bench.scan(2)
    assert bench.trace(T).state is TraceState.READY
    metadata = bench.trace(T).metadata
    assert metadata is not None
    assert (metadata["a\ufffd"], metadata["b"], metadata["c"]) == ("\ufffd", None, "\x00")
    assert metadata["e"] is None
    again = Bench(log, bench.bucket, Path("/nowhere"), command="")
    await again.ingest.load()
    assert again.ingest.traces == bench.ingest.traces


async def test_a_profiler_that_failed_fails_its_trace_at_once(bench: Bench) -> None:
    await bench.put(T, {"metadata.json": '{"status": "failed", "model": "m"}'})
    await bench.scan()
    assert (bench.trace(T).state, bench.trace(T).error) == (
        TraceState.FAILED,
        "profiler reported status 'failed' in metadata.json",
    )
    assert bench.trace(T).text("model") == "m"
