"""Reading what a run gave: comparison, step timing, outputs, log, Perfetto, and what the banners say of it."""

import asyncio
import json
import re
from typing import Any

from cascade_cli.testing_runs import KERNELS, operator_log, recorded_lines, tell, tell_run
from cascade_cli.testing_serve import Server, eventually
from playwright.async_api import Page, Route, expect

from tests.browser.conftest import SAMPLE_RUN, OpenPage

# Stands for ui.perfetto.dev: answers PING, keeps what it is handed.
PERFETTO_STUB = """<!doctype html><title>Stub</title><script>
addEventListener("message", (event) => {
  if (event.data === "PING") event.source.postMessage("PONG", event.origin);
  else window.handed = { ...event.data.perfetto, text: new TextDecoder().decode(event.data.perfetto.buffer) };
});
</script>"""


async def test_the_sample_run_is_compared_with_its_measurement(server: Server, open_page: OpenPage) -> None:
    page = await open_page(server, f"/runs/{SAMPLE_RUN}")
    await expect(page.get_by_test_id("notice-sample")).to_contain_text("not captured")
    columns = page.get_by_test_id("columns").locator("li")
    await expect(columns).to_have_count(1)
    await expect(columns.get_by_test_id("mape")).to_have_text(
        re.compile(r"MAPE \d+(\.\d+)?% over \d+ kernels")
    )
    row = page.get_by_test_id("compare-row").first
    await expect(row).to_contain_text("Real")
    await expect(row.locator(".err").last).to_have_text(re.compile(r"^[+−-]\d"))

    # The largest error first, then summed by name.
    await page.get_by_test_id("comparison-sort").select_option("error")
    largest = await row.locator(".err").last.inner_text()
    await page.get_by_test_id("comparison-sort").select_option("order")
    await expect(row.locator(".err").last).not_to_have_text(largest)
    await page.get_by_test_id("group-by-name").check()
    await expect(row).to_contain_text(re.compile(r"^\d+×"))


async def test_step_timing_shows_the_published_errors(server: Server, open_page: OpenPage) -> None:
    page = await open_page(server, f"/runs/{SAMPLE_RUN}")
    steps = page.get_by_test_id("steps")
    table = steps.get_by_test_id("step-table")
    # Published for this sample: 3.04% of the steps' wall time, which is 41.7% of the GPU's busy time.
    await expect(table).to_contain_text(re.compile(r"wall\s*3\.04%"))
    await expect(table).to_contain_text(re.compile(r"GPU busy\s*41\.7%"))
    await expect(table).to_contain_text(re.compile(r"9\.00 ms\s*real 8\.63 ms, \+4\.31%"))
    await expect(steps).to_contain_text("A small request error is not a small GPU error")
    await expect(
        steps.get_by_role("img", name=re.compile("Step wall time of each step, repeat 1"))
    ).to_be_visible()
    await steps.get_by_role("button", name="GPU busy time").click()
    await expect(steps.get_by_role("img", name=re.compile("GPU busy time of each step"))).to_be_visible()


async def test_a_bundled_run_is_reconstructed_wherever_it_shows_a_number(
    server: Server, open_page: OpenPage
) -> None:
    page = await open_page(server, f"/runs/{SAMPLE_RUN}")
    for part in (
        page.get_by_test_id("sim-card"),
        page.get_by_test_id("columns"),
        page.get_by_test_id("steps"),
    ):
        await expect(part.get_by_test_id("word").first).to_have_text("reconstructed")
    # Its hardware's times are reconstructed too, and bars of both have the pattern of the word.
    await expect(page.get_by_test_id("legend").get_by_test_id("word")).to_have_text(["reconstructed"])
    row = page.get_by_test_id("compare-row").first
    for bar in await row.locator(".bar-track i").all():
        await expect(bar).to_have_class(re.compile("w-reconstructed"))
    await expect(page.locator("main")).not_to_contain_text("replayed")


async def test_a_measurement_of_one_gpu_is_no_error_of_another(server: Server, open_page: OpenPage) -> None:
    page = await open_page(server, "/runs/run-sample-opt125m-h200")
    await expect(page.get_by_test_id("mape")).to_have_text("no error: the real times are SM90_H100's")
    row = page.get_by_test_id("compare-row").first
    await expect(row).to_contain_text("Real")
    await expect(row.locator(".err").last).to_be_empty()
    table = page.get_by_test_id("step-table")
    await expect(table).to_contain_text(re.compile(r"real 8\.63 ms on SM90_H100"))
    await expect(table).to_contain_text(re.compile(r"GPU busy\s*–"))


