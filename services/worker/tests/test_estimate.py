"""The analytical estimate as the engine: it streams and fails like a simulator, and says what it is."""

from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest
from cascade_worker.testing import FakeGateway

StartWorker = Callable[..., "Popen[str]"]

REPO = Path(__file__).parents[3]
CONFIGS = REPO / "configs"
DEMO = REPO / "examples" / "demo-trace"


@pytest.fixture
def estimate(start_worker: StartWorker) -> Callable[..., "Popen[str]"]:
    def start(trace: Path = DEMO, config: str = "SM90_H100", **environ: str) -> "Popen[str]":
        return start_worker(
            "--engine", "estimate",
            CASCADE_TRACE_DIR=str(trace),
            CASCADE_ACCELSIM_DIR=str(CONFIGS),
            CASCADE_GPU_CONFIG=config,
            **environ,
        )  # fmt: skip

    return start


def test_every_kernel_of_the_trace_gets_a_block_and_the_log_names_the_engine(
    gateway: FakeGateway, estimate: Callable[..., "Popen[str]"]
) -> None:
    assert estimate().wait(110) == 0
    assert gateway.final == {"state": "succeeded", "exit_code": 0, "error": None, "engine": "estimate"}
    assert any(line.startswith("engine = cascade-estimate") for line in gateway.log)
    assert sum(line.startswith("gpu_sim_cycle = ") for line in gateway.log) == 8
    assert gateway.log[-1] == "GPGPU-Sim: *** exit detected ***"
    assert list(gateway.files) == ["accelsim.log.gz"]


def test_a_damaged_trace_fails_with_the_place(
    gateway: FakeGateway, estimate: Callable[..., "Popen[str]"], tmp_path: Path
) -> None:
    traces = tmp_path / "damaged" / "traces"
    traces.mkdir(parents=True)
    (traces / "kernelslist.g").write_text("kernel-1.traceg\n")
    (traces / "kernel-1.traceg").write_text("")
    assert estimate(tmp_path / "damaged").wait(60) == 1
    assert gateway.final is not None
    assert gateway.final["state"] == "failed"
    assert gateway.final["exit_code"] == 1
    assert "kernel-1.traceg" in str(gateway.final["error"])
    assert "Traceback" not in str(gateway.final["error"])


def test_a_missing_config_fails_with_exit_code_2(
    gateway: FakeGateway, estimate: Callable[..., "Popen[str]"]
) -> None:
    assert estimate(config="SM90_H900").wait(60) == 2
    assert gateway.final is not None
    assert "SM90_H900/gpgpusim.config" in str(gateway.final["error"])
