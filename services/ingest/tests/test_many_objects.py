"""Ingest over ports in memory: how little of many objects and many traces is read again."""

from pathlib import Path

from cascade_core.testing.memory_bucket import MemoryBucket
from cascade_core.testing.memory_log import MemoryLog
from cascade_core.traces.facts import TraceObserved
from cascade_core.traces.state import TraceState
from cascade_ingest.testing import READY, Bench, T, key_of


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
