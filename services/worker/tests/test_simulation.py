"""Whole sims with the stand-in Accel-Sim, the worker as its own process, against a real HTTP server."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest
from cascade_worker.testing import FakeGateway

StartWorker = Callable[..., "Popen[str]"]
Play = Callable[..., None]
Recorded = Callable[[str], Path]


def lines_of(log: Path) -> list[str]:
    text = gzip.decompress(log.read_bytes()).decode("utf-8", errors="replace")
    return text.removesuffix("\n").split("\n")


def test_a_complete_run_succeeds_and_everything_precedes_the_final_heartbeat(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, recorded: Recorded
) -> None:
    play("rtx3070-babelstream")
    assert start_worker().wait(60) == 0
    assert gateway.final == {"state": "succeeded", "exit_code": 0, "error": None, "engine": "accel-sim"}
    assert gateway.log == lines_of(recorded("rtx3070-babelstream"))
    assert gateway.order[0] == "heartbeat running"
    assert gateway.order[-1] == "heartbeat succeeded"
    files = [entry.removeprefix("file ") for entry in gateway.order if entry.startswith("file ")]
    assert files == ["arguments.json", "gpgpu_inst_stats.txt", "accelsim.log.gz"]
    assert gzip.decompress(gateway.files["accelsim.log.gz"]) == gzip.decompress(
        recorded("rtx3070-babelstream").read_bytes()
    )


def test_the_simulator_gets_the_real_arguments_in_a_fresh_directory_with_every_config_file(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, run_dir: Path, trace_dir: Path
) -> None:
    run_dir.mkdir(parents=True)
    (run_dir / "left-over.txt").write_text("from an earlier start")
    play("rtx3070-babelstream")
    assert start_worker().wait(60) == 0
    directory, *arguments = json.loads((run_dir / "arguments.json").read_text())
    assert directory == str(run_dir)
    assert arguments == [
        "-trace", str(trace_dir / "traces" / "kernelslist.g"), "-config", "gpgpusim.config", "-config", "trace.config",
    ]  # fmt: skip
    assert sorted(path.name for path in run_dir.iterdir()) == [
        "accelsim.log",
        "arguments.json",
        "checkpoint_files",
        "config_ampere_islip.icnt",
        "gpgpu_inst_stats.txt",
        "gpgpusim.config",
        "trace.config",
    ]


def test_the_simulator_does_not_see_the_token(
    gateway: FakeGateway, start_worker: StartWorker, play: Play
) -> None:
    play("rtx3070-babelstream")
    assert start_worker().wait(60) == 0
    assert "token-seen.txt" not in gateway.files


@pytest.mark.parametrize(
    "run",
    [
        ("rtx3070-fail-sm89-binary-version", {}, 0, ["unsupported binary version: 89"]),
        ("rtx3070-fail-missing-kernel-trace", {}, 0, ["2 of 6 kernels", "kernel-3.traceg"]),
        ("rtx3070-limit-max-cycle", {}, 0, ["break due to reaching the maximum cycles"]),
        ("rtx3070-fail-unknown-option", {"exit_code": 1}, 1, ["-gpgpu_no_such_option"]),
        ("rtx3070-fail-garbled-line", {"signal": "SIGABRT"}, 134, ["134", "Assertion"]),
        ("rtx3070-fail-deadlock", {"signal": "SIGABRT"}, 134, ["deadlock"]),
        ("rtx3070-fail-warp-without-exit", {"signal": "SIGSEGV"}, 139, ["139"]),
        ("rtx3070-killed-sigterm", {"signal": "SIGTERM"}, 143, ["143"]),
        ("rtx3070-killed-sigterm", {}, 0, ["lacks the exit line"]),
    ],
)
def test_a_run_that_was_no_success_is_reported_as_failed_with_the_reason(
    gateway: FakeGateway,
    start_worker: StartWorker,
    play: Play,
    recorded: Recorded,
    run: tuple[str, dict[str, object], int, list[str]],
) -> None:
    log, behaviour, exit_code, words = run
    play(log, **behaviour)
    assert start_worker().wait(60) == (exit_code or 1)
    assert gateway.final is not None
    assert gateway.final["state"] == "failed"
    assert gateway.final["exit_code"] == exit_code
    error = str(gateway.final["error"])
    assert all(word in error for word in words), error
    assert gateway.log == lines_of(recorded(log))
    assert gateway.order[-1] == "heartbeat failed"
    assert "accelsim.log.gz" in gateway.files


def test_fewer_kernels_than_the_list_asks_for_is_no_success(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, trace_dir: Path
) -> None:
    with (trace_dir / "traces" / "kernelslist.g").open("a") as kernels:
        kernels.write("kernel-7.traceg\n")
    play("rtx3070-babelstream")
    assert start_worker().wait(60) == 1
    assert gateway.final is not None
    assert gateway.final["state"] == "failed"
    assert "6" in str(gateway.final["error"])
    assert "7" in str(gateway.final["error"])


def test_concurrent_kernels_all_count(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, trace_dir: Path
) -> None:
    kernels = "".join(f"kernel-{number}.traceg\n" for number in range(1, 6))
    (trace_dir / "traces" / "kernelslist.g").write_text(kernels)
    play("rtx3070-streams-concurrent")
    assert start_worker().wait(60) == 0


def test_a_log_cut_in_mid_line_is_sent_to_its_last_byte(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, recorded: Recorded
) -> None:
    play("rtx3070-fail-bad-memcpy-line", signal="SIGABRT")
    assert start_worker().wait(60) == 134
    assert gateway.log == lines_of(recorded("rtx3070-fail-bad-memcpy-line"))


@pytest.mark.parametrize(
    "missing",
    [
        "gpu-simulator/bin/release/accel-sim.out",
        "gpu-simulator/gpgpu-sim/configs/tested-cfgs/SM86_RTX3070/gpgpusim.config",
        "gpu-simulator/configs/tested-cfgs/SM86_RTX3070/trace.config",
    ],
)
def test_a_missing_path_fails_with_exit_code_2_and_its_name(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, accelsim_dir: Path, missing: str
) -> None:
    (accelsim_dir / missing).unlink()
    assert start_worker().wait(60) == 2
    assert gateway.final is not None
    assert gateway.final["state"] == "failed"
    assert gateway.final["exit_code"] == 2
    assert str(accelsim_dir / missing) in str(gateway.final["error"])
    assert gateway.order == ["heartbeat running", "heartbeat failed"]


def test_a_missing_kernelslist_fails_with_exit_code_2_and_its_name(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, trace_dir: Path
) -> None:
    kernels = trace_dir / "traces" / "kernelslist.g"
    kernels.unlink()
    assert start_worker().wait(60) == 2
    assert gateway.final is not None
    assert gateway.final["exit_code"] == 2
    assert str(kernels) in str(gateway.final["error"])


def test_a_binary_that_cannot_run_says_so(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, accelsim_dir: Path
) -> None:
    binary = accelsim_dir / "gpu-simulator/bin/release/accel-sim.out"
    binary.write_bytes(b"\x7fNOT-AN-ELF")
    assert start_worker().wait(60) == 126
    assert gateway.final is not None
    assert gateway.final["exit_code"] == 126
    assert "accel-sim.out: Exec format error" in str(gateway.final["error"])


def test_lines_reach_the_gateway_half_a_second_after_they_were_written(
    gateway: FakeGateway, start_worker: StartWorker, play: Play
) -> None:
    play("rtx3070-babelstream", hang_after_lines=150)
    start_worker()
    gateway.wait_for(lambda state: len(state.log) == 150)


def test_heartbeats_go_on_while_the_simulator_is_silent(
    gateway: FakeGateway, start_worker: StartWorker, play: Play
) -> None:
    play("rtx3070-babelstream", hang_after_lines=10)
    start_worker(CASCADE_HEARTBEAT_INTERVAL_S="0.1")
    gateway.wait_for(lambda state: len(state.heartbeats) >= 5)
    assert {beat["engine"] for beat in gateway.heartbeats} == {"accel-sim"}
