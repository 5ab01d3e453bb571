"""The post-processor as a child process: what it gets, what goes up, how its failures read."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from cascade_core.errors import BucketUnavailable
from cascade_core.tasks import ASK_AGAIN_S, end
from cascade_core.testing.memory_bucket import MemoryBucket
from cascade_core.testing.memory_log import MemoryLog
from cascade_core.traces.state import Trace, TraceState
from cascade_ingest import postprocess
from cascade_ingest.testing import Bench, key_of, until

T = "20261107-120000__demo__model.layers.0"
RAW = {
    "metadata.json": "{}",
    "traces/kernel-1.trace": "one",
    "traces/kernel-2.trace.xz": "two",
    "traces/kernel-10.trace": "ten",
    "traces/kernelslist_ctx_0x1": "kernel-1.trace\n",
    "traces/stats_ctx_0x1": "",
    "other/big.bin": "not of the traces",
}

Command = Callable[..., str]


async def processed(log: MemoryLog, store: MemoryBucket, work: Path, command: str) -> Trace:
    bench = Bench(log, store, work, command=command)
    await bench.put(T, RAW)
    await bench.scan(2)
    return bench.trace(T)


async def test_raw_traces_become_processed_ones_next_to_them(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path, stand_in: Command
) -> None:
    trace = await processed(log, store, tmp_path, stand_in("ok"))
    assert (trace.state, trace.kernel_count) == (TraceState.READY, 3)
    assert (
        await store.get(key_of(T, "traces/kernelslist.g"))
        == b"kernel-1.traceg\nkernel-2.traceg\nkernel-10.traceg\n"
    )
    assert await store.get(key_of(T, "traces/kernel-2.traceg")) == b"processed two"
    assert await store.get(key_of(T, "traces/kernel-1.trace")) == b"one"
    listed = [entry async for page in store.objects("") for entry in page]
    assert trace.size_bytes == sum(entry.size for entry in listed)
    assert store.read[key_of(T, "other/big.bin")] == 0


async def test_its_output_is_kept_and_its_copy_is_not(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path, stand_in: Command
) -> None:
    await processed(log, store, tmp_path, stand_in("ok"))
    output = (tmp_path / "postprocess" / f"{T}.log").read_text("utf-8")
    assert output.count("Processing file") == 3
    assert list((tmp_path / "scratch").iterdir()) == []


async def test_a_failure_gives_the_exit_code_and_the_last_five_lines(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path, stand_in: Command
) -> None:
    trace = await processed(log, store, tmp_path, stand_in("fail"))
    assert trace.state is TraceState.FAILED
    assert trace.error == "post-processing exited 3\nline 5\nline 6\nline 7\nline 8\nline 9"
    assert await store.head(key_of(T, "traces/kernelslist.g")) is None
    assert list((tmp_path / "scratch").iterdir()) == []


async def test_success_without_a_list_is_a_failure(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path, stand_in: Command
) -> None:
    trace = await processed(log, store, tmp_path, stand_in("nothing"))
    assert trace.state is TraceState.FAILED
    assert trace.error is not None
    assert trace.error.startswith("post-processing succeeded but left no traces/kernelslist.g")


async def test_a_killed_post_processor_is_a_failure(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path, stand_in: Command
) -> None:
    trace = await processed(log, store, tmp_path, stand_in("killed"))
    assert trace.error is not None
    assert trace.error.startswith("post-processing exited -9")


@pytest.mark.parametrize("command", ["/no/such/post-processor --fast", "", "unbalanced 'quote"])
async def test_a_post_processor_that_is_not_there_is_named(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path, command: str
) -> None:
    trace = await processed(log, store, tmp_path, command)
    assert trace.state is TraceState.FAILED
    assert trace.error is not None
    assert trace.error.startswith("post-processor not found: ")
    assert "CASCADE_POSTPROCESS_CMD" in trace.error
    assert store.read[key_of(T, "traces/kernel-1.trace")] == 0


async def test_a_file_that_no_program_can_be_made_of_is_named(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path
) -> None:
    program = tmp_path / "post"
    program.write_bytes(b"\x7fELF not really")
    program.chmod(0o755)
    trace = await processed(log, store, tmp_path, str(program))
    assert trace.error is not None
    assert trace.error.startswith("post-processor could not start: ")


async def test_an_upload_that_is_processed_already_needs_no_post_processor(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path
) -> None:
    bench = Bench(log, store, tmp_path, command="/no/such/post-processor")
    await bench.put(T, {**RAW, "traces/kernelslist.g": "MemcpyHtoD,0x1,4\nkernel-1.traceg\n"})
    await bench.scan(2)
    assert (bench.trace(T).state, bench.trace(T).kernel_count) == (TraceState.READY, 1)


@pytest.mark.parametrize("name", ["n" * 256, "é" * 128, "a\x00b"])
async def test_a_name_that_no_disk_takes_fails_the_trace_in_words(bench: Bench, name: str) -> None:
    await bench.put(T, {**RAW, f"traces/{name}": "x"})
    await bench.scan(2)
    assert bench.trace(T).state is TraceState.FAILED
    assert "cannot be put on a disk" in (bench.trace(T).error or "")


@pytest.mark.parametrize(
    "name", ["a b", "a'b\"c", "$(x)", "-rf", "a;b", "kernel-3.trace;x", "\u2028", "a\nb"]
)
async def test_a_hostile_name_is_a_file_like_any_other(bench: Bench, name: str) -> None:
    await bench.put(T, {**RAW, f"traces/{name}": "x"})
    await bench.scan(2)
    assert bench.trace(T).state is TraceState.READY


async def test_a_hostile_trace_id_stays_in_its_place(bench: Bench, tmp_path: Path) -> None:
    hostile = ["a b", "a*b", "a>b", "..b", "caf\u00e9", "x" * 200, "a;b$(c)", "a..b", "%2e%2e"]
    visible = [one for one in hostile if not one.startswith(".")]
    for trace_id in hostile:
        await bench.put(trace_id, RAW)
    await bench.scan(2)
    assert sorted(bench.ingest.traces) == sorted(visible)
    assert {trace.state for trace in bench.ingest.traces.values()} == {TraceState.READY}
    assert len(list((tmp_path / "postprocess").iterdir())) == len(visible)


async def test_a_full_disk_or_a_lost_store_is_tried_again(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path, stand_in: Command
) -> None:
    blocked = tmp_path / "scratch"
    blocked.write_text("in the way")
    bench = Bench(log, store, tmp_path, command=stand_in("ok"))
    await bench.put(T, RAW)
    await bench.scan(4)
    assert bench.trace(T).state is TraceState.PROCESSING
    blocked.unlink()
    await until(lambda: is_ready(bench))


async def test_a_download_that_breaks_off_leaves_nothing_that_was_never_awaited(
    log: MemoryLog, tmp_path: Path, stand_in: Command, recwarn: pytest.WarningsRecorder
) -> None:
    class Broken(MemoryBucket):
        async def stream(self, key: str, *, start: int = 0, chunk: int = 1 << 18) -> AsyncIterator[bytes]:
            async for piece in super().stream(key, start=start, chunk=chunk):
                yield piece
            raise BucketUnavailable("broke off")

    gc.collect()
    recwarn.clear()  # of what tests before this one left behind
    bench = Bench(log, Broken(), tmp_path, command=stand_in("ok"))
    await bench.put(T, {**RAW, **{f"traces/kernel-{number}.trace": "x" for number in range(20, 40)}})
    await bench.scan(2)
    gc.collect()
    assert [str(one.message) for one in recwarn if "never awaited" in str(one.message)] == []
    assert bench.trace(T).state is TraceState.PROCESSING


async def is_ready(bench: Bench) -> bool:
    await bench.scan()
    return bench.trace(T).state is TraceState.READY


async def test_a_stopped_ingest_leaves_no_post_processor_and_the_next_one_begins_anew(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path, stand_in: Command
) -> None:
    go_on = tmp_path / "go on"
    command = stand_in("wait", str(go_on))
    bench = Bench(log, store, tmp_path, command=command)
    await bench.put(T, RAW)
    running = asyncio.create_task(bench.ingest.run())
    output = tmp_path / "postprocess" / f"{T}.log"
    await until(lambda: exists(output))
    await end(running)
    assert str(go_on) not in "".join(command_lines())
    assert list((tmp_path / "scratch").iterdir()) == []
    go_on.touch()
    again = Bench(log, store, tmp_path, command=command)
    await again.ingest.load()
    assert again.trace(T).state is TraceState.PROCESSING
    await again.scan()
    assert again.trace(T).state is TraceState.READY


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grace that is short, and in which whoever ends the process still asks again."""
    monkeypatch.setattr(postprocess, "TERMINATE_GRACE_S", 2 * ASK_AGAIN_S)


