"""The stand-in simulator of a default deploy: a recorded log and, if wanted, recorded output files."""

import gzip
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from subprocess import Popen

import pytest
from cascade_worker.testing import FakeGateway

StartWorker = Callable[..., "Popen[str]"]
Recorded = Callable[[str], Path]


@pytest.fixture
def plain_log(recorded: Recorded, tmp_path: Path) -> Path:
    log = tmp_path / "babelstream_sm86_rtx3070.log"
    log.write_bytes(gzip.decompress(recorded("rtx3070-babelstream").read_bytes()))
    return log


def test_a_plain_log_is_sent_in_chunks_of_two_hundred_lines(
    gateway: FakeGateway, start_worker: StartWorker, plain_log: Path, run_dir: Path
) -> None:
    assert start_worker("--replay", str(plain_log), "--delay", "0").wait(60) == 0
    assert gateway.final == {"state": "succeeded", "exit_code": 0, "error": None, "engine": "replay"}
    assert "\n".join(gateway.log) + "\n" == plain_log.read_text()
    sizes = [len(gateway.chunks[seq]) for seq in sorted(gateway.chunks)]
    assert len(gateway.log) == 10248
    assert max(sizes) == 200
    assert (run_dir / "accelsim.log").read_bytes() == plain_log.read_bytes()
    assert list(gateway.files) == ["accelsim.log.gz"]


def test_a_gzipped_log_gives_the_same_lines(
    gateway: FakeGateway, start_worker: StartWorker, plain_log: Path, recorded: Recorded
) -> None:
    assert start_worker("--replay", str(recorded("rtx3070-babelstream")), "--delay", "0").wait(60) == 0
    assert "\n".join(gateway.log) + "\n" == plain_log.read_text()


def test_the_delay_is_kept_every_two_hundred_lines(
    gateway: FakeGateway, start_worker: StartWorker, tmp_path: Path, recorded: Recorded
) -> None:
    started = time.monotonic()
    assert (
        start_worker("--replay", str(recorded("rtx3070-empty-kernelslist")), "--delay", "0.7").wait(60)
        is not None
    )
    assert time.monotonic() - started >= 1.4  # 273 lines: two pauses
    assert [len(gateway.chunks[seq]) for seq in sorted(gateway.chunks)] == [200, 73]
    assert all(later > earlier for earlier, later in pairwise(gateway.chunk_times))


def test_a_replay_needs_the_list_but_neither_accel_sim_nor_as_many_kernels(
    gateway: FakeGateway, start_worker: StartWorker, plain_log: Path, trace_dir: Path
) -> None:
    (trace_dir / "traces" / "kernelslist.g").write_text("".join(f"kernel-{n}.traceg\n" for n in range(99)))
    worker = start_worker("--replay", str(plain_log), "--delay", "0", CASCADE_ACCELSIM_DIR="/nowhere")
    assert worker.wait(60) == 0


def test_a_replay_without_the_list_fails_with_exit_code_2(
    gateway: FakeGateway, start_worker: StartWorker, plain_log: Path, trace_dir: Path
) -> None:
    kernels = trace_dir / "traces" / "kernelslist.g"
    kernels.unlink()
    assert start_worker("--replay", str(plain_log)).wait(60) == 2
    assert gateway.final is not None
    assert str(kernels) in str(gateway.final["error"])


def test_a_missing_record_fails_with_exit_code_2(gateway: FakeGateway, start_worker: StartWorker) -> None:
    assert start_worker("--replay", "/nowhere/run.log").wait(60) == 2
    assert gateway.final is not None
    assert "/nowhere/run.log" in str(gateway.final["error"])


def test_recorded_outputs_go_up_like_real_ones(
    gateway: FakeGateway, start_worker: StartWorker, plain_log: Path, tmp_path: Path, run_dir: Path
) -> None:
    outputs = tmp_path / "recorded"
    (outputs / "checkpoint_files").mkdir(parents=True)
    for name in ("kernel-stats.csv", "exit-status.txt", "run.log", "setup.log", "accelsim.log"):
        (outputs / name).write_text(f"{name}\n")
    worker = start_worker("--replay", str(plain_log), "--delay", "0", "--replay-outputs", str(outputs))
    assert worker.wait(60) == 0
    assert list(gateway.files) == ["exit-status.txt", "kernel-stats.csv", "accelsim.log.gz"]
    assert gateway.files["exit-status.txt"] == b"exit-status.txt\n"
    assert gzip.decompress(gateway.files["accelsim.log.gz"]) == plain_log.read_bytes()


def test_a_damaged_record_fails_with_its_name(
    gateway: FakeGateway, start_worker: StartWorker, recorded: Recorded, tmp_path: Path
) -> None:
    damaged = tmp_path / "half.log.gz"
    damaged.write_bytes(recorded("rtx3070-babelstream").read_bytes()[:20_000])
    assert start_worker("--replay", str(damaged), "--delay", "0").wait(60) == 1
    assert gateway.final is not None
    assert gateway.final["state"] == "failed"
    assert "half.log.gz cannot be read" in str(gateway.final["error"])


def test_a_record_of_a_run_that_was_no_success_is_no_success(
    gateway: FakeGateway, start_worker: StartWorker, recorded: Recorded
) -> None:
    worker = start_worker("--replay", str(recorded("rtx3070-limit-max-cycle")), "--delay", "0")
    assert worker.wait(60) == 1
    assert gateway.final is not None
    assert "maximum cycles" in str(gateway.final["error"])


def test_bytes_that_are_not_utf8_and_odd_separators_travel(
    gateway: FakeGateway, start_worker: StartWorker, tmp_path: Path
) -> None:
    log = tmp_path / "odd.log"
    odd = b"\x1b[31mred\x1b[0m\r\n\xff\xfe\na\xe2\x80\xa8b\x00c\x0c\n" + b"L" * 1_000_000 + b"\n"
    log.write_bytes(odd + b"GPGPU-Sim: *** exit detected ***\n")
    start_worker("--replay", str(log), "--delay", "0").wait(60)
    assert gateway.log == [
        "\x1b[31mred\x1b[0m\r",
        "\ufffd\ufffd",
        "a\u2028b\x00c\x0c",
        "L" * 1_000_000,
        "GPGPU-Sim: *** exit detected ***",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--replay", "x.log", "--engine", "estimate"],
        ["--replay-outputs", "somewhere"],
        ["--replay", "x.log", "--delay", "-1"],
        ["--replay", "x.log", "--delay", "nan"],
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    gateway: FakeGateway, start_worker: StartWorker, arguments: list[str], worker_output: Callable[[], str]
) -> None:
    assert start_worker(*arguments).wait(60) == 2
    assert gateway.order == []
    assert worker_output().startswith("cascade worker: --")
