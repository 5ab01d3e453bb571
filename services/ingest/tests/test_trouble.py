"""Ingest over ports in memory: a bucket and a log that fail or lose answers, and hints."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cascade_core.errors import BucketUnavailable, CascadeError, LogUnavailable, Refused
from cascade_core.facts import AnyFact
from cascade_core.ports import ObjectInfo
from cascade_core.tasks import end
from cascade_core.testing.memory_bucket import MemoryBucket
from cascade_core.testing.memory_log import MemoryLog
from cascade_core.traces.facts import TraceReady
from cascade_core.traces.state import TraceState
from cascade_ingest.postprocess import Postprocessor
from cascade_ingest.reactor import LONGEST_RETRY_WAIT_S, SETTLED_LOOKS_PER_SCAN, TROUBLE_IN_A_ROW, Ingest
from cascade_ingest.testing import PREFIX, READY, Bench, T, key_of, ready, until
from prometheus_client import REGISTRY


class Flaky(MemoryBucket):
    """A bucket that may be told to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()
        self.refused = 0
        self.error: CascadeError = BucketUnavailable("gone")

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        self._check(key)
        return await super().get(key, start=start, end=end)

    async def level(self, prefix: str) -> tuple[list[ObjectInfo], list[str]]:
        self._check(prefix)
        return await super().level(prefix)

    async def objects(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        self._check(prefix)
        async for page in super().objects(prefix):
            yield page

    def _check(self, key: str) -> None:
        if key in self.broken or "*" in self.broken:
            self.refused += 1
            raise self.error


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


async def test_any_number_of_traces_that_cannot_be_read_do_not_keep_the_others_waiting(
    log: MemoryLog, tmp_path: Path
) -> None:
    store = Flaky()
    bench = Bench(log, store, tmp_path, command="")
    for number in range(2 * TROUBLE_IN_A_ROW + 1):
        await bench.put(f"a{number}", READY)
        store.broken.add(key_of(f"a{number}", "metadata.json"))
    await bench.put("b", READY)
    await ready(bench, "c")
    assert bench.trace("b").state is TraceState.READY
    assert {*bench.ingest.traces} == {"b", "c"}
    await bench.delete("c", *READY)
    await bench.scan()
    assert bench.trace("c").removed


async def test_a_settled_trace_that_cannot_be_read_does_not_keep_the_others_waiting(
    log: MemoryLog, tmp_path: Path
) -> None:
    store = Flaky()
    bench = Bench(log, store, tmp_path, command="")
    names = [f"t{number:02}" for number in range(SETTLED_LOOKS_PER_SCAN + 2)]
    for name in names:
        await bench.put(name, READY)
    await bench.scan(2)
    for name in names[:-1]:
        store.broken.add(key_of(name, ""))
    await bench.put(names[-1], {"corrected_timeline.json": "{}", "kernel_mapping.json": "{}"})
    await bench.scan(2)
    assert bench.trace(names[-1]).has_step_timeline


async def test_a_removed_trace_that_cannot_be_listed_does_not_hide_that_others_are_gone(
    log: MemoryLog, tmp_path: Path
) -> None:
    store = Flaky()
    bench = Bench(log, store, tmp_path, command="")
    for name in ("a", "b"):
        await bench.put(name, READY)
    await bench.scan(2)
    store.broken.add(key_of("a", ""))
    for name in ("a", "b"):
        await bench.delete(name, *READY)
    await bench.scan()
    assert (bench.trace("a").removed, bench.trace("b").removed) == (False, True)


async def test_a_store_that_goes_away_during_a_scan_ends_it(log: MemoryLog, tmp_path: Path) -> None:
    store = Flaky()
    bench = Bench(log, store, tmp_path, command="")
    for number in range(10 * TROUBLE_IN_A_ROW):
        await bench.put(f"t{number}", READY)

    def is_told(_fact: AnyFact) -> None:
        store.broken.add("*")

    log.trouble = is_told
    with pytest.raises(BucketUnavailable):
        await bench.scan()
    assert store.refused == TROUBLE_IN_A_ROW + 1


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


@pytest.mark.parametrize("error", [BucketUnavailable("gone"), Refused("not this prefix")])
async def test_a_scan_that_a_store_ended_is_counted_and_followed_by_another(
    log: MemoryLog, tmp_path: Path, error: CascadeError
) -> None:
    store = Flaky()
    store.error = error
    bench = Bench(log, store, tmp_path, command="")
    await bench.put(T, READY)
    store.broken.add("*")
    before = REGISTRY.get_sample_value("cascade_scans_failed_total") or 0

    async def failed_twice() -> bool:
        return (REGISTRY.get_sample_value("cascade_scans_failed_total") or 0) >= before + 2

    async def is_ready() -> bool:
        return T in bench.ingest.traces and bench.trace(T).state is TraceState.READY

    running = asyncio.create_task(bench.ingest.run())
    await until(failed_twice)
    store.broken.clear()
    await until(is_ready)
    await end(running)


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


async def test_processing_that_never_succeeds_is_tried_again_for_ever(bench: Bench, log: MemoryLog) -> None:
    await bench.put(T, READY)
    await bench.scan()

    def refuse(fact: AnyFact) -> None:
        if isinstance(fact, TraceReady):
            raise LogUnavailable("gone")

    log.trouble = refuse
    for _ in range(1100):  # as a disk that is full over a weekend brings about
        bench.ingest._not_before.clear()
        await bench.ingest.scan()
        while bench.ingest.processing:  # noqa: ASYNC110 - a task of the bench's own ends it in a few turns
            await asyncio.sleep(0)
    assert bench.ingest._retry_waits_s[T] <= 2 * LONGEST_RETRY_WAIT_S
    log.trouble = None
    bench.ingest._not_before.clear()
    await bench.scan()
    assert bench.trace(T).state is TraceState.READY
