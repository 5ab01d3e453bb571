"""Ingest over ports in memory: what is taken out of the bucket again."""

import pytest
from cascade_core.testing.builders import at
from cascade_core.testing.memory_log import MemoryLog
from cascade_core.traces.facts import TraceDiscovered, TraceReady, TraceRemoved
from cascade_core.traces.state import TraceState
from cascade_ingest.testing import READY, Bench, T, ready


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