async def test_the_bars_show_ipc_cycles_and_instructions_too(
    server: Server, estimated_run: str, open_page: OpenPage
) -> None:
    async with server.client() as client:
        kernels = (await client.get(f"/api/runs/{estimated_run}/kernels")).raise_for_status().json()
    first = [one for one in kernels if one["kernel_index"] == 0]
    page = await open_page(server, f"/runs/{estimated_run}")
    number = page.get_by_test_id("compare-row").first.locator(".num:not(.err)").first
    await expect(number).to_contain_text("µs")
    await page.get_by_test_id("comparison-metric").select_option("ipc")
    await expect(number).not_to_contain_text("µs")
    shown = float(await number.inner_text())
    assert any(abs(shown - one["gpu_ipc"]) <= 0.01 * one["gpu_ipc"] for one in first)
    await expect(page.get_by_test_id("group-by-name")).to_be_disabled()
    await page.get_by_test_id("comparison-metric").select_option("cycles")
    await expect(number).to_contain_text(" k")
    await page.get_by_test_id("group-by-name").check()
    await page.get_by_test_id("comparison-metric").select_option("time")
    await expect(number).to_contain_text("µs")


async def test_a_sims_kernels_have_their_stalls_and_caches_on_a_page(
    server: Server, live_trace: str, open_page: OpenPage
) -> None:
    run_id = await server.launch(live_trace, {"SM80_A100": 1})
    sim_id = (await server.ended(run_id, kernels=KERNELS))["sims"][0]["id"]
    page = await open_page(server, f"/runs/{run_id}/sims/{sim_id}")
    await page.get_by_test_id("open-kernels").click()
    await expect(page).to_have_url(re.compile(f"/sims/{sim_id}/kernels$"))
    await expect(page.get_by_test_id("notice-replay")).to_be_visible()
    table = page.get_by_test_id("kernel-metrics")
    rows = table.locator(".grid-row:not(.grid-head)")
    await expect(rows).to_have_count(6)
    heads = await table.get_by_role("columnheader").all_inner_texts()
    stalls = next(at for at, text in enumerate(heads) if "Memory stalls" in text)
    # The log's counter runs on: 4,512 after the first kernel, 6,376 after the second.
    await expect(rows.nth(0).get_by_role("cell").nth(stalls)).to_have_text("4.51 k")
    await expect(rows.nth(1).get_by_role("cell").nth(stalls)).to_have_text("1.86 k")
    # gpu_occupancy is -nan% in this log: no column.
    assert not any("Occupancy" in text for text in heads)
    await table.get_by_role("button", name="IPC").click()
    await expect(rows.first).to_contain_text("dot_kernel")


