import asyncio
import errno
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cascade_core.runs.state import Run
from cascade_core.s3.bucket import S3Bucket
from cascade_launcher.backends import local, processes
from cascade_launcher.backends.local import LocalBackend, LocalOptions
from cascade_launcher.backends.protocol import (
    BackendUnavailable,
    Ended,
    Gone,
    Launch,
    LaunchError,
    Running,
    Vital,
)
from cascade_launcher.backends.records import Intent, ProcessRecord, Records
from cascade_launcher.testing import (
    DEADLINE_S,
    PREFIX,
    TRACE_ID,
    Simulator,
    eventually,
    is_alive,
    processes_with,
    some_attempt,
)

LAUNCH = Launch(
    sim_id="sim-6b4c91e71437",
    run_id="run-9f56e171af08",
    trace_id=TRACE_ID,
    gpu_config="SM90_H100",
    replica=0,
    attempt=some_attempt(),
)
RUN = Run(
    run_id=LAUNCH.run_id,
    trace_id=TRACE_ID,
    created_at=datetime(2026, 11, 7, tzinfo=UTC),
    entries=(),
    kernels_total=1,
)
Make = Callable[[str | None], LocalBackend]


@pytest.fixture
async def make(stored_trace: S3Bucket, tmp_path: Path) -> AsyncIterator[Make]:
    """Backends of one data directory, as launchers that follow one another; their sims end with the test."""
    data_dir = tmp_path / "data"

    def build(sim_cmd: str | None) -> LocalBackend:
        options = LocalOptions(
            sim_cmd=sim_cmd,
            main_url="http://127.0.0.1:8000",
            token="tok",
            data_dir=data_dir,
            accelsim_dir=Path("/opt/accel-sim"),
            bucket_name=stored_trace.name,
            prefix=PREFIX,
        )
        environ = {**os.environ, "CASCADE_DATABASE_URL": "postgresql://u:p@h/d", "CASCADE_S3_SECRET_KEY": "s"}
        return LocalBackend(options, stored_trace, environ)

    yield build
    await local.stop_all(data_dir)


async def ended(backend: LocalBackend, sim_id: str = LAUNCH.sim_id) -> Ended:
    loop = asyncio.get_running_loop()
    end = loop.time() + DEADLINE_S
    while True:
        vital: Vital = await backend.alive(sim_id)
        if isinstance(vital, Ended):
            return vital
        assert loop.time() < end, vital
        await asyncio.sleep(0.02)


async def test_prepare_puts_the_trace_where_every_simulator_looks(make: Make, simulator: Simulator) -> None:
    backend = make(simulator.command("wait"))
    await backend.prepare(RUN)
    await backend.start(LAUNCH)
    await eventually(lambda: simulator.is_up(LAUNCH.sim_id))
    env = json.loads(simulator.starts(LAUNCH.sim_id)[0])["env"]
    assert (Path(env["CASCADE_TRACE_DIR"]) / "traces/kernelslist.g").read_text() == "kernel-1.traceg\n"
    assert env["CASCADE_SIM_ID"] == LAUNCH.sim_id
    assert env["CASCADE_ATTEMPT"] == LAUNCH.attempt
    assert env["CASCADE_TOKEN"] == "tok"
    assert not {name for name in env if name.startswith("CASCADE_") and ("S3" in name or "DATABASE" in name)}


async def test_a_trace_with_a_very_long_id_is_prepared(make: Make, traces: S3Bucket, tmp_path: Path) -> None:
    run = replace(RUN, trace_id="t" * 250)
    await traces.put(f"{PREFIX}/{run.trace_id}/traces/kernelslist.g", b"kernel-1.traceg\n")
    backend = make("true")
    backend._bucket = traces
    await backend.prepare(run)
    (list_file,) = (tmp_path / "data/s3").rglob("kernelslist.g")
    assert list_file.read_text() == "kernel-1.traceg\n"


async def test_the_ref_is_the_process_id_and_output_is_kept(
    make: Make, simulator: Simulator, tmp_path: Path
) -> None:
    backend = make(simulator.command("wait"))
    ref = await backend.start(LAUNCH)
    await eventually(lambda: simulator.is_up(LAUNCH.sim_id))
    assert json.loads(simulator.starts(LAUNCH.sim_id)[0])["pid"] == int(ref)
    assert os.getpgid(int(ref)) == int(ref)
    assert (tmp_path / f"data/work/sims/{LAUNCH.sim_id}.out").read_text() == "hello from the simulator\n"


