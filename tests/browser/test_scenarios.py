"""The request simulator on the seeded sample: from a run to percentiles, with where they come from beside them."""

import re

from cascade_cli.testing_serve import Server
from playwright.async_api import expect

from tests.browser.conftest import SAMPLE_RUN, OpenPage

H100 = "sample__facebook_opt-125m__h100-e2e"


async def test_a_scenario_runs_from_a_sample_run(server: Server, open_page: OpenPage) -> None:
    page = await open_page(server, f"/runs/{SAMPLE_RUN}")
    await page.locator(".actions").get_by_role("link", name="Request simulator").click()
    # Trace and config come from the run.
    await expect(page.get_by_label("Trace", exact=True)).to_have_value(H100)
    await expect(page.get_by_label("GPU config", exact=True)).to_have_value("SM90_H100")

    await page.get_by_test_id("field-prompt").fill("6")
    await page.get_by_test_id("field-output").fill("32")
    await page.get_by_test_id("field-count").fill("40")
    await page.get_by_test_id("field-rate").fill("2")
    await page.get_by_test_id("scenario-submit").click()

    percentiles = page.get_by_test_id("percentiles")
    await expect(percentiles).to_be_visible()
    await expect(percentiles).to_contain_text(re.compile(r"TTFT p50\s*\d+(\.\d+)? ms"))
    await expect(percentiles).to_contain_text(re.compile(r"Throughput\s*\d+(\.\d+)? tok/s"))
    await expect(page.get_by_test_id("provenance")).to_contain_text("Calibrated for prefills of 6 tokens")
    await expect(page.get_by_test_id("provenance")).to_contain_text("chunked prefill on")
    await expect(page.get_by_test_id("notice-sample")).to_be_visible()
    # Two a second never meet: every step has the profile's own size.
    await expect(page.get_by_test_id("extrapolated")).to_have_count(0)
    await expect(page.get_by_role("heading", name="40 requests")).to_be_visible()

    # The table sorts, and the address names the whole question.
    requests = page.get_by_test_id("scenario-requests")
    await requests.get_by_role("button", name="TTFT").click()
    await expect(requests.get_by_role("columnheader", name="TTFT")).to_have_attribute(
        "aria-sort", "descending"
    )
    await page.reload()
    await expect(page.get_by_test_id("field-count")).to_have_value("40")


async def test_a_scenario_outside_the_profile_says_that_it_is_unvalidated(
    server: Server, open_page: OpenPage
) -> None:
    page = await open_page(
        server, f"/simulator?trace={H100}&config=SM90_H100&prompt=512&output=16&count=64&rate=0"
    )
    await page.get_by_text("Scheduler assumptions and base run").click()
    await page.get_by_test_id("field-max_num_batched_tokens").fill("1024")
    await page.get_by_test_id("scenario-submit").click()
    await expect(page.get_by_test_id("extrapolated")).to_contain_text("unvalidated")
    await expect(page.get_by_test_id("provenance")).to_contain_text("1,024 tokens a step")
    await expect(page.get_by_test_id("provenance")).to_contain_text("extrapolated")
    await expect(page.get_by_role("status").filter(has_text="Page 1 of")).to_be_visible()
    await page.get_by_role("button", name="Next").click()
    await expect(page.get_by_role("status").filter(has_text="Page 2 of")).to_be_visible()


async def test_what_the_form_cannot_send_is_said_beside_the_field(
    server: Server, open_page: OpenPage
) -> None:
    page = await open_page(server, f"/simulator?trace={H100}&config=SM90_H100")
    await page.get_by_test_id("field-count").fill("5000")
    await page.get_by_test_id("field-prompt").fill("many")
    await page.get_by_test_id("scenario-submit").click()
    for name in ("count", "prompt"):
        await expect(page.get_by_test_id(f"field-{name}")).to_have_attribute("aria-invalid", "true")
    await page.get_by_test_id("field-count").fill("4")
    await expect(page.get_by_test_id("field-count")).to_have_attribute("aria-invalid", "false")


async def test_what_the_server_refuses_is_shown_in_its_words(server: Server, open_page: OpenPage) -> None:
    page = await open_page(
        server, f"/simulator?trace={H100}&config=SM90_H100&prompt=4000&output=200&count=1&rate=0"
    )
    await page.get_by_test_id("scenario-submit").click()
    await expect(page.get_by_test_id("scenario-error")).to_contain_text(re.compile(r"\S{3,}"))
