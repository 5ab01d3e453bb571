"""A real `cascade serve` with its samples, a real Chromium, and what the browser tests say to both.

Everything is asynchronous on the session's loop: Playwright's synchronous interface would keep that loop busy for the
asynchronous tests of other packages.
"""

import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from cascade_cli import web_commands
from cascade_cli.testing_serve import Server, serving
from cascade_launcher.trace_paths import trace_dir
from playwright.async_api import Browser, ConsoleMessage, Error, Page, ViewportSize, async_playwright, expect

SIMULATOR = Path(__file__).parent / "simulator.py"
DESKTOP: ViewportSize = {"width": 1280, "height": 800}
SETTINGS = {
    "CASCADE_SIM_CMD": shlex.join([sys.executable, str(SIMULATOR)]),
    "CASCADE_WORKSPACE": "acme-lab",
}
# A machine that does much else at once is slow, not wrong.
WITHIN_MS = 60_000
TEST_TIMEOUT_S = 600
"""A test waits for many things one after another, the first of a session for the server and the dashboard too."""
expect.set_options(timeout=WITHIN_MS)
SAMPLE_RUN = "run-sample-opt125m-h100-e2e"
KERNELS_OF_DEMO = 8
"""Of the bundled trace."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder; without a Chromium, skip it and say so."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))
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


_NOTES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def notes(pytestconfig: pytest.Config) -> list[str]:
    """Figures that the session's summary tells, passed or not."""
    return pytestconfig.stash.setdefault(_NOTES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tell the figures."""
    for note in config.stash.get(_NOTES, []):
        terminalreporter.write_line(note)


class OpenPage(Protocol):
    """Opens a page in a browser profile of its own."""

    async def __call__(
        self, server: Server, path: str = "/", *, log_in: bool = True, **options: Any
    ) -> Page: ...


@pytest.fixture(scope="session")
def dashboard() -> None:
    """The dashboard's files are built from what is in `web/`."""
    web_commands.build(quiet=True)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(dashboard: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """The server that most tests share."""
    async with serving(tmp_path_factory.mktemp("serve"), samples=True, settings=SETTINGS) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def empty_server(dashboard: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server without samples, for first uploads, outages and restarts; a module's own, since uploads stay."""
    async with serving(tmp_path_factory.mktemp("empty"), samples=False, settings=SETTINGS) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Chromium. The sandbox needs rights that a container does not give."""
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=chromium(),
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
            timeout=2 * WITHIN_MS,
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
        context.set_default_timeout(WITHIN_MS)
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
    await server.ended(run_id, kernels=KERNELS_OF_DEMO)
    return run_id


def let_go_on(server: Server, trace_id: str) -> None:
    """The sims of this held trace go on with the second half of their log."""
    directory = trace_dir(server.data_dir, bucket="cascade", prefix="accelsim-traces", trace_id=trace_id)
    assert directory.is_dir()
    (directory / "go on").touch()
