"""Step timing after a successful sim on a trace with a measured timeline."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest
from cascade_worker.testing import FakeGateway

StartWorker = Callable[..., "Popen[str]"]
Play = Callable[..., None]

FIRST = "_Z11init_kernelIdEvPT_S1_S1_S0_S0_S0_"
SECOND = "_Z11copy_kernelIdEvPKT_PS0_"


def timeline() -> dict[str, object]:
    """One steady step of 100 µs with two kernels of 4 µs each and 90 µs of host time."""
    kernel = {"grid": "8x1x1", "block": "1024x1x1", "duration_ns": 4000}
    step = {
        "step": 0,
        "repeat": 1,
        "warmup": False,
        "kind": "prefill",
        "num_reqs": 1,
        "num_scheduled_tokens": 6,
        "baseline_wall_ns": 100_000,
        "profiled_wall_ns": 110_000,
        "gpu_busy_ns": 10_000,
        "cuda_api_ns": 5_000,
        "host_ns": 90_000,
        "kernels": [
            {"seq": 0, "name": FIRST, "start_offset_ns": 1000, **kernel},
            {"seq": 1, "name": SECOND, "start_offset_ns": 6000, **kernel},
        ],
        "baseline_wall_start_ns": 1_000_000,
        "baseline_wall_end_ns": 1_100_000,
        "baseline_gap_before_ns": None,
        "profiled_wall_start_ns": 2_000_000,
        "profiled_wall_end_ns": 2_110_000,
        "profiled_gap_before_ns": None,
    }
    return {"meta": {"run_name": "tiny"}, "steps": [step], "requests": [], "summary": {}}


def mapping(*rows: tuple[int, str]) -> list[dict[str, object]]:
    return [
        {"uid": uid, "name": name, "repeat": 1, "step": 0, "seq": seq} for seq, (uid, name) in enumerate(rows)
    ]


@pytest.fixture
def timed_trace(trace_dir: Path) -> Path:
    (trace_dir / "corrected_timeline.json").write_text(json.dumps(timeline()))
    (trace_dir / "kernel_mapping.json").write_text(json.dumps(mapping((1, FIRST), (2, SECOND))))
    return trace_dir


def test_the_logs_cycles_become_step_times_before_the_final_heartbeat(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, timed_trace: Path
) -> None:
    play("rtx3070-babelstream")
    assert start_worker().wait(60) == 0
    assert gateway.order[-3:] == ["file accelsim.log.gz", "step-timeline", "heartbeat succeeded"]
    assert gateway.step_timeline is not None
    simulated, compare = gateway.step_timeline["simulated"], gateway.step_timeline["compare"]
    assert isinstance(simulated, dict)
    assert isinstance(compare, dict)
    # 6096 and 5913 cycles at the config's 1132 MHz
    durations = [kernel["duration_ns"] for kernel in simulated["steps"][0]["kernels"]]
    assert durations == pytest.approx([5385.159010600707, 5223.498233215548])
    assert simulated["steps"][0]["baseline_wall_ns"] == pytest.approx(102608.65724381626)
    assert compare["steps"][0]["wall_ns"]["error"] == pytest.approx(2608.657243816255)


@pytest.mark.parametrize("missing", ["corrected_timeline.json", "kernel_mapping.json"])
def test_a_missing_file_is_one_log_line(
    gateway: FakeGateway,
    start_worker: StartWorker,
    play: Play,
    timed_trace: Path,
    *,
    missing: str,
    worker_output: Callable[[], str],
) -> None:
    (timed_trace / missing).unlink()
    play("rtx3070-babelstream")
    assert start_worker().wait(60) == 0
    assert gateway.step_timeline is None
    assert worker_output().count("no step timing") == 1
    assert missing in worker_output()


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(mapping((7, FIRST))),
        json.dumps(mapping((1, SECOND))),
        "not json",
        '[{"uid": 1}]',
    ],
)
def test_a_failing_model_leaves_the_sim_succeeded_and_sends_nothing(
    gateway: FakeGateway,
    start_worker: StartWorker,
    play: Play,
    timed_trace: Path,
    *,
    content: str,
    worker_output: Callable[[], str],
) -> None:
    (timed_trace / "kernel_mapping.json").write_text(content)
    play("rtx3070-babelstream")
    assert start_worker().wait(60) == 0
    assert gateway.step_timeline is None
    assert gateway.final is not None
    assert gateway.final["state"] == "succeeded"
    assert worker_output().count("no step timing") == 1


def test_cycles_of_overlapping_kernels_are_no_durations(
    gateway: FakeGateway,
    start_worker: StartWorker,
    play: Play,
    timed_trace: Path,
    worker_output: Callable[[], str],
) -> None:
    reduction = "_ZN3red13reduce_kernelILi256EfEEvPKT0_PS1_j"
    (timed_trace / "kernel_mapping.json").write_text(json.dumps(mapping((2, reduction))))
    (timed_trace / "traces" / "kernelslist.g").write_text("kernel-1.traceg\n")
    play("rtx3070-streams-concurrent")
    assert start_worker().wait(60) == 0
    assert gateway.step_timeline is None
    assert "no step timing: gpu_sim_cycle of uid 2" in worker_output()


def test_a_failed_sim_gets_no_step_timing(
    gateway: FakeGateway, start_worker: StartWorker, play: Play, timed_trace: Path
) -> None:
    play("rtx3070-limit-max-cycle")
    assert start_worker().wait(60) == 1
    assert gateway.step_timeline is None


def test_step_timing_that_cannot_be_sent_leaves_the_sim_succeeded(
    gateway: FakeGateway,
    start_worker: StartWorker,
    play: Play,
    timed_trace: Path,
    worker_output: Callable[[], str],
) -> None:
    gateway.fail("step-timeline", 422)
    play("rtx3070-babelstream")
    assert start_worker().wait(60) == 0
    assert gateway.step_timeline is None
    assert "step timing could not be sent: step timing was refused with 422" in worker_output()
