"""A page that lives on a stream: what a reader is doing goes on while events redraw it."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from cascade_cli.testing_runs import operator_log, tell, tell_run
from cascade_cli.testing_serve import PATIENCE_S, Server
from cascade_core.kernels.facts import KernelFinished
from playwright.async_api import Route, expect

from tests.browser.conftest import OpenPage

CHUNKS = 5


async def test_the_question_before_a_cancel_keeps_the_focus_where_the_reader_put_it(
    server: Server, estimated_run: str, open_page: OpenPage
) -> None:
    async with operator_log(server.data_dir) as log:
        run = await tell_run(log, "demo", {"SM80_A100": 1})
        sim = run.sims[0]
        await tell(log, [*run.launched(sim), run.heartbeat(sim)])
        await server.shows(run.run_id, all_sims("running"), "runs")
        page = await open_page(server, f"/runs/{run.run_id}")
        await page.get_by_test_id("cancel-run").click()
        await expect(page.get_by_test_id("confirm-cancel")).to_be_focused()
        await page.keyboard.press("Tab")
        keep = page.get_by_role("button", name="Keep running")
        await expect(keep).to_be_focused()
        for number in range(CHUNKS):
            await tell(log, [run.chunk(sim, number, [f"line {number}"])])
            await expect(page.get_by_test_id("sim-card")).to_contain_text(f"line {number}")
            await expect(keep).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_test_id("cancel-run")).to_be_visible()
        await expect(page.locator(".head").get_by_test_id("state")).to_have_text("active")


async def test_a_cancelled_sim_is_not_called_failed_for_having_been_silent(
    server: Server, estimated_run: str, open_page: OpenPage
) -> None:
    async with operator_log(server.data_dir) as log:
        run = await tell_run(log, "demo", {"SM80_A100": 1})
        sim = run.sims[0]
        await tell(log, [*run.launched(sim), run.heartbeat(sim), run.silent(sim)])
    await server.shows(run.run_id, all_sims("lost"), "is lost")
    page = await open_page(server, f"/runs/{run.run_id}/sims/{sim.sim_id}")
    drawer = page.get_by_test_id("sim-drawer")
    banner = drawer.locator(".banner")
    await expect(banner).to_contain_text("Lost")
    await server.cancel(run.run_id)
    await expect(drawer.get_by_test_id("state")).to_have_text("cancelled")
    await expect(banner).to_have_text("Before it was cancelledno heartbeat for 60s")


async def test_a_key_that_comes_before_the_next_frame_closes_a_sims_details(
    server: Server, estimated_run: str, open_page: OpenPage
) -> None:
    async with operator_log(server.data_dir) as log:
        run = await tell_run(log, "demo", {"SM80_A100": 1})
        await tell(log, run.launched(run.sims[0]))
    await server.shows(run.run_id, all_sims("launching"), "is launched")
    page = await open_page(server, "/traces")
    await page.clock.install()
    await page.goto(f"{server.url}/runs/{run.run_id}")
    sim = page.get_by_test_id("sim-card").get_by_role("link", name="Replica 0")
    await expect(sim).to_be_visible()
    await page.clock.pause_at(datetime.now(UTC) + timedelta(hours=1))  # from here on the page gets no frame
    await sim.click()
    drawer = page.get_by_test_id("sim-drawer")
    await expect(drawer).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(drawer).to_have_count(0)
    await expect(sim).to_be_focused()


async def test_a_running_sims_log_is_followed_though_it_came_before_the_run_did(
    server: Server, estimated_run: str, open_page: OpenPage
) -> None:
    async with operator_log(server.data_dir) as log:
        run = await tell_run(log, "demo", {"SM80_A100": 1})
        sim = run.sims[0]
        await tell(log, [*run.launched(sim), run.heartbeat(sim), run.chunk(sim, 0, numbered(0, 300))])
        # The page reads the log once until it has the run, which it gets when it has the log.
        await server.shows(
            run.run_id, lambda shown: shown["sims"][0]["log_tail"][-1:] == ["line 299"], "has a log"
        )
        page = await open_page(server, "/traces")
        asked = asyncio.Event()

        async def late(route: Route) -> None:
            await asked.wait()
            await route.continue_()

        await page.route(f"**/api/runs/{run.run_id}", late)
        await page.goto(f"{server.url}/runs/{run.run_id}/sims/{sim.sim_id}/log")
        await expect(page.get_by_label("Log", exact=True).first).to_contain_text("300 lines")
        asked.set()
        await expect(page.get_by_label("Follow the end")).to_be_checked()
        await expect(page.get_by_text("line 299", exact=True)).to_be_visible()
        await tell(log, [run.chunk(sim, 1, numbered(300, 600))])
        await expect(page.get_by_text("line 599", exact=True)).to_be_visible()


async def test_a_slow_estimate_arrives_though_kernels_land_meanwhile(
    server: Server, open_page: OpenPage
) -> None:
    run_id = await server.launch(await server.upload("endless-estimated"), {"SM80_A100": 1})
    page = await open_page(server, "/traces")
    asked = asyncio.Queue[Route]()
    await page.route(f"**/api/runs/{run_id}/estimate", asked.put)
    await page.clock.install()
    await page.goto(f"{server.url}/runs/{run_id}")
    first = await asyncio.wait_for(asked.get(), PATIENCE_S)
    running = page.get_by_test_id("sim-card")
    await expect(running).to_have_attribute("data-state", "running")
    sim_id = (await server.run(run_id))["sims"][0]["id"]
    async with operator_log(server.data_dir) as log:
        for index in range(2):
            landed = KernelFinished(
                run_id=run_id,
                sim_id=sim_id,
                occurred_at=datetime.now(UTC),
                index=index,
                kernel_name="_Z11copy_kernelIdEvPKT_PS0_",
                gpu_sim_cycle=1000,
            )
            await tell(log, [landed])
            await expect(page.get_by_test_id("compare-row")).to_have_count(index + 1)
            await page.clock.fast_forward(60_000)
    await first.continue_()
    await expect(page.get_by_test_id("estimate-totals")).to_be_visible()

    # What landed since is asked for after it.
    await page.clock.fast_forward(60_000)
    await (await asyncio.wait_for(asked.get(), PATIENCE_S)).continue_()
    await server.cancel(run_id)


def all_sims(state: str) -> Callable[[dict[str, Any]], bool]:
    """Whether every sim of a run is in this state."""
    return lambda shown: all(sim["state"] == state for sim in shown["sims"])


def numbered(start: int, end: int) -> list[str]:
    """Lines that tell their place."""
    return [f"line {number}" for number in range(start, end)]