async def test_the_command_is_split_into_arguments_without_a_shell(make: Make, tmp_path: Path) -> None:
    script = "import sys; open(sys.argv[1], 'w').write(repr(sys.argv[2:]))"
    out = tmp_path / "arguments"
    backend = make(f"{sys.executable} -c {shlex.quote(script)} {out} '$HOME' \"a b\" ; true")
    await backend.start(LAUNCH)
    await ended(backend)
    assert out.read_text() == "['$HOME', 'a b', ';', 'true']"


async def test_starting_twice_starts_once(make: Make, simulator: Simulator) -> None:
    backend = make(simulator.command("wait"))
    ref = await backend.start(LAUNCH)
    assert await backend.start(LAUNCH) == ref
    await eventually(lambda: simulator.is_up(LAUNCH.sim_id))
    assert len(simulator.starts(LAUNCH.sim_id)) == 1


async def test_the_next_launcher_finds_the_sim_instead_of_starting_it_again(
    make: Make, simulator: Simulator
) -> None:
    ref = await make(simulator.command("wait")).start(LAUNCH)
    await eventually(lambda: simulator.is_up(LAUNCH.sim_id))
    following = make(simulator.command("wait"))
    assert await following.census() == {LAUNCH.sim_id: Running()}
    assert await following.start(LAUNCH) == ref
    assert len(simulator.starts(LAUNCH.sim_id)) == 1


async def started_but_not_written_down(make: Make, simulator: Simulator, data_dir: Path) -> str:
    """As by a launcher that was killed between fork and record; the process id."""
    ref = await make(simulator.command("wait")).start(LAUNCH)
    await eventually(lambda: simulator.is_up(LAUNCH.sim_id))
    (data_dir / f"work/sims/{LAUNCH.sim_id}.pid").unlink()
    return ref


async def test_a_sim_that_was_started_but_never_written_down_is_found_by_its_lock(
    make: Make, simulator: Simulator, tmp_path: Path
) -> None:
    ref = await started_but_not_written_down(make, simulator, tmp_path / "data")
    following = make(simulator.command("wait"))
    assert await following.census() == {LAUNCH.sim_id: Running()}
    assert await following.start(LAUNCH) == ref
    assert len(simulator.starts(LAUNCH.sim_id)) == 1
    os.kill(int(ref), signal.SIGKILL)
    assert isinstance(await ended(make(None)), Ended)  # by now it is written down


async def test_a_sim_that_was_never_written_down_can_be_stopped(
    make: Make, simulator: Simulator, tmp_path: Path
) -> None:
    ref = await started_but_not_written_down(make, simulator, tmp_path / "data")
    await make(None).stop(LAUNCH.sim_id)
    assert not is_alive(int(ref))
    assert await make(None).census() == {}


async def test_stop_all_ends_a_sim_that_was_never_written_down(
    make: Make, simulator: Simulator, tmp_path: Path
) -> None:
    ref = await started_but_not_written_down(make, simulator, tmp_path / "data")
    assert await local.stop_all(tmp_path / "data") == [LAUNCH.sim_id]
    assert not is_alive(int(ref))


async def test_a_lock_whose_process_does_not_show_itself_fails_the_launch_and_not_the_launcher(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "GONE_WITHIN_S", 0.0)
    backend = make("true")
    records = Records.below(tmp_path / "data")
    records.make_directory()
    with records.locked(LAUNCH.sim_id, Intent(LAUNCH.run_id, LAUNCH.attempt)):
        assert await backend.census() == {LAUNCH.sim_id: Running()}
        with pytest.raises(LaunchError, match=f"no process with CASCADE_ATTEMPT={LAUNCH.attempt} is found"):
            await backend.start(LAUNCH)
        with pytest.raises(BackendUnavailable):
            await backend.stop(LAUNCH.sim_id)
    assert await backend.census() == {}
    await backend.stop(LAUNCH.sim_id)
    assert list((tmp_path / "data/work/sims").iterdir()) == []


