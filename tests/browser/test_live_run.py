"""A page that lives on a stream: what a reader is doing goes on while events redraw it."""

from cascade_cli.testing_runs import operator_log, tell, tell_run
from cascade_cli.testing_serve import Server
from playwright.async_api import expect

from tests.browser.conftest import OpenPage

CHUNKS = 5


async def test_the_question_before_a_cancel_keeps_the_focus_where_the_reader_put_it(
    server: Server, estimated_run: str, open_page: OpenPage
) -> None:
    async with operator_log(server.data_dir) as log:
        run = await tell_run(log, "demo", {"SM80_A100": 1})
        sim = run.sims[0]
        await tell(log, [*run.launched(sim), run.heartbeat(sim)])
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
