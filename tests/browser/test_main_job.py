"""The main job, as somebody does it who knows only the dashboard: upload, launch, watch, cancel, read what failed."""

import asyncio
import re
import shlex
import sys

from cascade_cli import bundled
from cascade_cli.testing_serve import Server
from playwright.async_api import Page, expect

from tests.browser.conftest import OpenPage, let_go_on


async def run_command(text: str, *, directory: str, name: str) -> None:
    """Run the upload command that the dashboard shows, on our trace."""
    words = shlex.split(text.replace("\\\n", " "))
    assert words[:3] == ["uv", "run", "python"]
    words = [sys.executable, *words[3:]]
    words[words.index("./my-trace")] = directory
    words[words.index("--run-name") + 1] = name
    del words[words.index("--meta") :]  # the demo trace knows its architecture itself
    process = await asyncio.create_subprocess_exec(
        *words, cwd=bundled.ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


async def test_the_first_trace_is_uploaded_launched_and_watched_to_its_end(
    empty_server: Server, open_page: OpenPage
) -> None:
    page = await open_page(empty_server, "/")
    await expect(page).to_have_url(f"{empty_server.url}/traces")
    empty = page.get_by_test_id("no-traces")
    await expect(empty.get_by_role("heading", name="No trace yet")).to_be_visible()
    command = await empty.locator("pre").first.inner_text()
    assert f"--endpoint {empty_server.s3_endpoint}" in command

    # The command that the empty page shows works as it stands, and the trace appears without a reload.
    await run_command(command, directory=str(bundled.DEMO_TRACE), name="held-first")
    row = page.get_by_test_id("trace-row").filter(has_text="held-first")
    await expect(row.get_by_test_id("state")).to_have_text("ready")
    await expect(row).to_contain_text("demo/transformer-block")

    await row.get_by_role("link", name="held-first", exact=True).click()
    await expect(page.get_by_role("heading", name="held-first", level=1)).to_be_visible()
    await page.get_by_test_id("new-run").click()

    # What fits is chosen; what does not says why.
    await expect(page.get_by_label("SM80_A100 Suggested")).to_be_checked()
    other = page.get_by_test_id("config-row").filter(has_text="SM90_H100")
    await expect(other.get_by_role("checkbox")).to_be_disabled()
    await expect(other).to_contain_text("sm_90")
    await page.get_by_role("button", name="One SM80_A100 sim more", exact=True).click()
    await page.get_by_role("checkbox", name=re.compile("^SM80_A30")).check()
    await page.get_by_role("button", name="Launch 3 simulations").click()

    await watch_to_its_end(page, empty_server, sims=3)


async def watch_to_its_end(page: Page, server: Server, *, sims: int) -> None:
    """From a run's first moment to its last, without a reload. The sims stand still until their middle is seen."""
    await expect(page).to_have_url(re.compile(r"/runs/run-[0-9a-f]{12}$"))
    head = page.locator(".head")
    await expect(head.get_by_test_id("state")).to_have_text("active")
    await expect(page.get_by_test_id("line")).to_have_attribute("data-state", "live")
    cards = page.get_by_test_id("sim-card")
    await expect(cards).to_have_count(sims)
    first = cards.first
    await expect(first.get_by_test_id("state")).to_have_text("running")
    await expect(first.locator("time")).to_have_text(re.compile(r"now|\d+ (s|min) ago"))
    # Kernels land while the sim still runs, with a log that moves.
    await expect(first).to_contain_text(re.compile(r"[1-5] / 8 kernels"))
    await expect(first).to_have_attribute("data-state", "running")
    await expect(first.locator("pre.tail")).not_to_have_text(" ")
    await expect(page.get_by_test_id("notice-replay")).to_contain_text("do not describe the trace")

    let_go_on(server, "held-first")
    await expect(head.get_by_test_id("state")).to_have_text("succeeded")
    for card in await cards.all():
        await expect(card).to_have_attribute("data-state", "succeeded")
        await expect(card).to_contain_text("6 / 8 kernels")
        await expect(card).to_contain_text("replayed")
    await expect(page.get_by_test_id("line")).to_contain_text("Up to date")
    await expect(page.get_by_test_id("columns").locator("li")).to_have_count(2)
    await expect(page.get_by_test_id("columns")).to_contain_text("not comparable: replayed numbers")


async def test_a_run_is_cancelled_only_after_a_second_click(server: Server, open_page: OpenPage) -> None:
    trace_id = await server.upload("endless-demo")
    run_id = await server.launch(trace_id, {"SM80_A100": 2})
    page = await open_page(server, f"/runs/{run_id}")
    cards = page.get_by_test_id("sim-card")
    await expect(cards.first).to_have_attribute("data-state", "running")

    await page.get_by_test_id("cancel-run").click()
    await expect(page.get_by_test_id("confirm-cancel")).to_be_focused()
    await page.get_by_role("button", name="Keep running").click()
    await expect(page.get_by_test_id("cancel-run")).to_be_visible()
    assert (await server.run(run_id))["state"] == "active"

    await page.get_by_test_id("cancel-run").click()
    await page.get_by_test_id("confirm-cancel").click()
    await expect(page.locator(".head").get_by_test_id("state")).to_have_text("cancelled")
    for card in await cards.all():
        await expect(card).to_have_attribute("data-state", "cancelled")
    await expect(page.get_by_test_id("cancel-run")).to_have_count(0)
    assert (await server.ended(run_id))["state"] == "cancelled"


async def test_a_failed_sim_says_why_at_the_top_of_its_run(server: Server, open_page: OpenPage) -> None:
    trace_id = await server.upload("failing-demo")
    run_id = await server.launch(trace_id, {"SM80_A100": 1})
    page = await open_page(server, f"/runs/{run_id}")
    banner = page.get_by_test_id("failed-sims")
    await expect(banner).to_contain_text("1 sim did not go well")
    await banner.get_by_role("link").click()
    drawer = page.get_by_test_id("sim-drawer")
    await expect(drawer).to_be_focused()
    await expect(drawer.get_by_role("alert")).to_contain_text("code 3")
    await page.keyboard.press("Escape")
    await expect(drawer).to_have_count(0)


async def test_more_than_four_sims_come_with_a_plain_warning(
    server: Server, live_trace: str, open_page: OpenPage
) -> None:
    page = await open_page(server, f"/traces/{live_trace}/new-run")
    count = page.get_by_role("textbox", name="Sims on SM80_A100", exact=True)
    await count.fill("5")
    await expect(page.get_by_test_id("many-sims")).to_contain_text("This starts 5 simulators")
    await count.fill("65")
    await expect(count).to_have_attribute("aria-invalid", "true")
    await expect(page.get_by_test_id("launch")).to_be_disabled()
    await count.fill("64")
    await expect(page.get_by_test_id("launch")).to_have_text("Launch 64 simulations")
