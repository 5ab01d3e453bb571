"""`cascade serve` as a person has it: it starts, Ctrl+C leaves nothing behind, and a second start goes on."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from cascade_cli import bundled
from cascade_cli.embedded.process import free_ports
from cascade_cli.serve_settings import worker_command
from cascade_cli.testing_serve import eventually
from cascade_client.async_client import AsyncCascadeClient
from cascade_client.errors import Unreachable
from cascade_client.upload import upload_trace
from cascade_client.wire.runs import RunEntry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

UP_WITHIN_S = 120.0
DOWN_WITHIN_S = 90.0
POLL_S = 0.1
TOKEN = "serve-test-token"


class Serve:
    """One `cascade serve` process on a data directory."""

    def __init__(self, data_dir: Path, port: int, s3_port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.s3 = f"http://127.0.0.1:{s3_port}"
        self._log = data_dir.parent / "serve.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CASCADE_")}
        environment |= {
            "CASCADE_TOKEN": TOKEN,
            "CASCADE_DATA_DIR": str(data_dir),
            "CASCADE_SAMPLES": "false",
            # So slow that a sim is still running however late anybody looks.
            "CASCADE_SIM_CMD": worker_command("--replay", str(bundled.REPLAY_LOG), "--delay", "60"),
            "CASCADE_ACCELSIM_DIR": str(bundled.CONFIGS),
            "CASCADE_PUBLIC_URL": self.url,
        }
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "cascade_cli",
                    "serve",
                    "--port",
                    str(port),
                    "--s3-port",
                    str(s3_port),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def family(self) -> list[psutil.Process]:
        return [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]

    async def up(self) -> None:
        deadline = time.monotonic() + UP_WITHIN_S
        async with AsyncCascadeClient(self.url) as client:
            while time.monotonic() < deadline:
                assert self.process.poll() is None, self.log()[-3000:]
                try:
                    if (await client.ready()).ok:
                        return
                except Unreachable:
                    pass
                await asyncio.sleep(POLL_S)
        pytest.fail(f"not up in {UP_WITHIN_S} s\n{self.log()[-3000:]}")

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DOWN_WITHIN_S)


@contextmanager
def serving(data_dir: Path) -> Iterator[Serve]:
    port, s3_port = free_ports(2)
    serve = Serve(data_dir, port, s3_port)
    try:
        yield serve
    finally:
        if serve.process.poll() is None:
            for process in serve.family():
                process.kill()
            serve.process.wait()


async def launch(serve: Serve) -> str:
    await upload_trace(
        bundled.DEMO_TRACE,
        endpoint=serve.s3,
        bucket="cascade",
        prefix="accelsim-traces",
        run_name="demo",
        meta={},
    )
    async with AsyncCascadeClient(serve.url, TOKEN) as client:

        async def ready() -> bool:
            return [trace.state for trace in await client.traces()] == ["ready"]

        await eventually(ready, "the trace is ready")
        run = await client.launch("demo", [RunEntry(gpu_config="SM80_A100", count=2)])

        async def started() -> bool:
            return {sim.state for sim in (await client.run(run.id)).sims} == {"running"}

        await eventually(started, "both sims run")
    return run.id


async def test_ctrl_c_ends_every_child_and_a_second_start_goes_on(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir) as serve:
        await serve.up()
        run_id = await launch(serve)
        family = serve.family()
        assert len(family) > 8  # three servers, the services, two sims
        assert serve.interrupt() == 0
        assert serve.log().rstrip().count("Press CTRL+C to quit") == 1
        _, alive = psutil.wait_procs(family, timeout=30)
        assert alive == [], [process.cmdline() for process in alive]
        assert not (data_dir / "embedded" / "running.json").exists()

    with serving(data_dir) as again:
        await again.up()
        async with AsyncCascadeClient(again.url, TOKEN) as client:

            async def ended() -> bool:
                return {sim.state for sim in (await client.run(run_id)).sims} == {"failed"}

            # The sims were ended with the app, and say so; the log and the trace are still there. An app that had not
            # the time to tell leaves it to the next one.
            await eventually(ended, "both sims have failed")
            run = await client.run(run_id)
            assert all("stopped" in (sim.error or "") for sim in run.sims), [sim.error for sim in run.sims]
            assert (await client.trace("demo")).state == "ready"
        assert again.interrupt() == 0


def test_without_a_token_it_says_which_variable_to_set(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CASCADE_")}
    done = subprocess.run(
        [sys.executable, "-m", "cascade_cli", "serve"],
        env=environment | {"CASCADE_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=UP_WITHIN_S,
        check=False,
    )
    assert done.returncode != 0
    assert "CASCADE_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_second_serve_on_the_same_data_is_refused_in_words(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir) as serve:
        await serve.up()
        with serving(data_dir) as second:
            assert second.process.wait(UP_WITHIN_S) != 0
        log = second.log()
        assert "Traceback" not in log
        assert "in use" in log or "another" in log, log[-2000:]
        assert serve.process.poll() is None
        assert serve.interrupt() == 0


def test_doctor_speaks_json(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CASCADE_")}
    done = subprocess.run(
        [sys.executable, "-m", "cascade_cli", "doctor", "--json"],
        env=environment | {"CASCADE_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=UP_WITHIN_S,
        check=False,
    )
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert findings["GPU configs"]["ok"] is True
    assert findings["app"]["ok"] is None
    assert "cascade serve" in findings["app"]["next_step"]
