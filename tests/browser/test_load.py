"""A run of 64 sims that streams 2,000 events a second: the page must stay quick under the reader's hands.

The events are facts told to the real log, which reach the page through the real gateway. A machine that cannot carry
that many beside the browser is said to, with what it gave; the bound on the page's latency holds at any rate.
"""

import asyncio
import re
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from cascade_cli.testing_runs import ToldRun, operator_log, tell, tell_run
from cascade_cli.testing_serve import Server
from cascade_core.facts import AnyFact
from cascade_core.jetstream.log import JetStreamLog
from playwright.async_api import Page, expect

from tests.browser.conftest import OpenPage

EVENTS_PER_S: Final = 2000
SIMS: Final = 64
TICK_S: Final = 0.05
LATENCY_BOUND_MS: Final = 200
ROUNDS: Final = 3
"""Other work on the machine may disturb one; a page that is slow is slow in all of them."""
LINE: Final = "gpgpu_n_mem_read_global = 12345, kernel block {number} of sim {sim}"

OBSERVE: Final = """
window.latencies = [];
new PerformanceObserver((list) => {
  for (const { interactionId: id, duration } of list.getEntries()) if (id > 0) latencies.push([id, duration]);
}).observe({ type: "event", durationThreshold: 16 });
window.shifted = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) shifted += entry.value;
}).observe({ type: "layout-shift" });
"""


@asynccontextmanager
async def streaming(log: JetStreamLog, run: ToldRun) -> AsyncIterator[None]:
    """Log chunks and heartbeats of all sims, 2,000 a second, during the block."""

    # Not cancelled: before Python 3.12 a cancellation in the middle of an append may be lost.
    enough = asyncio.Event()

    async def stream() -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        numbers = [0] * len(run.sims)
        turn = 0
        while not enough.is_set():
            batch: list[AnyFact] = []
            for _ in range(round(EVENTS_PER_S * TICK_S)):
                at = turn % len(run.sims)
                sim = run.sims[at]
                turn += 1
                if turn % 8 == 0:
                    batch.append(run.heartbeat(sim))
                else:
                    lines = [LINE.format(number=numbers[at], sim=at)] * 3
                    batch.append(run.chunk(sim, numbers[at], lines))
                    numbers[at] += 1
            await tell(log, batch)
            due = max(due + TICK_S, loop.time() - 1)  # a machine that falls behind is not made to catch up
            await asyncio.sleep(max(0.0, due - loop.time()))

    task = asyncio.create_task(stream())
    try:
        yield
    finally:
        enough.set()
        await task


async def test_clicks_are_answered_while_64_sims_stream(
    server: Server, estimated_run: str, open_page: OpenPage, notes: list[str]
) -> None:
    async with operator_log(server.data_dir) as log:
        run = await tell_run(log, "demo", {"SM80_A100": 40, "SM80_A30": 24})
        await tell(log, [fact for sim in run.sims for fact in [*run.launched(sim), run.heartbeat(sim)]])
        page = await open_page(server, f"/runs/{run.run_id}")
        await expect(page.get_by_test_id("line")).to_contain_text("Live")
        await page.evaluate(OBSERVE)
        async with streaming(log, run):
            await expect(page.get_by_test_id("line")).to_contain_text("events a second", timeout=30_000)
            for _ in range(ROUNDS):
                rate, latencies = await use(page)
                notes.append(
                    f"load: {rate:,.0f} of {EVENTS_PER_S:,} events a second reached the page; "
                    f"clicks were answered in {latencies} ms"
                )
                if max(latencies) < LATENCY_BOUND_MS:
                    break
            await expect(page.get_by_test_id("line")).to_have_attribute("data-state", "live")
    assert max(latencies) < LATENCY_BOUND_MS, notes
    assert await page.evaluate("shifted") < 0.1


async def use(page: Page) -> tuple[float, list[float]]:
    """What a reader does: unfold, fold, open a sim, close it. Returns the rate that the page told, and the latencies.

    A latency is from the key or button to the frame that shows its effect. [ms]
    """
    rates = []
    group = page.get_by_test_id("sim-group").first
    await page.evaluate("latencies.length = 0")
    for number in range(4):
        await group.locator("button.fold").click()
        await expect(group.get_by_test_id("sim-card").first).to_be_visible()
        await group.locator("button.fold").click()
        await expect(group.locator(".square").first).to_be_visible()
        await group.locator(".square").nth(number).click()
        await expect(page.get_by_test_id("sim-drawer")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_test_id("sim-drawer")).to_have_count(0)
        told = re.search(r"([\d,]+) events a second", await page.get_by_test_id("line").inner_text())
        rates.append(float(told[1].replace(",", "")) if told else 0.0)
        # The page counts a rate each second.
        await page.wait_for_function(
            "(then) => performance.now() - then > 900", arg=await page.evaluate("performance.now()")
        )
    latencies: list[float] = await page.evaluate(
        "Object.values(Object.groupBy(latencies, ([id]) => id)).map((all) => Math.max(...all.map(([, ms]) => ms)))"
    )
    assert len(latencies) > 5
    return statistics.median(rates), latencies
