"""Every screen, light, dark and 390 px wide: no accessibility violation, nothing wider than the screen, a picture.

Pictures go to `docs/screenshots/` where one is missing, and all of them with `CASCADE_SCREENSHOTS=1`; with Pillow
installed (`uv run --with pillow pytest ...`) they are a third of the size.
"""

import asyncio
import importlib
import importlib.util
import io
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from cascade_cli import bundled
from cascade_cli.testing_runs import ToldRun, operator_log, recorded_lines, tell, tell_run
from cascade_cli.testing_serve import Server
from playwright.async_api import Page, Route, ViewportSize, expect

from tests.browser.conftest import DESKTOP, SAMPLE_RUN, OpenPage

PICTURES: Final = bundled.ROOT / "docs" / "screenshots"
AXE: Final = bundled.WEB_SOURCES / "node_modules" / "axe-core" / "axe.min.js"
NARROW: Final[ViewportSize] = {"width": 390, "height": 844}
TALLEST_PX: Final = 2000
"""Pictures of a whole page end here."""
H100: Final = "sample__facebook_opt-125m__h100-e2e"
TAGS: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@dataclass(frozen=True)
class Places:
    """What the screens show."""

    trace_id: str
    estimated: str
    active: str
    states: ToldRun
    wide: ToldRun


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def places(server: Server, estimated_run: str) -> Places:
    """A workspace in which something is happening."""
    active = await server.launch(await server.upload("halfway-replayed"), {"SM80_A100": 2, "SM80_A30": 1})
    lines = recorded_lines()
    async with operator_log(server.data_dir) as log:
        states = await tell_run(log, "demo", {"SM80_A100": 4, "SM80_A30": 3})
        wide = await tell_run(log, "demo", {"SM80_A100": 40, "SM80_A30": 24})
        facts = [fact for sim in states.sims[:6] for fact in states.launched(sim)]
        for sim, part in zip(states.sims[:5], (1.0, 0.7, 0.4, 0.25, 0.85), strict=True):
            facts += [states.heartbeat(sim), *states.logged(sim, lines[: int(len(lines) * part)])]
        facts.append(states.succeeded(states.sims[0]))
        facts.append(states.failed(states.sims[3], "the simulator ended with code 134: core dumped"))
        facts.append(states.silent(states.sims[4]))
        for number, sim in enumerate(wide.sims[:56]):
            facts += [*wide.launched(sim), wide.heartbeat(sim)]
            facts += wide.logged(sim, lines[: 400 + 175 * number], chunk=10_000)
            facts += [wide.succeeded(sim)] if number % 5 == 0 else []
        await tell(log, facts)

    done = [6, 4, 2, 2, 5, 0, 0]
    await server.shows(
        states.run_id, lambda run: [sim["kernels_done"] for sim in run["sims"]] == done, "is parsed"
    )
    await server.shows(active, lambda run: all(sim["kernels_done"] >= 3 for sim in run["sims"]), "is halfway")
    return Places("demo", estimated_run, active, states, wide)


Prepare = Callable[[Page], Awaitable[None]]


@dataclass(frozen=True)
class Screen:
    """One screen: where it is, and what makes it complete."""

    name: str
    path: Callable[[Places], str]
    prepare: Prepare
    log_in: bool = True
    whole: bool = False
    """The picture shows the whole page."""


def shows(testid: str) -> Prepare:
    """Complete when `testid` is there."""

    async def prepare(page: Page) -> None:
        await expect(page.get_by_test_id(testid).first).to_be_visible()

    return prepare


async def no_traces(page: Page) -> None:
    async def none(route: Route) -> None:
        await route.fulfill(json=[])

    await page.route("**/api/traces", none)
    await page.reload()
    await shows("no-traces")(page)


async def whole_run(page: Page) -> None:
    await shows("timeline")(page)
    await shows("compare-row")(page)
    await shows("file")(page)


async def estimated_run_screen(page: Page) -> None:
    await whole_run(page)
    await shows("estimate-totals")(page)


async def sample_run(page: Page) -> None:
    await whole_run(page)
    await shows("step-table")(page)


async def searched_log(page: Page) -> None:
    await page.get_by_test_id("log-search").press("Enter")
    await expect(page.get_by_test_id("log-lines").locator(".current")).to_be_visible()


async def answered(page: Page) -> None:
    await page.get_by_test_id("scenario-submit").click()
    await shows("percentiles")(page)
    await page.evaluate("scrollTo(0, 0)")


async def away(page: Page) -> None:
    await shows("trace-row")(page)
    await page.route("**/api/**", lambda route: route.abort())
    await shows("offline")(page)


async def nothing_here(page: Page) -> None:
    await expect(page.get_by_role("heading", name="Nothing here")).to_be_visible()


