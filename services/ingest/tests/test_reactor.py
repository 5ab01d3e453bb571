"""Ingest over ports in memory: what appears, changes, disappears, goes wrong, and how little is read again."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cascade_core.errors import BucketUnavailable, LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.ports import ObjectInfo
from cascade_core.tasks import end
from cascade_core.testing.builders import at
from cascade_core.testing.memory_bucket import MemoryBucket
from cascade_core.testing.memory_log import MemoryLog
from cascade_core.traces.facts import TraceDiscovered, TraceObserved, TraceReady, TraceRemoved
from cascade_core.traces.state import TraceState
from cascade_ingest.postprocess import Postprocessor
from cascade_ingest.reactor import Ingest
from cascade_ingest.testing import PREFIX, Bench, key_of, until

T = "t"
READY = {
    "metadata.json": json.dumps({"model": "m", "layers": ["a"], "gpu": "H100"}),
    "traces/kernelslist.g": "kernel-1.traceg\n",
    "traces/kernel-1.traceg": "x",
}
TIMING = json.dumps(
    [
        {"kernel_id": 2, "kernel_name": "b", "duration_ns": 20.0, "grid": [1, 1, 1], "block": [32, 1, 1]},
        {"kernel_id": 1, "kernel_name": "a", "duration_ns": 10, "grid": "2x1x1", "block": "(32, 1, 1)"},
    ]
)


async def ready(bench: Bench, trace_id: str = T) -> None:
    await bench.put(trace_id, READY)
    await bench.scan(2)
    assert bench.trace(trace_id).state is TraceState.READY


# ---- appearing


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
        '{"a": NaN}',
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
    odd = '{"a\\ud800": "\\udfff", "b": 1e400, "c": "\\u0000", "d": ' + "[" * 60 + "]" * 60 + "}"
    await bench.put(T, {**READY, "metadata.json": odd})
    await bench.scan(2)
    assert bench.trace(T).state is TraceState.READY
    metadata = bench.trace(T).metadata
    assert metadata is not None
    assert (metadata["a\ufffd"], metadata["b"], metadata["c"]) == ("\ufffd", None, "\x00")
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


# ---- changing


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
    await bench.scan(2)
    timing = bench.trace(T).real_timing
    assert timing is not None
    assert len(timing) == 2


@pytest.mark.parametrize("named", ['"missing.json"', '"../other/real_timing.json"', "3", "null", '""'])
async def test_a_timing_file_that_is_not_there_is_passed_over(bench: Bench, named: str) -> None:
    await bench.put(T, {**READY, "metadata.json": f'{{"real_timing": {named}}}', "real_timing.json": TIMING})
    await bench.scan(2)
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


# ---- disappearing


async def test_a_trace_that_is_deleted_is_removed_and_may_come_back(bench: Bench, log: MemoryLog) -> None:
    await ready(bench)
    await bench.delete(T, *READY)
    await bench.scan(2)
    assert bench.trace(T).removed
    assert sum(1 for fact in log.facts if isinstance(fact, TraceRemoved)) == 1
    await bench.put(T, {"traces/kernel-1.trace": "x"})
    await bench.scan()
    assert (bench.trace(T).removed, bench.trace(T).state) == (False, TraceState.UPLOADING)


@pytest.mark.parametrize("state", ["uploading", "ready"])
@pytest.mark.parametrize("left", ["", "traces/", ".rclone_temp_put_1", "traces/.part"])
async def test_a_trace_of_which_only_markers_are_left_is_removed(bench: Bench, state: str, left: str) -> None:
    files = READY if state == "ready" else {"traces/kernel-1.trace": "x"}
    await bench.put(T, {**files, left: "x"})
    await bench.scan(2)
    assert bench.trace(T).state.value == state
    await bench.delete(T, *files)
    await bench.scan(2)
    assert bench.trace(T).removed


async def test_a_ready_trace_that_loses_some_files_stays(bench: Bench) -> None:
    await ready(bench)
    await bench.delete(T, "metadata.json", "traces/kernel-1.traceg")
    await bench.scan(2)
    assert (bench.trace(T).state, bench.trace(T).removed, bench.trace(T).text("model")) == (
        TraceState.READY,
        False,
        "m",
    )


async def test_samples_are_left_alone(bench: Bench, log: MemoryLog) -> None:
    await log.append(TraceDiscovered(trace_id="sample__x", occurred_at=at(0), sample=True))
    await log.append(TraceReady(trace_id="sample__x", occurred_at=at(0), kernel_count=2, size_bytes=3))
    await bench.ingest.load()
    await bench.put("sample__x", {"metadata.json": '{"status": "failed"}'})
    await bench.scan(3)
    assert (bench.trace("sample__x").state, bench.trace("sample__x").removed) == (TraceState.READY, False)


# ---- trouble


class Flaky(MemoryBucket):
    """A bucket that may be told to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        if key in self.broken or "*" in self.broken:
            raise BucketUnavailable("403")
        return await super().get(key, start=start, end=end)

    async def level(self, prefix: str) -> tuple[list[ObjectInfo], list[str]]:
        if "*" in self.broken:
            raise BucketUnavailable("gone")
        return await super().level(prefix)