@pytest.mark.parametrize("mode", ["deaf", "orphan"])
@pytest.mark.usefixtures("short_grace")
async def test_a_post_processor_that_is_deaf_to_sigterm_ends_before_its_copy_is_removed(
    log: MemoryLog, store: MemoryBucket, tmp_path: Path, stand_in: Command, mode: str
) -> None:
    go_on = tmp_path / "go on"
    bench = Bench(log, store, tmp_path, command=stand_in(mode, str(go_on)))
    await bench.put(T, RAW)
    running = asyncio.create_task(bench.ingest.run())
    output = tmp_path / "postprocess" / f"{T}.log"
    await until(lambda: says(output, "waits"))
    await end(running)
    await until(lambda: none_runs_with(str(go_on)))
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
def test_a_post_processor_whose_ingest_was_killed_before_it_began_does_not_begin() -> None:
    begin = "import sys; from cascade_ingest.postprocess import die_with; die_with(int(sys.argv[1])); print('begun')"
    for parent, code, said in ((os.getpid(), 0, "begun\n"), (os.getppid(), -signal.SIGKILL, "")):
        child = subprocess.run(
            [sys.executable, "-c", begin, str(parent)], stdout=subprocess.PIPE, text=True, check=False
        )
        assert (child.returncode, child.stdout) == (code, said)


async def none_runs_with(argument: str) -> bool:
    return argument not in "".join(await asyncio.to_thread(command_lines))


async def says(path: Path, text: str) -> bool:
    return await exists(path) and text in await asyncio.to_thread(path.read_text, "utf-8")


async def exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


def command_lines() -> list[str]:
    """Of every process that runs now."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(entry.read_text("utf-8", "replace"))
    return found
