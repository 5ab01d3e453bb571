"""Ingest over ports in memory: what is replaced, grows, shrinks or comes late, also while a scan goes on."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cascade_core.ports import ObjectInfo
from cascade_core.testing.memory_bucket import MemoryBucket
from cascade_core.testing.memory_log import MemoryLog
from cascade_core.traces.facts import TraceObserved
from cascade_core.traces.state import TraceState
from cascade_ingest.postprocess import Postprocessor
from cascade_ingest.reactor import Ingest
from cascade_ingest.testing import PREFIX, READY, TIMING, Bench, T, key_of, ready


async def test_a_file_that_is_replaced_by_one_of_the_same_size_is_a_change(bench: Bench) -> None:
    files = {**READY, "traces/kernelslist_ctx_0x1": "k", "traces/stats_ctx_0x1": ""}
    await bench.put(T, files)
    await bench.scan()
    await bench.put(T, {"traces/kernel-1.traceg": "y"})
    await bench.scan()
    assert bench.trace(T).state is TraceState.UPLOADING
    await bench.scan()
    assert bench.trace(T).state is TraceState.READY


async def test_a_file_that_shrinks_or_goes_during_an_upload_is_a_change(bench: Bench) -> None:
    await bench.put(T, {**READY, "extra": "xx"})
    await bench.scan()
    await bench.put(T, {"extra": "x"})
    await bench.scan()
    assert bench.trace(T).state is TraceState.UPLOADING
    await bench.delete(T, "extra")
    await bench.scan()
    assert bench.trace(T).state is TraceState.UPLOADING
    await bench.scan()
    assert bench.trace(T).state is TraceState.READY


async def test_scans_that_follow_a_hint_at_once_do_not_make_an_upload_quiet(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path
) -> None:
    ingest = Ingest(
        log, store, prefix=PREFIX, postprocessor=Postprocessor("", tmp_path), scan_interval_s=3600
    )
    await store.put(key_of(T, "metadata.json"), b"{}")
    await store.put(key_of(T, "traces/kernelslist.g"), b"")
    for _ in range(3):
        await ingest.scan()
    assert ingest.traces[T].state is TraceState.UPLOADING


async def test_a_step_timeline_may_come_late(bench: Bench) -> None:
    await ready(bench)
    assert not bench.trace(T).has_step_timeline
    await bench.put(T, {"corrected_timeline.json": "{}"})
    await bench.scan()
    assert not bench.trace(T).has_step_timeline
    await bench.put(T, {"kernel_mapping.json": "{}"})
    await bench.scan()
    assert bench.trace(T).has_step_timeline
    assert (bench.trace(T).state, bench.trace(T).kernel_count) == (TraceState.READY, 1)


async def test_files_that_come_late_change_or_go_count_in_the_size(bench: Bench) -> None:
    await ready(bench)
    before = bench.trace(T).size_bytes
    await bench.scan()
    await bench.put(T, {"corrected_timeline.json": "{}" + " " * 998, "traces/late.bin": b"12345"})
    await bench.scan()
    assert bench.trace(T).size_bytes == before + 1005
    await bench.put(T, {"corrected_timeline.json": "{}"})
    await bench.scan()
    assert bench.trace(T).size_bytes == before + 7
    await bench.delete(T, "corrected_timeline.json")
    await bench.scan()
    assert bench.trace(T).size_bytes == before + 5


async def test_a_file_that_comes_as_a_trace_becomes_ready_counts_in_its_size(bench: Bench) -> None:
    await ready(bench)
    before = bench.trace(T).size_bytes
    await bench.put(T, {"kernel_mapping.json": "[]"})  # before any look at the settled trace
    await bench.scan()
    assert bench.trace(T).size_bytes == before + 2


async def test_an_upload_tells_its_documents_once_however_many_scans_see_it_grow(
    bench: Bench, log: MemoryLog
) -> None:
    files = [{"key": f"traces/kernel-{number}.trace", "bytes": 1} for number in range(1, 5)]
    await bench.put(T, {"metadata.json": json.dumps({"files": files}), "real_timing.json": TIMING})
    for number in range(1, 4):
        await bench.put(T, {f"traces/kernel-{number}.trace": "x"})
        await bench.scan()
    told = [fact for fact in log.facts if isinstance(fact, TraceObserved)]
    assert [fact.kernel_count for fact in told] == [1, 2, 3]
    assert [fact.documents_unchanged for fact in told] == [False, True, True]
    assert [(fact.metadata, fact.real_timing) for fact in told[1:]] == [(None, None)] * 2
    after_a_start = Bench(log, bench.bucket, Path("/nowhere"), command="")
    await after_a_start.ingest.load()
    assert after_a_start.trace(T) == bench.trace(T)
    assert bench.trace(T).metadata == {"files": files}
    assert bench.trace(T).has_real_timing
    await bench.put(T, {"real_timing.json": "[]"})
    await bench.scan()
    assert not bench.trace(T).has_real_timing


async def test_real_timing_is_read_in_kernel_order(bench: Bench) -> None:
    await bench.put(T, {"real_timing.json": TIMING})
    await ready(bench)
    timing = bench.trace(T).real_timing
    assert timing is not None
    assert [(row.kernel_id, row.duration_ns, row.grid, row.block) for row in timing] == [
        (1, 10.0, (2, 1, 1), (32, 1, 1)),
        (2, 20.0, (1, 1, 1), (32, 1, 1)),
    ]


async def test_real_timing_may_come_late_change_and_go(bench: Bench) -> None:
    await ready(bench)
    await bench.put(T, {"real_timing.json": TIMING})
    await bench.scan()
    assert bench.trace(T).has_real_timing
    await bench.put(T, {"real_timing.json": json.dumps([{"kernel_id": 7, "duration_ns": 1}])})
    await bench.scan()
    timing = bench.trace(T).real_timing
    assert timing is not None
    assert [row.kernel_id for row in timing] == [7]
    await bench.delete(T, "real_timing.json")
    await bench.scan()
    assert not bench.trace(T).has_real_timing


async def test_the_metadata_may_name_the_timing_file(bench: Bench) -> None:
    await bench.put(T, {"measured/h100.json": TIMING, "real_timing.json": "[]"})
    await bench.put(T, {**READY, "metadata.json": '{"real_timing": "measured/h100.json"}'})
    for _ in range(4):  # the last ones find it settled
        await bench.scan()
        timing = bench.trace(T).real_timing
        assert timing is not None
        assert len(timing) == 2
    assert bench.trace(T).state is TraceState.READY
    await bench.put(T, {"measured/h100.json": json.dumps([{"kernel_id": 7, "duration_ns": 1}])})
    await bench.scan()
    timing = bench.trace(T).real_timing
    assert timing is not None
    assert [row.kernel_id for row in timing] == [7]
    await bench.delete(T, "measured/h100.json")
    await bench.scan()
    assert not bench.trace(T).has_real_timing


@pytest.mark.parametrize(
    "named", ['"missing.json"', '"../other/real_timing.json"', '"a/"', "3", "null", '""']
)
async def test_a_timing_file_that_is_not_there_is_passed_over(bench: Bench, named: str) -> None:
    await bench.put(T, {**READY, "metadata.json": f'{{"real_timing": {named}}}', "real_timing.json": TIMING})
    await bench.put("other", {"real_timing.json": "[]"})
    for _ in range(4):
        await bench.scan()
        assert bench.trace(T).has_real_timing


@pytest.mark.parametrize(
    "timing",
    [
        "",
        "{}",
        "[]",
        "[1]",
        '[{"kernel_id": "1"}]',
        '[{"kernel_id": true}]',
        '[{"kernel_id": 1.5}]',
        "[{}]",
        "[NaN]",
        "[",
    ],
)
async def test_what_is_no_timing_is_none(bench: Bench, timing: str) -> None:
    await bench.put(T, {"real_timing.json": timing})
    await ready(bench)
    assert not bench.trace(T).has_real_timing


class Shifting(MemoryBucket):
    """A bucket that changes while it is listed: after each page, and before each read, the next change is made."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[str, bytes | None]] = []

    async def objects(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        async for page in super().objects(prefix):
            yield page
            await self._change()

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        await self._change()
        return await super().get(key, start=start, end=end)

    async def _change(self) -> None:
        if self.changes:
            key, body = self.changes.pop(0)
            await (self.delete([key]) if body is None else self.put(key, body))


@pytest.mark.parametrize(
    "changes",
    [
        [("metadata.json", None)],
        [("metadata.json", b'{"model": "other"')],
        [("metadata.json", None), ("metadata.json", b'{"model": "m2"}')],
        [("traces/kernelslist.g", None), ("real_timing.json", b"[")],
        [("traces/kernel-2.traceg", b"late"), ("metadata.json", None)],
        [("real_timing.json", None), ("traces/kernelslist.g", None), ("metadata.json", None)],
    ],
)
async def test_a_bucket_that_changes_during_a_scan_is_seen_right_in_the_end(
    log: MemoryLog, tmp_path: Path, changes: list[tuple[str, bytes | None]]
) -> None:
    store = Shifting()
    bench = Bench(log, store, tmp_path, command="")
    await bench.put(T, {**READY, "real_timing.json": TIMING})
    store.changes = [(key_of(T, path), body) for path, body in changes]
    await bench.scan()
    assert bench.trace(T).state is TraceState.UPLOADING
    await bench.scan(2)
    await bench.put(T, READY)
    await bench.scan(3)
    assert (bench.trace(T).state, bench.trace(T).text("model")) == (TraceState.READY, "m")