async def test_one_trace_that_cannot_be_read_does_not_keep_the_others_waiting(
    log: MemoryLog, tmp_path: Path
) -> None:
    store = Flaky()
    bench = Bench(log, store, tmp_path, command="")
    store.broken.add(key_of("a", "metadata.json"))
    for trace_id in ("a", "b", "c"):
        await bench.put(trace_id, READY)
    await bench.scan(2)
    assert "a" not in bench.ingest.traces
    assert {bench.trace(one).state for one in ("b", "c")} == {TraceState.READY}
    store.broken.clear()
    await bench.scan(2)
    assert bench.trace("a").state is TraceState.READY


async def test_a_store_that_is_gone_ends_the_scan_and_loses_nothing(log: MemoryLog, tmp_path: Path) -> None:
    store = Flaky()
    bench = Bench(log, store, tmp_path, command="")
    await ready(bench)
    store.broken.add("*")
    with pytest.raises(BucketUnavailable):
        await bench.scan()
    store.broken.clear()
    await bench.scan()
    assert not bench.trace(T).removed


async def test_a_log_that_is_gone_ends_the_scan_and_the_next_one_says_it_all(
    bench: Bench, log: MemoryLog
) -> None:
    await bench.put(T, READY)

    def refuse(fact: AnyFact) -> None:
        raise LogUnavailable("gone")

    log.trouble = refuse
    for _ in range(2):
        with pytest.raises(LogUnavailable):
            await bench.scan()
    assert bench.ingest.traces == {}
    log.trouble = None
    await bench.scan(2)
    assert bench.trace(T).state is TraceState.READY


async def test_a_ready_fact_that_was_not_stored_is_told_again(bench: Bench, log: MemoryLog) -> None:
    await bench.put(T, READY)

    def refuse(fact: AnyFact) -> None:
        if isinstance(fact, TraceReady):
            raise LogUnavailable("gone")

    log.trouble = refuse
    await bench.scan(3)
    assert bench.trace(T).state is TraceState.PROCESSING
    log.trouble = None
    await until(lambda: becomes_ready(bench))


async def becomes_ready(bench: Bench) -> bool:
    await bench.scan()
    return bench.trace(T).state is TraceState.READY


async def test_answers_that_get_lost_change_nothing_in_the_end(bench: Bench, log: MemoryLog) -> None:
    await bench.put(T, READY)
    for _ in range(6):
        log.lose_acks = 1
        try:
            await bench.scan()
        except LogUnavailable:
            continue
    log.lose_acks = 0
    await until(lambda: becomes_ready(bench))
    again = Bench(log, bench.bucket, Path("/nowhere"), command="")
    await again.ingest.load()
    assert again.trace(T).state is TraceState.READY


async def test_a_hint_brings_the_next_scan_at_once(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path
) -> None:
    ingest = Ingest(
        log, store, prefix=PREFIX, postprocessor=Postprocessor("", tmp_path), scan_interval_s=3600
    )
    running = asyncio.create_task(ingest.run())

    async def scanned(times: int) -> bool:
        return store.calls["level"] >= times

    await until(lambda: scanned(1))
    await store.put(key_of(T, "traces/kernel-1.trace"), b"x")
    for _ in range(1000):
        ingest.hint.set()

    async def seen() -> bool:
        return T in ingest.traces

    await until(seen)
    scans = store.calls["level"]
    assert scans <= 4
    await end(running)


# ---- many


async def test_a_hundred_thousand_objects_are_listed_and_not_read(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path
) -> None:
    kernels = 100_000
    bench = Bench(log, store, tmp_path, command="")
    names = [f"kernel-{i}.traceg" for i in range(1, kernels + 1)]
    store.fill({key_of(T, f"traces/{name}"): b"x" for name in names})
    await bench.put(
        T, {**READY, "traces/kernelslist.g": "\n".join(names) + "\n", "traces/kernel-1.traceg": "x"}
    )
    await bench.scan(2)
    assert (bench.trace(T).state, bench.trace(T).kernel_count) == (TraceState.READY, kernels)
    assert sum(store.read.values()) <= 3
    assert store.read[key_of(T, "metadata.json")] == 1
    store.calls.clear()
    await bench.scan(10)
    # A settled trace costs a look at its top folder: no listing of what is in it, no file.
    assert store.calls == {"level": 20}


async def test_many_settled_traces_are_looked_at_in_turn(
    bench: Bench, store: MemoryBucket, log: MemoryLog
) -> None:
    for number in range(60):
        await bench.put(f"t{number:02}", READY)
    await bench.scan(2)
    assert all(trace.state is TraceState.READY for trace in bench.ingest.traces.values())
    await bench.put("t59", {"corrected_timeline.json": "{}", "kernel_mapping.json": "{}"})
    store.calls.clear()
    await bench.scan(3)
    assert bench.trace("t59").has_step_timeline
    assert store.calls["level"] == 3 * 26
    assert sum(1 for fact in log.facts if isinstance(fact, TraceObserved)) == 61


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