async def test_sums_over_different_numbers_of_kernels_are_no_bars_beside_each_other(
    server: Server, estimated_run: str, open_page: OpenPage
) -> None:
    """Replica 0 of another config has finished two of six kernels, which all bear one name here."""
    async with operator_log(server.data_dir) as log:
        run = await tell_run(log, "demo", {"SM80_A100": 1, "SM80_A30": 1})
        lines = recorded_lines()
        for sim, part in zip(run.sims, (1.0, 0.4), strict=True):
            await tell(log, [*run.launched(sim), run.heartbeat(sim)])
            await tell(log, run.logged(sim, lines[: int(len(lines) * part)]))

    await server.shows(
        run.run_id, lambda shown: [sim["kernels_done"] for sim in shown["sims"]] == [6, 2], "is parsed"
    )

    async def one_name(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(json=[one | {"kernel_name": "_Z4samev"} for one in await answer.json()])

    page = await open_page(server, "/traces")
    await page.route("**/api/runs/*/kernels", one_name)
    await page.goto(f"{server.url}/compare?run={run.run_id}")
    rows = page.get_by_test_id("compare-row")
    await expect(rows).to_have_count(6)
    await expect(page.get_by_test_id("part")).to_have_count(0)
    await page.get_by_test_id("group-by-name").check()
    await expect(rows).to_have_count(1)
    lines_of_row = rows.locator(".bar-line")
    await expect(lines_of_row.nth(0).locator(".bar-track i")).to_have_count(1)
    await expect(lines_of_row.nth(0).get_by_test_id("part")).to_have_count(0)
    await expect(lines_of_row.nth(1).get_by_test_id("part")).to_have_text("2 of 6 kernels")
    await expect(lines_of_row.nth(1).locator(".bar-track")).to_have_count(0)


async def test_an_estimated_run_never_calls_its_times_simulated(
    server: Server, estimated_run: str, open_page: OpenPage
) -> None:
    page = await open_page(server, f"/runs/{estimated_run}")
    await expect(page.get_by_test_id("notice-estimate")).to_contain_text("predicted from the trace")
    for card in await page.get_by_test_id("sim-card").all():
        await expect(card).to_contain_text("estimated")
    columns = page.get_by_test_id("columns").locator("li")
    await expect(columns).to_have_count(3)
    for column in await columns.all():
        await expect(column).to_contain_text("estimated")
        await expect(column).not_to_contain_text("simulated")
    await expect(page.get_by_test_id("columns")).to_contain_text(re.compile("fastest"))

    # Two columns side by side on a page of their own, with an address that keeps the choice.
    await page.get_by_role("link", name="Compare", exact=True).last.click()
    await expect(page.get_by_role("heading", name="Compare", level=1)).to_be_visible()
    await expect(page.get_by_test_id("columns").locator("li")).to_have_count(3)
    await page.get_by_role("checkbox", name=re.compile("SM80_A30$")).uncheck()
    await expect(page.get_by_test_id("columns").locator("li")).to_have_count(2)
    await page.reload()
    await expect(page.get_by_test_id("columns").locator("li")).to_have_count(2)


async def test_an_estimated_total_comes_with_its_interval(
    server: Server, estimated_run: str, open_page: OpenPage
) -> None:
    a100 = (await estimated(server, estimated_run))[0]
    page = await open_page(server, f"/runs/{estimated_run}")
    row = page.get_by_test_id("estimate-totals").locator("tbody tr").first
    await expect(row).to_contain_text("SM80_A100")
    await expect(row).to_contain_text(f"{a100['total_ns'] / 1000:.1f} µs")
    interval = f"{a100['total_low_ns'] / 1000:.1f} µs to {a100['total_high_ns'] / 1000:.1f} µs"
    await expect(row).to_contain_text(interval)
    await expect(row).to_contain_text("all 8 kernels estimated")
    # The comparison's own total does not stand without it.
    await expect(page.get_by_test_id("columns").locator("li").first).to_contain_text(f"interval {interval}")


async def estimated(server: Server, run_id: str) -> list[dict[str, Any]]:
    """The estimate on each config; a slow server answers first that it still computes it."""
    configs: list[dict[str, Any]] = []

    async def ready() -> bool:
        nonlocal configs
        async with server.client() as client:
            answer = (await client.get(f"/api/runs/{run_id}/estimate")).raise_for_status().json()
        configs = answer["configs"]
        return all(config["state"] == "ready" for config in configs)

    await eventually(ready, f"{run_id} is estimated")
    return configs


async def test_the_estimate_sharpens_while_kernels_are_simulated(server: Server, open_page: OpenPage) -> None:
    run_id = await server.launch(await server.upload("halfway-simulated"), {"SM80_A100": 1, "SM80_A30": 1})
    page = await open_page(server, f"/runs/{run_id}")
    totals = page.get_by_test_id("estimate-totals")
    for config in ("SM80_A100", "SM80_A30"):
        row = totals.locator("tbody tr").filter(has_text=config)
        await expect(row).to_contain_text("3 of 8 kernels simulated, 5 estimated")
    await page.get_by_text("Every kernel, estimated or simulated").click()
    rows = page.get_by_test_id("estimate-kernels").locator(".grid-row:not(.grid-head)")
    await expect(rows).to_have_count(8)
    await expect(rows.nth(2)).to_contain_text("simulated")
    await expect(rows.nth(3)).to_contain_text("estimated")
    await expect(rows.nth(3)).to_contain_text(re.compile(r"µs to .* µs"))
    await server.cancel(run_id)


async def test_runs_of_different_traces_are_compared_with_a_warning(
    server: Server, estimated_run: str, open_page: OpenPage
) -> None:
    page = await open_page(server, "/runs")
    words = page.get_by_test_id("run-row").filter(has_text=estimated_run).get_by_test_id("word")
    await expect(words).to_have_text("estimated")
    sample = page.get_by_test_id("run-row").filter(has_text=SAMPLE_RUN)
    await expect(sample).to_contain_text("Sample")
    await expect(sample.get_by_test_id("word")).to_have_count(0)
    for run_id in (estimated_run, SAMPLE_RUN):
        await page.get_by_label(f"Compare {run_id}", exact=True).check()
    await page.get_by_test_id("compare-chosen").click()
    await expect(page.get_by_test_id("different-traces")).to_be_visible()
    await expect(page.get_by_test_id("columns").locator("li")).to_have_count(4)


async def test_the_perfetto_file_downloads(server: Server, estimated_run: str, open_page: OpenPage) -> None:
    page = await open_page(server, f"/runs/{estimated_run}")
    assert_perfetto(await saved(page, "perfetto-json"), lanes=4)


async def test_the_perfetto_page_is_handed_the_trace(
    server: Server, estimated_run: str, open_page: OpenPage
) -> None:
    page = await open_page(server, f"/runs/{estimated_run}")

    async def stub(route: Route) -> None:
        await route.fulfill(content_type="text/html", body=PERFETTO_STUB)

    await page.context.route("https://ui.perfetto.dev/**", stub)
    async with page.context.expect_page() as opened:
        await page.get_by_test_id("perfetto-open").click()
    tab = await opened.value
    await tab.wait_for_function("window.handed !== undefined")
    assert await tab.evaluate("[handed.title, handed.fileName]") == [
        f"Cascade {estimated_run}",
        f"{estimated_run}-perfetto.json",
    ]
    assert_perfetto(await tab.evaluate("handed.text"), lanes=4)


def assert_perfetto(text: str, *, lanes: int) -> None:
    """A Chrome trace with every kernel of the demo trace in a lane for each sim."""
    events = json.loads(text)["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len({(event["pid"], event["tid"]) for event in slices}) == lanes
    assert len(slices) == lanes * 8


async def test_the_log_is_searched_by_its_keyboard(
    server: Server, live_trace: str, open_page: OpenPage
) -> None:
    run_id = await server.launch(live_trace, {"SM80_A100": 1})
    sim_id = (await server.ended(run_id, kernels=KERNELS))["sims"][0]["id"]
    page = await open_page(server, f"/runs/{run_id}/sims/{sim_id}")
    await page.get_by_test_id("open-log").click()
    lines = page.get_by_test_id("log-lines")
    await expect(page.get_by_label("Log", exact=True).first).to_contain_text(re.compile(r"10,2\d\d lines"))
    # Ten thousand lines, and only the visible ones are in the page.
    assert await lines.locator(".log-line").count() < 150

    search = page.get_by_test_id("log-search")
    await search.fill("gpu_tot_sim_cycle")
    await expect(page.get_by_test_id("log-hits")).to_have_text("1 of 6 lines")
    await search.press("Enter")
    await expect(lines.locator(".current")).to_contain_text("gpu_tot_sim_cycle")
    await search.press("Enter")
    await expect(page.get_by_test_id("log-hits")).to_have_text("2 of 6 lines")
    await search.press("Shift+Enter")
    await expect(page.get_by_test_id("log-hits")).to_have_text("1 of 6 lines")

    # A regular expression; a broken one says so; the address keeps the search.
    await page.get_by_label("Regular expression").check()
    await search.fill("kernel_name = .*triad")
    await expect(page.get_by_test_id("log-hits")).to_have_text("1 of 1 line")
    await expect(page).to_have_url(re.compile("triad.*re=1"))
    await page.reload()
    await expect(page.get_by_test_id("log-hits")).to_have_text("1 of 1 line")
    await search.fill("kernel_name (")
    await expect(search).to_have_attribute("aria-invalid", "true")


async def test_an_output_is_previewed_and_the_results_download(server: Server, open_page: OpenPage) -> None:
    page = await open_page(server, f"/runs/{SAMPLE_RUN}")
    await page.get_by_test_id("outputs").get_by_role("button", name="Preview sim_kernels.csv").click()
    preview = page.get_by_test_id("preview")
    await expect(preview).to_contain_text("uid,name,gpu_sim_cycle")
    assert len((await preview.inner_text()).split("\n")) == 32  # a heading and 31 kernels
    assert json.loads(await saved(page, "download-results"))["run"]["id"] == SAMPLE_RUN


async def saved(page: Page, testid: str) -> str:
    """What a button saves."""
    async with page.expect_download() as waiting:
        await page.get_by_test_id(testid).click()
    path = await (await waiting.value).path()
    return await asyncio.to_thread(path.read_text)


async def test_the_kernel_timeline_zooms_and_names_a_kernel_by_keyboard_and_by_mouse(
    server: Server, estimated_run: str, open_page: OpenPage
) -> None:
    page = await open_page(server, f"/runs/{estimated_run}")
    # What comes later would move the timeline from under the mouse.
    for part in ("estimate-totals", "compare-row", "file"):
        await expect(page.get_by_test_id(part).first).to_be_visible()
    timeline = page.get_by_test_id("timeline")
    canvas = timeline.locator("canvas")
    window = timeline.locator("p").first
    whole = await window.inner_text()
    await canvas.focus()
    await page.keyboard.press("+")
    await expect(window).not_to_have_text(whole, use_inner_text=True)
    await page.keyboard.press("0")
    await expect(window).to_have_text(whole, use_inner_text=True)
    await canvas.scroll_into_view_if_needed()
    box = await canvas.bounding_box()
    assert box is not None
    await canvas.hover(position={"x": box["width"] / 2, "y": 40})
    await expect(timeline).to_contain_text(re.compile(r"cycles"))
