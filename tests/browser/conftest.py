"""A real `cascade serve` with its samples, a real Chromium, and what the browser tests say to both.

Everything is asynchronous on the session's loop: Playwright's synchronous interface would keep that loop busy for the
asynchronous tests of other packages.
"""

import asyncio
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx
import psutil
import pytest
import pytest_asyncio
from cascade_cli import bundled, web_commands
from cascade_cli.embedded.process import free_ports
from cascade_client.upload import upload_trace
from playwright.async_api import Browser, ConsoleMessage, Error, Page, ViewportSize, async_playwright

PATIENCE_S = 90.0
ENDED = ("succeeded", "partial", "failed", "cancelled")
SIMULATOR = Path(__file__).parent / "simulator.py"
DESKTOP: ViewportSize = {"width": 1280, "height": 800}
SAMPLE_RUN = "run-sample-opt125m-h100-e2e"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder; without a Chromium, skip it and say so."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            if chromium() is None:
                item.add_marker(
                    pytest.mark.skip(reason="no Chromium: apt-get install chromium, or set CASCADE_CHROMIUM")
                )


def chromium() -> str | None:
    """The browser to drive."""
    named = os.environ.get("CASCADE_CHROMIUM")
    return (
        named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    )


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
        environment = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
        environment |= {
            "CASCADE_TOKEN": self.token,
            "CASCADE_HOST": "127.0.0.1",
            "CASCADE_PORT": str(self.ports[0]),
            "CASCADE_S3_PORT": str(self.ports[1]),
            "CASCADE_DATA_DIR": str(self.data_dir),
            "CASCADE_ACCELSIM_DIR": str(bundled.CONFIGS),
            "CASCADE_SIM_CMD": shlex.join([sys.executable, str(SIMULATOR)]),
            "CASCADE_SAMPLES": str(int(self.samples)),
            "CASCADE_WORKSPACE": "browser-tests",
        }
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
                runs = (await client.get("/api/runs")).json()
        except httpx.TransportError:
            return False
        return not self.samples or sum(run["state"] == "succeeded" for run in runs) >= 3

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
        children = psutil.Process(self.process.pid).children(recursive=True)
        return next(child for child in children if module in child.cmdline())

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
        async with self.client() as client:
            answer: dict[str, Any] = (await client.get(f"/api/runs/{run_id}")).raise_for_status().json()
        return answer

    async def ended(self, run_id: str) -> dict[str, Any]:
        """Wait for a run's end."""

        async def probe() -> bool:
            return (await self.run(run_id))["state"] in ENDED

        await eventually(probe, f"{run_id} ended")
        return await self.run(run_id)


class OpenPage(Protocol):
    """Opens a page in a browser profile of its own."""

    async def __call__(
        self, server: Server, path: str = "/", *, log_in: bool = True, **options: Any
    ) -> Page: ...


@pytest.fixture(scope="session")
def dashboard() -> None:
    """The dashboard's files are built from what is in `web/`."""
    web_commands.build(quiet=True)


@asynccontextmanager
async def serving(directory: Path, *, samples: bool) -> AsyncIterator[Server]:
    """A server during the block."""
    directory.chmod(0o755)  # noqa: ASYNC240
    server = Server(directory, samples)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(dashboard: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """The server that most tests share."""
    async with serving(tmp_path_factory.mktemp("serve"), samples=True) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def empty_server(dashboard: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server without samples, for first uploads, outages and restarts."""
    async with serving(tmp_path_factory.mktemp("empty"), samples=False) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Chromium. The sandbox needs rights that a container does not give."""
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield launched
        await launched.close()


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser) -> AsyncIterator[OpenPage]:
    """Opens pages. A test whose page reports an error in the console fails, whatever it looked at."""
    contexts = []
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        # A refused token and an absent server are answers that the page shows, and Chromium logs each of them.
        if message.type == "error" and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    def fail(error: Error) -> None:
        complaints.append(f"{error.message}\n{error.stack}")

    async def open_one(server: Server, path: str = "/", *, log_in: bool = True, **options: Any) -> Page:
        context = await browser.new_context(**{"viewport": DESKTOP, "reduced_motion": "reduce"} | options)
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = await context.new_page()
        page.on("console", listen)
        page.on("pageerror", fail)
        await page.goto(f"{server.url}{path}" + (f"#token={server.token}" if log_in else ""))
        return page

    yield open_one
    for context in contexts:
        await context.close()
    assert complaints == []


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def live_trace(server: Server) -> str:
    """A trace whose sims replay a log at a pace that can be watched."""
    return await server.upload("live-demo")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def estimated_run(server: Server) -> str:
    """An ended run of the bundled trace, estimated on three configs."""
    trace_id = await server.upload("demo")
    run_id = await server.launch(trace_id, {"SM80_A100": 2, "SM80_A100_40GB": 1, "SM80_A30": 1})
    await server.ended(run_id)
    return run_id
