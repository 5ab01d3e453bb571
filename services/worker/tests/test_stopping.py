"""Sims that end early: cancelled, fenced off, terminated, refused, or with a worker that was killed."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import psutil
import pytest
from cascade_worker.chunking import LogChunk
from cascade_worker.errors import GatewayRefusedError
from cascade_worker.testing import PATIENCE_S, FakeGateway
from cascade_worker.work import _simulate_and_forward

StartWorker = Callable[..., "Popen[str]"]
Play = Callable[..., None]


def wait_until_gone(pid_file: Path) -> None:
    """The process that noted its id there has ended (or is a zombie that nobody has reaped yet)."""
    pid = int(pid_file.read_text())
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there after {PATIENCE_S} s")


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    return tmp_path / "simulator.pid"


@pytest.mark.parametrize("ignore_sigterm", [False, True])
def test_a_cancel_ends_the_simulator_and_uploads_nothing(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, pid_file: Path, ignore_sigterm: bool
) -> None:
    play("rtx3070-babelstream", hang_after_lines=300, pid_file=str(pid_file), ignore_sigterm=ignore_sigterm)
    worker = start_worker(CASCADE_HEARTBEAT_INTERVAL_S="0.1", CASCADE_STOP_GRACE_S="0.3")
    gateway.wait_for(lambda state: len(state.log) == 300)
    gateway.cancel = True
    assert worker.wait(60) == 0
    wait_until_gone(pid_file)
    assert gateway.files == {}
    assert gateway.final is None


def test_a_cancel_before_the_start_starts_nothing(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, run_dir: Path
) -> None:
    gateway.cancel = True
    play("rtx3070-babelstream")
    assert start_worker().wait(60) == 0
    assert gateway.order == ["heartbeat running"]
    assert not run_dir.exists()


def test_a_sim_that_is_over_is_not_simulated_again(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, run_dir: Path
) -> None:
    gateway.state = "failed"
    play("rtx3070-babelstream")
    assert start_worker().wait(60) == 0
    assert gateway.order == ["heartbeat running"]
    assert not run_dir.exists()


def test_a_cancel_is_heard_while_a_chunk_is_being_retried(
    gateway: FakeGateway, start_worker: StartWorker, play: Play
) -> None:
    gateway.fail("logs", 503, times=10_000)
    play("rtx3070-babelstream")
    worker = start_worker(CASCADE_HEARTBEAT_INTERVAL_S="0.1")
    gateway.wait_for(lambda state: state.calls_failed >= 2)
    gateway.cancel = True
    assert worker.wait(60) == 0
    assert gateway.chunks == {}


def test_a_second_start_is_fenced_off_and_leaves_quietly(
    gateway: FakeGateway,
    start_worker: StartWorker,
    play: Play,
    pid_file: Path,
    worker_output: Callable[[], str],
) -> None:
    gateway.log_owner = "1.first-start"
    play("rtx3070-babelstream", hang_after_lines=300, pid_file=str(pid_file))
    assert start_worker(CASCADE_ATTEMPT="1").wait(60) == 0
    wait_until_gone(pid_file)
    assert gateway.chunks == {}
    assert gateway.files == {}
    assert gateway.final is None
    assert "another start of this sim" in worker_output()


def test_every_call_carries_the_attempt_and_a_nonce_of_the_process(
    gateway: FakeGateway, start_worker: StartWorker, play: Play
) -> None:
    play("rtx3070-babelstream")
    assert start_worker(CASCADE_ATTEMPT="a7").wait(60) == 0
    assert len(gateway.attempts) == 1
    attempt, nonce = gateway.attempts.pop().split(".")
    assert attempt == "a7"
    assert len(nonce) == 16


def test_a_start_by_hand_names_no_attempt(
    gateway: FakeGateway, start_worker: StartWorker, play: Play
) -> None:
    play("rtx3070-babelstream")
    assert start_worker().wait(60) == 0
    assert gateway.attempts == set()


def test_sigterm_ends_the_simulator_and_says_so(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, pid_file: Path
) -> None:
    play("rtx3070-babelstream", hang_after_lines=300, pid_file=str(pid_file))
    worker = start_worker()
    gateway.wait_for(lambda state: len(state.log) == 300)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 143
    wait_until_gone(pid_file)
    assert gateway.final is not None
    assert gateway.final["exit_code"] == 143
    assert gateway.final["error"] == "the worker was stopped by SIGTERM"
    assert gateway.files == {}


def test_a_killed_worker_takes_its_simulator_along(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, pid_file: Path
) -> None:
    play("rtx3070-babelstream", hang_after_lines=300, pid_file=str(pid_file), ignore_sigterm=True)
    worker = start_worker()
    gateway.wait_for(lambda state: len(state.log) == 300)
    worker.kill()
    worker.wait(60)
    wait_until_gone(pid_file)


def test_what_the_simulator_forked_does_not_outlive_it(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, tmp_path: Path
) -> None:
    child = tmp_path / "child.pid"
    play("rtx3070-babelstream", fork=str(child))
    assert start_worker().wait(60) == 0
    wait_until_gone(child)


def test_the_simulator_runs_in_a_process_group_of_its_own(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, pid_file: Path
) -> None:
    play("rtx3070-babelstream", hang_after_lines=300, pid_file=str(pid_file))
    worker = start_worker()
    gateway.wait_for(lambda state: len(state.log) == 300)
    simulator = int(pid_file.read_text())
    assert os.getpgid(simulator) == simulator
    assert os.getpgid(worker.pid) == worker.pid


def test_a_wrong_token_ends_the_worker_without_a_simulation(
    gateway: FakeGateway,
    start_worker: StartWorker,
    play: Play,
    run_dir: Path,
    worker_output: Callable[[], str],
) -> None:
    play("rtx3070-babelstream")
    assert start_worker(CASCADE_TOKEN="wrong").wait(60) == 1
    assert not run_dir.exists()
    assert "401" in worker_output()
    assert "missing or wrong token" in worker_output()
    assert "Traceback" not in worker_output()


async def test_a_stop_that_comes_while_a_refused_log_ends_the_simulation_is_not_lost(tmp_path: Path) -> None:
    ending, gone = asyncio.Event(), asyncio.Event()

    async def simulate() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await gone.wait()
        return 0

    async def refuse(chunk: LogChunk) -> None:
        raise GatewayRefusedError(call=f"log chunk {chunk.seq}", status=422, detail="no")

    log = tmp_path / "accelsim.log"
    log.write_text("line\n" * 200)
    working = asyncio.create_task(_simulate_and_forward(simulate, log_path=log, handle=refuse))
    await ending.wait()
    working.cancel()
    await asyncio.sleep(0)
    gone.set()
    await asyncio.wait([working])
    assert working.cancelled()


def test_a_refused_log_ends_the_simulation_as_failed(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, pid_file: Path
) -> None:
    gateway.fail("logs", 422)
    play("rtx3070-babelstream", hang_after_lines=300, pid_file=str(pid_file))
    assert start_worker().wait(60) == 1
    wait_until_gone(pid_file)
    assert gateway.final is not None
    assert gateway.final["state"] == "failed"
    assert "log chunk 0 was refused with 422: told to fail" in str(gateway.final["error"])


@pytest.mark.parametrize(
    "variable", ["CASCADE_SIM_ID", "CASCADE_MAIN_URL", "CASCADE_GPU_CONFIG", "CASCADE_TRACE_DIR"]
)
def test_a_missing_variable_is_named(
    gateway: FakeGateway, start_worker: StartWorker, variable: str, worker_output: Callable[[], str]
) -> None:
    assert start_worker(**{variable: ""}).wait(60) == 2
    assert f"{variable} is not set" in worker_output()
    assert worker_output().count("\n") == 1


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CASCADE_SIM_ID", "../../etc"),
        ("CASCADE_MAIN_URL", "127.0.0.1:8000"),
        ("CASCADE_GPU_CONFIG", "../SM90_H100"),
        ("CASCADE_HEARTBEAT_INTERVAL_S", "soon"),
        ("CASCADE_ATTEMPT", "1\r\nX-Evil: 1"),
    ],
)
def test_a_wrong_variable_is_named(
    gateway: FakeGateway,
    start_worker: StartWorker,
    variable: str,
    value: str,
    worker_output: Callable[[], str],
) -> None:
    assert start_worker(**{variable: value}).wait(60) == 2
    assert variable in worker_output()
    assert gateway.order == []