SCREENS: Final = (
    Screen("token", lambda _: "/", shows("token-form"), log_in=False),
    Screen("traces", lambda _: "/traces", shows("trace-row")),
    Screen("traces-empty", lambda _: "/traces", no_traces),
    Screen("trace", lambda at: f"/traces/{at.trace_id}", shows("trace-kernels"), whole=True),
    Screen("trace-sample", lambda _: f"/traces/{H100}", shows("trace-kernels"), whole=True),
    Screen(
        "new-run",
        lambda at: f"/traces/{at.trace_id}/new-run?config=SM80_A100&config=SM80_A30",
        shows("launch"),
    ),
    Screen("runs", lambda _: "/runs", shows("run-row")),
    Screen("run-active", lambda at: f"/runs/{at.active}", shows("estimate-totals"), whole=True),
    Screen("run-states", lambda at: f"/runs/{at.states.run_id}", shows("timeline"), whole=True),
    Screen("run-64-sims", lambda at: f"/runs/{at.wide.run_id}", shows("timeline"), whole=True),
    Screen("run-estimated", lambda at: f"/runs/{at.estimated}", estimated_run_screen, whole=True),
    Screen("run-sample", lambda _: f"/runs/{SAMPLE_RUN}", sample_run, whole=True),
    Screen(
        "sim", lambda at: f"/runs/{at.states.run_id}/sims/{at.states.sims[1].sim_id}", shows("sim-drawer")
    ),
    Screen(
        "sim-kernels",
        lambda at: f"/runs/{at.states.run_id}/sims/{at.states.sims[0].sim_id}/kernels",
        shows("kernel-metrics"),
    ),
    Screen(
        "log",
        lambda at: f"/runs/{at.states.run_id}/sims/{at.states.sims[0].sim_id}/log?q=kernel_name",
        searched_log,
    ),
    Screen(
        "compare",
        lambda _: f"/compare?run={SAMPLE_RUN}&run=run-sample-opt125m-a100-e2e",
        shows("compare-row"),
        whole=True,
    ),
    Screen("simulator", lambda _: f"/simulator?trace={H100}&config=SM90_H100", shows("scenario-form")),
    Screen(
        "simulator-answer",
        lambda _: f"/simulator?trace={H100}&config=SM90_H100&prompt=48&output=64&count=60&rate=8",
        answered,
        whole=True,
    ),
    Screen("server-away", lambda _: "/traces", away),
    Screen("not-found", lambda _: "/no/such/page", nothing_here),
)


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
async def test_a_screen_reads_well_in_light_dark_and_narrow(
    screen: Screen, server: Server, places: Places, open_page: OpenPage
) -> None:
    page = await open_page(server, screen.path(places), log_in=screen.log_in, color_scheme="light")
    await screen.prepare(page)
    await look(page, screen, "light")
    await page.emulate_media(color_scheme="dark")
    await look(page, screen, "dark")
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size(NARROW)
    await look(page, screen, "narrow")
    # Charts follow a change of size in one of the next frames.
    await page.wait_for_function(
        "(most) => document.documentElement.scrollWidth <= most", arg=NARROW["width"]
    )


async def look(page: Page, screen: Screen, variant: str) -> None:
    """Check the page as it is now, and take its picture where one is wanted."""
    assert await violations(page) == [], f"{screen.name}, {variant}"
    picture = PICTURES / f"{screen.name}-{variant}.png"
    if os.environ.get("CASCADE_SCREENSHOTS") == "1" or not picture.exists():
        await take(page, picture, whole=screen.whole)


async def violations(page: Page) -> list[str]:
    """What axe finds wrong. Evaluated, not added as a script: the page's own policy allows no foreign script."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text())
    found: dict[str, list[dict[str, Any]]] = await page.evaluate(
        "(tags) => axe.run(document, {runOnly: tags, resultTypes: ['violations']})", TAGS
    )
    assert len(found["passes"]) > 10  # it did look
    return [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]} ({node['failureSummary']})"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


async def take(page: Page, picture: Path, *, whole: bool) -> None:
    """Save a picture: what is in view, or the whole page down to a limit."""
    size = page.viewport_size or DESKTOP
    if whole:
        height = await page.evaluate("document.documentElement.scrollHeight")
        await page.set_viewport_size({"width": size["width"], "height": min(height, TALLEST_PX)})
    await page.mouse.move(0, 0)
    # The charts draw on the next frame after the size has changed.
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    image = await page.screenshot(animations="disabled", caret="hide")
    await asyncio.to_thread(lambda: picture.write_bytes(smaller(image)))
    await page.set_viewport_size(size)


def smaller(png: bytes) -> bytes:
    """The picture in 256 colours, where Pillow is installed."""
    if importlib.util.find_spec("PIL") is None:
        return png
    pillow = importlib.import_module("PIL.Image")
    packed = io.BytesIO()
    picture = pillow.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(256, kmeans=1, dither=0).save(packed, "PNG", optimize=True)
    return packed.getvalue()