async def test_a_lock_that_is_let_go_while_its_process_is_looked_for_is_tried_again(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def none(survey: processes.Survey, attempt: str) -> list[int]:
        nonlocal looks
        looks += 1
        return []

    monkeypatch.setattr(processes.Survey, "of_attempt", none)
    backend = make("true")
    records = Records.below(tmp_path / "data")
    records.make_directory()
    with records.locked(LAUNCH.sim_id, Intent(LAUNCH.run_id, LAUNCH.attempt)):
        starting = asyncio.create_task(backend.start(LAUNCH))
        await eventually(lambda: looks >= 2)  # once for what may be on record, then for what holds the lock
    with pytest.raises(BackendUnavailable, match="look again"):
        await starting


async def test_a_full_disk_does_not_keep_a_sim_running_when_cascade_stops(
    make: Make, simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(records: Records, record: ProcessRecord) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    other = replace(LAUNCH, sim_id="sim-000000000001", attempt=some_attempt())
    backend = make(simulator.command("wait"))
    pids = [int(await backend.start(launch)) for launch in (LAUNCH, other)]
    monkeypatch.setattr(Records, "write", full)
    await backend.stop_for_now(LAUNCH.sim_id, because="stopped")
    assert not is_alive(pids[0])
    assert await local.stop_all(tmp_path / "data") == [other.sim_id]
    assert not is_alive(pids[1])


async def test_a_sim_that_ended_while_no_launcher_looked_is_not_started_again(
    make: Make, simulator: Simulator
) -> None:
    first = make(simulator.command("exit", "3"))
    await first.start(LAUNCH)
    await ended(first)
    following = make(simulator.command("exit", "3"))
    await following.start(LAUNCH)
    over = await ended(following)
    assert over.exit_code is None
    assert "last words" in over.output
    assert len(simulator.starts(LAUNCH.sim_id)) == 1


async def test_another_process_under_the_same_number_is_not_taken_for_the_sim(
    make: Make, tmp_path: Path
) -> None:
    stranger = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    try:
        records = tmp_path / "data/work/sims"
        records.mkdir(parents=True)
        (records / f"{LAUNCH.sim_id}.pid").write_text(
            json.dumps(
                {"sim_id": LAUNCH.sim_id, "run_id": LAUNCH.run_id, "attempt": LAUNCH.attempt,
                 "pid": stranger.pid, "started": "another-boot/1"}
            )
        )  # fmt: skip
        backend = make("true")
        assert isinstance(await backend.alive(LAUNCH.sim_id), Ended)
        await backend.stop(LAUNCH.sim_id)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_an_exit_code_and_the_last_words_are_told(make: Make, simulator: Simulator) -> None:
    backend = make(simulator.command("exit", "3"))
    await backend.start(LAUNCH)
    over = await ended(backend)
    assert over.exit_code == 3
    assert over.output[:2] == ("hello from the simulator", "last words")


async def test_a_signal_is_told_as_a_negative_exit_code(make: Make, simulator: Simulator) -> None:
    backend = make(simulator.command("wait"))
    pid = int(await backend.start(LAUNCH))
    os.kill(pid, signal.SIGKILL)
    assert (await ended(backend)).exit_code == -9


async def test_stop_ends_a_polite_simulator_at_once(
    make: Make, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "KILL_AFTER_S", 10 * DEADLINE_S)
    backend = make(simulator.command("wait"))
    pid = int(await backend.start(LAUNCH))
    await eventually(lambda: simulator.is_up(LAUNCH.sim_id))
    async with asyncio.timeout(DEADLINE_S):
        await backend.stop(LAUNCH.sim_id)
    assert not is_alive(pid)
    assert await backend.alive(LAUNCH.sim_id) == Gone()


async def test_stop_ends_a_stubborn_simulator_and_the_child_that_left_its_group(
    make: Make, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "KILL_AFTER_S", 0.5)
    backend = make(simulator.command("stubborn"))
    await backend.start(LAUNCH)
    await eventually(lambda: simulator.is_up(LAUNCH.sim_id))
    # A process that is about to begin its program shows no environment for a moment.
    await eventually(lambda: len(processes_with(f"CASCADE_ATTEMPT={LAUNCH.attempt}")) == 2)
    await backend.stop(LAUNCH.sim_id)
    assert processes_with(f"CASCADE_ATTEMPT={LAUNCH.attempt}") == []


def test_a_process_that_has_just_been_started_is_known_by_its_attempt() -> None:
    for attempt in (some_attempt() for _ in range(100)):  # one in ten showed nothing at first
        child = subprocess.Popen(["sleep", "600"], env={**os.environ, "CASCADE_ATTEMPT": attempt})
        try:
            assert processes._attempt_of(child.pid) == attempt
        finally:
            child.kill()
            child.wait()


async def test_stop_by_a_later_launcher_ends_the_adopted_simulator(make: Make, simulator: Simulator) -> None:
    await make(simulator.command("wait")).start(LAUNCH)
    await eventually(lambda: simulator.is_up(LAUNCH.sim_id))
    await make(None).stop(LAUNCH.sim_id)
    assert processes_with(f"CASCADE_ATTEMPT={LAUNCH.attempt}") == []


async def test_a_simulator_that_said_goodbye_may_exit_by_itself(
    make: Make, simulator: Simulator, tmp_path: Path
) -> None:
    backend = make(simulator.command("wait"))
    await backend.start(LAUNCH)
    await eventually(lambda: simulator.is_up(LAUNCH.sim_id))
    stopping = asyncio.create_task(backend.stop(LAUNCH.sim_id, patience_s=10))
    await asyncio.sleep(0)
    simulator.let_exit()
    await stopping
    assert await backend.alive(LAUNCH.sim_id) == Gone()
    assert list((tmp_path / "data/work/sims").iterdir()) == [tmp_path / f"data/work/sims/{LAUNCH.sim_id}.out"]


async def test_a_command_that_works_in_the_background_still_runs(make: Make, simulator: Simulator) -> None:
    backend = make(simulator.command("background"))
    pid = int(await backend.start(LAUNCH))
    await eventually(lambda: not is_alive(pid) or len(simulator.starts(LAUNCH.sim_id)) == 1)
    await eventually(lambda: not is_alive(pid))
    assert await backend.alive(LAUNCH.sim_id) == Running()
    await backend.stop(LAUNCH.sim_id)
    assert processes_with(f"CASCADE_ATTEMPT={LAUNCH.attempt}") == []


async def test_what_sims_left_long_ago_goes_when_a_run_ends(
    make: Make, simulator: Simulator, tmp_path: Path
) -> None:
    backend = make(simulator.command("wait"))
    await backend.start(LAUNCH)
    directory = tmp_path / "data/work/sims"
    for name in ("sim-aaaaaaaaaaaa.out", "sim-aaaaaaaaaaaa.lock", "sim-bbbbbbbbbbbb.out"):
        (directory / name).touch()
    for path in directory.iterdir():
        if not path.name.startswith("sim-b"):
            os.utime(path, (1000, 1000))
    await backend.finish(LAUNCH.run_id)
    assert sorted(path.name for path in directory.iterdir()) == [
        f"{LAUNCH.sim_id}.lock",
        f"{LAUNCH.sim_id}.out",
        f"{LAUNCH.sim_id}.pid",
        "sim-bbbbbbbbbbbb.out",
    ]


async def test_a_missing_command_is_said_before_the_trace_is_fetched(make: Make, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"^launch: CASCADE_SIM_CMD is not set$"):
        await make(None).prepare(RUN)
    assert not (tmp_path / "data/s3").exists()


@pytest.mark.parametrize("command", ["/no/such/worker --x", "no-such-worker", "/etc/passwd"])
async def test_a_command_that_is_no_executable_could_not_start(make: Make, command: str) -> None:
    with pytest.raises(LaunchError, match=r"^could not start '"):
        await make(command).start(LAUNCH)


async def test_a_command_with_an_open_quote_is_refused_with_its_reason(make: Make) -> None:
    with pytest.raises(LaunchError, match=r"CASCADE_SIM_CMD cannot be split .*No closing quotation"):
        await make("worker 'oops").prepare(RUN)


async def test_stop_all_ends_every_sim_and_leaves_word_why(
    make: Make, simulator: Simulator, tmp_path: Path
) -> None:
    backend = make(simulator.command("wait"))
    other = replace(LAUNCH, sim_id="sim-000000000001", attempt=some_attempt())
    await backend.start(LAUNCH)
    await backend.start(other)
    stopped = await local.stop_all(tmp_path / "data")
    assert sorted(stopped) == ["sim-000000000001", LAUNCH.sim_id]
    following = make(None)
    for vital in (await following.census()).values():
        assert isinstance(vital, Ended)
        assert vital.reason == "cascade was stopped while this sim ran"
