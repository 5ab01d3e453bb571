"""For tests: `cascade serve` as a user starts it, and what tests ask of it. May be stopped and started again."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from cascade_client.upload import upload_trace

from cascade_cli import bundled
from cascade_cli.embedded.process import free_ports

PATIENCE_S: Final = 90.0
ENDED: Final = ("succeeded", "partial", "failed", "cancelled")


async def eventually(
    probe: Callable[[], Awaitable[bool]], what: str, *, within_s: float = PATIENCE_S
) -> None:
    """Wait until `probe` says yes."""
    until = time.monotonic() + within_s
    while not await probe():
        assert time.monotonic() < until, f"not within {within_s:.0f} s: {what}"
        await asyncio.sleep(0.1)


@dataclass
class Server:
    """One `cascade serve`, as a user starts it. It may be stopped and started again on the same data."""

    directory: Path
    samples: bool
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further variables of its environment."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    ports: list[int] = field(default_factory=lambda: free_ports(2))
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """Where the dashboard is."""
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def s3_endpoint(self) -> str:
        """Where traces go."""
        return f"http://127.0.0.1:{self.ports[1]}"

    @property
    def data_dir(self) -> Path:
        """Its data."""
        return self.directory / "data"

    def client(self) -> httpx.AsyncClient:
        """An HTTP client with the token."""
        return httpx.AsyncClient(
            base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=60
        )

    async def start(self) -> None:
        """Start it and wait until it is ready, and seeded."""
        environment = {
            key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR", "PYTHONPATH") if key in os.environ
        }
        environment |= {
            "CASCADE_TOKEN": self.token,
            "CASCADE_HOST": "127.0.0.1",
            "CASCADE_PORT": str(self.ports[0]),
            "CASCADE_S3_PORT": str(self.ports[1]),
            "CASCADE_DATA_DIR": str(self.data_dir),
            "CASCADE_ACCELSIM_DIR": str(bundled.CONFIGS),
            "CASCADE_SAMPLES": str(int(self.samples)),
        }
        environment |= self.settings
        with (self.directory / "serve.log").open("ab") as output:
            # Not asyncio's: its watcher would have to live as long as the process.
            self.process = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-m", "cascade_cli", "serve"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        await eventually(self._ready, f"ready; its output is in {self.directory / 'serve.log'}")

    async def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "serve.log").read_text()[-4000:]
        try:
            async with self.client() as client:
                if (await client.get("/api/ready")).status_code != 200:
                    return False
                answer = await client.get("/api/runs")
        except httpx.TransportError:
            return False
        if answer.status_code != 200:
            return False
        return not self.samples or sum(run["state"] == "succeeded" for run in answer.json()) >= 3

    async def stop(self) -> None:
        """Stop it in order, as Ctrl+C does."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self.process.wait, 60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def service(self, module: str) -> psutil.Process:
        """The process of one service."""
        assert self.process is not None
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # a simulator that ended since the children were listed
                if module in child.cmdline():
                    return child
        raise AssertionError(f"no process of {module}")

    async def upload(self, name: str, directory: Path = bundled.DEMO_TRACE) -> str:
        """Upload a trace and wait until a run may use it; returns its id."""
        await upload_trace(
            directory,
            endpoint=self.s3_endpoint,
            bucket="cascade",
            prefix="accelsim-traces",
            run_name=name,
            meta={},
        )

        async def ready() -> bool:
            async with self.client() as client:
                answer = await client.get(f"/api/traces/{name}")
            return answer.status_code == 200 and answer.json()["state"] == "ready"

        await eventually(ready, f"trace {name} is ready")
        return name

    async def launch(self, trace_id: str, entries: Mapping[str, int]) -> str:
        """Launch a run; returns its id."""
        rows = [{"gpu_config": name, "count": count} for name, count in entries.items()]
        async with self.client() as client:
            answer = await client.post("/api/runs", json={"trace_id": trace_id, "entries": rows})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def run(self, run_id: str) -> dict[str, Any]:
        """A run as the API tells it."""
        return await self.shows(run_id, lambda _: True, "is known")

    async def shows(self, run_id: str, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """Wait until a run is as `wanted`; returns it.

        The views follow the log: a reader waits for what this app appended, and not for what a test or another service
        did. So what was told to the log may not be there yet, the run itself among it.
        """
        shown: dict[str, Any] = {}

        async def probe() -> bool:
            nonlocal shown
            async with self.client() as client:
                answer = await client.get(f"/api/runs/{run_id}")
            if answer.status_code != 200:
                assert answer.status_code in (404, 503), answer.text
                return False
            shown = answer.json()
            return wanted(shown)

        await eventually(probe, f"{run_id} {what}")
        return shown

    async def ended(self, run_id: str, *, kernels: int = 0) -> dict[str, Any]:
        """Wait for a run's end and for `kernels` of each sim: the last ones may be parsed after the sim's end."""

        def over(run: dict[str, Any]) -> bool:
            return run["state"] in ENDED and all(sim["kernels_done"] >= kernels for sim in run["sims"])

        return await self.shows(run_id, over, f"has ended with {kernels} kernels a sim")

    async def cancel(self, run_id: str) -> None:
        """Cancel a run, again until it is answered: a server that is late answers 503, and a repeat changes nothing."""

        async def cancelled() -> bool:
            async with self.client() as client:
                answer = await client.post(f"/api/runs/{run_id}/cancel")
            assert answer.status_code in (200, 503), answer.text
            return answer.status_code == 200

        await eventually(cancelled, f"{run_id} is cancelled")


@asynccontextmanager
async def serving(directory: Path, *, samples: bool, settings: Mapping[str, str]) -> AsyncIterator[Server]:
    """A server during the block, with its data in `directory`."""
    directory.chmod(0o755)  # noqa: ASYNC240
    server = Server(directory, samples, settings)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
