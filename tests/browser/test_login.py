"""Getting in: the token screen, a refused token, the link that logs in, and out again."""

import re

from cascade_cli.testing_serve import Server
from playwright.async_api import Route, expect

from tests.browser.conftest import OpenPage


async def test_a_refused_token_says_so_and_the_right_one_opens_the_wanted_page(
    server: Server, open_page: OpenPage
) -> None:
    page = await open_page(server, "/runs", log_in=False)
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    await expect(page.get_by_label("Token")).to_be_focused()

    await page.get_by_label("Token").fill("not-the-token")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("This token was refused")
    await expect(page.get_by_label("Token")).to_have_attribute("aria-invalid", "true")

    await page.get_by_label("Token").fill(server.token)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    await expect(page).to_have_url(f"{server.url}/runs")


async def test_a_link_with_the_token_logs_in_and_leaves_the_address_bar(
    server: Server, open_page: OpenPage
) -> None:
    page = await open_page(server, "/traces")
    await expect(page.get_by_role("heading", name="Traces", level=1)).to_be_visible()
    assert server.token not in page.url
    assert "#" not in page.url

    # The browser keeps it: the same page opens without the link.
    await page.goto(f"{server.url}/runs")
    await expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    await expect(page.get_by_role("banner")).to_contain_text("acme-lab")


async def test_a_link_with_an_unquoted_percent_is_taken_as_it_is(server: Server, open_page: OpenPage) -> None:
    page = await open_page(server, "/traces#token=100%-not-the-token", log_in=False)
    await expect(page.get_by_role("alert")).to_contain_text("This token was refused")
    await page.get_by_label("Token").fill(server.token)
    await page.keyboard.press("Enter")
    await expect(page.get_by_test_id("traces")).to_be_visible()


async def test_logging_out_forgets_the_token(server: Server, open_page: OpenPage) -> None:
    page = await open_page(server, "/traces")
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()


async def test_a_token_that_the_server_no_longer_takes_leads_back_to_the_token_screen(
    server: Server, open_page: OpenPage
) -> None:
    page = await open_page(server, "/traces")
    await expect(page.get_by_test_id("traces")).to_be_visible()
    await page.evaluate("localStorage.setItem('cascade.token', 'of-yesterday')")
    await page.reload()
    await expect(page.get_by_test_id("token-form")).to_be_visible()
    await expect(page.get_by_role("alert")).to_contain_text(re.compile("refused"))


async def test_a_token_is_kept_while_the_server_gives_no_verdict(server: Server, open_page: OpenPage) -> None:
    page = await open_page(server, "/traces")
    await expect(page.get_by_test_id("traces")).to_be_visible()

    async def unavailable(route: Route) -> None:
        await route.fulfill(status=503, json={"detail": "starting"})

    await page.route("**/api/gpu-configs", unavailable)
    await page.reload()
    await expect(page.get_by_text("Loading Cascade")).to_be_visible()
    await page.unroute("**/api/gpu-configs")
    await expect(page.get_by_test_id("traces")).to_be_visible()
