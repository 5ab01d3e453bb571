"""Fixtures: a gateway, an Accel-Sim checkout with the stand-in as its binary, a trace, and the worker as a
process."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cascade_worker.testing import FakeGateway, running_gateway

HERE = Path(__file__).parent
LOGS = HERE / "data" / "logs"
CONFIG = "SM86_RTX3070"


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with running_gateway(FakeGateway()) as serving:
        yield serving


@pytest.fixture
def recorded() -> Callable[[str], Path]:
    """The path of a recorded log by its name."""
    return lambda name: LOGS / f"{name}.log.gz"


@pytest.fixture
def trace_dir(tmp_path: Path) -> Path:
    """A trace whose list asks for the six kernels of the recorded BabelStream run."""
    traces = tmp_path / "trace" / "traces"
    traces.mkdir(parents=True)
    commands = ["MemcpyHtoD,0x00007f0000000000,65536", *(f"kernel-{number}.traceg" for number in range(1, 7))]
    (traces / "kernelslist.g").write_text("\n".join(commands) + "\n")
    return traces.parent


@pytest.fixture
def accelsim_dir(tmp_path: Path) -> Path:
    """A checkout with one config, its auxiliary file, and the stand-in where the binary belongs."""
    root = tmp_path / "accel-sim"
    binary = root / "gpu-simulator/bin/release/accel-sim.out"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!{sys.executable}\n" + (HERE / "accel_sim_stand_in.py").read_text())
    binary.chmod(0o755)
    core = root / f"gpu-simulator/gpgpu-sim/configs/tested-cfgs/{CONFIG}"
    core.mkdir(parents=True)
    (core / "gpgpusim.config").write_text("-gpgpu_clock_domains 1132:1132:1132:3500.5\n-network_mode 2\n")
    (core / "config_ampere_islip.icnt").write_text("use_map = 0;\n")
    trace_config = root / f"gpu-simulator/configs/tested-cfgs/{CONFIG}/trace.config"
    trace_config.parent.mkdir(parents=True)
    trace_config.write_text("-trace_opcode_latency_initiation_int 4,2\n")
    return root


Play = Callable[..., None]
StartWorker = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def play(accelsim_dir: Path) -> Play:
    """Tell the stand-in which recorded run to be, and how it ends."""

    def tell(log: str, **behaviour: object) -> None:
        stderr = LOGS / f"{log}.stderr"
        script = {"log": str(LOGS / f"{log}.log.gz"), **({"stderr": str(stderr)} if stderr.exists() else {})}
        target = accelsim_dir / "gpu-simulator/bin/release/stand-in.json"
        target.write_text(json.dumps({**script, **behaviour}))

    return tell


@pytest.fixture
def run_dir(tmp_path: Path, gateway: FakeGateway) -> Path:
    """Where the worker runs its simulator."""
    return tmp_path / "tmp" / "cascade-worker" / gateway.sim_id


@pytest.fixture
def start_worker(
    tmp_path: Path, gateway: FakeGateway, trace_dir: Path, accelsim_dir: Path
) -> Iterator[StartWorker]:
    """Start the worker as a launcher does: environment, own process group, output to a file."""
    started: list[subprocess.Popen[str]] = []
    temporary = tmp_path / "tmp"
    temporary.mkdir()

    def start(*arguments: str, **environ: str) -> "subprocess.Popen[str]":
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("CASCADE_", "AWS_"))
        }
        with (tmp_path / "worker.out").open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "cascade_worker", *arguments],
                env={
                    **inherited,
                    "CASCADE_SIM_ID": gateway.sim_id,
                    "CASCADE_MAIN_URL": gateway.url,
                    "CASCADE_TOKEN": gateway.token,
                    "CASCADE_GPU_CONFIG": CONFIG,
                    "CASCADE_TRACE_DIR": str(trace_dir),
                    "CASCADE_ACCELSIM_DIR": str(accelsim_dir),
                    "TMPDIR": str(temporary),
                    **environ,
                },
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                process_group=0,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
    shutil.rmtree(temporary, ignore_errors=True)


@pytest.fixture
def worker_output(tmp_path: Path) -> Callable[[], str]:
    """What the worker itself has printed so far."""
    return (tmp_path / "worker.out").read_text
