"""Losing the server: a killed gateway, an app that is stopped and started again, and an answer that cannot be drawn."""

import re
import signal

from cascade_cli.testing_serve import Server
from playwright.async_api import Route, expect

from tests.browser.conftest import OpenPage, let_go_on


async def test_a_run_survives_the_kill_of_the_gateway(server: Server, open_page: OpenPage) -> None:
    run_id = await server.launch(await server.upload("held-outage"), {"SM80_A100": 1})
    page = await open_page(server, f"/runs/{run_id}")
    card = page.get_by_test_id("sim-card")
    line = page.get_by_test_id("line")
    await expect(card).to_have_attribute("data-state", "running")

    gateway = server.service("cascade_api.main")
    supervisor = server.process
    assert supervisor is not None
    supervisor.send_signal(signal.SIGSTOP)  # no new gateway before the page was looked at
    try:
        gateway.kill()
        await expect(line).to_have_attribute("data-state", "waiting")
        await expect(line).to_contain_text("Reconnecting by itself")
        # What was known stays on the page.
        await expect(card).to_be_visible()
    finally:
        supervisor.send_signal(signal.SIGCONT)

    # Nobody reloads: the line comes back, and the sim ends on it.
    await expect(line).to_have_attribute("data-state", "live")
    let_go_on(server, "held-outage")
    await expect(page.locator(".head").get_by_test_id("state")).to_have_text("succeeded")
    await expect(card).to_contain_text("6 / 8 kernels")
    assert server.service("cascade_api.main").pid != gateway.pid


async def test_lists_recover_after_the_app_was_away(empty_server: Server, open_page: OpenPage) -> None:
    await empty_server.upload("demo")
    page = await open_page(empty_server, "/traces")
    row = page.get_by_test_id("trace-row").filter(has_text="demo")
    await expect(row.first).to_be_visible()

    await empty_server.stop()
    offline = page.get_by_test_id("offline")
    await expect(offline).to_contain_text("The server doesn't answer")
    await expect(offline).to_contain_text(re.compile(r"for \d+ (s|min)"))
    # What was known stays; what was not says what is wrong.
    await expect(row.first).to_be_visible()
    await page.get_by_role("navigation", name="Main").get_by_role("link", name="Runs").click()
    await expect(page.get_by_test_id("error")).to_contain_text("can't be reached")

    await empty_server.start()
    await expect(offline).to_have_count(0)
    await expect(page.get_by_test_id("error")).to_have_count(0)
    await page.get_by_role("navigation", name="Main").get_by_role("link", name="Traces").click()
    await expect(row.first).to_be_visible()


async def test_an_answer_that_cannot_be_drawn_leaves_the_rest_of_the_page(
    server: Server, open_page: OpenPage
) -> None:
    page = await open_page(server, "/traces")
    await expect(page.get_by_test_id("traces")).to_be_visible()

    async def garbled(route: Route) -> None:
        await route.fulfill(json=[{"id": "run-of-tomorrow"}])

    await page.route("**/api/runs", garbled)
    places = page.get_by_role("navigation", name="Main")
    await places.get_by_role("link", name="Runs").click()
    broken = page.get_by_test_id("broken")
    await expect(broken).to_be_visible()
    await expect(page.locator("main pre")).to_have_text(re.compile("TypeError"))
    await places.get_by_role("link", name="Traces").click()
    await expect(page.get_by_test_id("traces")).to_be_visible()

    await places.get_by_role("link", name="Runs").click()
    await expect(broken).to_be_visible()
    await page.unroute("**/api/runs")
    await broken.get_by_role("button", name="Reload").click()
    await expect(page.get_by_test_id("runs")).to_be_visible()
