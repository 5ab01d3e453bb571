"""A run of 64 sims streams 2,000 events a second: the page must get them all and stay quick under the reader's hands.

The events are facts told to the real log, which reach the page through the real gateway. What is asserted:

* Every log line that was told has reached the page, none twice, on one unbroken stream: the page reads so fast that the
  server does not cut it off.
* The page gets them as fast as they come: what a bare reader of the same stream, which only counts, has at a moment,
  the page has within two seconds. A machine that cannot carry 2,000 events a second beside a browser is not held
  against the page: the rates told, read and shown stand in the summary, and are the same facts over three times.
* The interaction to next paint stays under 200 ms, as the web's own measure (INP) counts it: the slowest interaction,
  one left out for every fifty. A machine that is busy with other work is late with any work: a page beside it computes
  for 50 ms a click, at the machine's best speed, and what its INP is beyond 100 ms is added to the bound.

What takes time may go wrong in two of three tries, each with a run of its own: a page that is too slow is so, or is cut
off, in each of them; a machine that stands still for two seconds does so in one.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from cascade_cli.testing_runs import ToldRun, operator_log, tell, tell_run
from cascade_cli.testing_serve import PATIENCE_S, Server, eventually
from cascade_core.facts import AnyFact
from cascade_core.jetstream.log import JetStreamLog
from playwright.async_api import Page, expect

from tests.browser.conftest import OpenPage

EVENTS_PER_S: Final = 2000
SIMS: Final = 64
SIMS_OF_GROUP: Final = 40
TICK_S: Final = 0.05
LINES_PER_CHUNK: Final = 3
LATENCY_BOUND_MS: Final = 200
QUIET_CLICK_MS: Final = 100
"""The page of known work, on an idle machine: its work and up to three frames."""
TURNS: Final = 16
"""Four interactions each."""
QUIET_TURNS: Final = 4
LEFT_OUT_OF: Final = 50
TRIES: Final = 3
LAG_BOUND_S: Final = 2.0
"""The page draws a few times a second, and gathers what comes in between."""
LOG_EVENT: Final = b'{"type":"log"'
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
OBSERVE_LINE: Final = """
() => {
  window.breaks = 0;
  const line = document.querySelector('[data-testid="line"]');
  new MutationObserver(() => { if (line.dataset.state !== "live") breaks += 1; })
    .observe(line, { attributeFilter: ["data-state"] });
}
"""
SLOWEST_FIRST: Final = """
() => {
  const slowest = new Map();
  for (const [id, ms] of latencies) slowest.set(id, Math.max(ms, slowest.get(id) ?? 0));
  return [...slowest.values()].sort((a, b) => b - a);
}
"""
KNOWN_WORK: Final = """
() => {
  const spin = (turns) => { let sum = 0; for (let i = 0; i < turns; i += 1) sum += Math.sqrt(i); return sum; };
  const took = (turns) => { const start = performance.now(); spin(turns); return performance.now() - start; };
  const turns = 2e6;
  const best = Math.min(...Array.from({ length: 9 }, () => took(turns)));
  const button = document.createElement("button");
  button.textContent = "compute";
  button.addEventListener("click", () => { button.value = spin(turns * (50 / best)); });
  document.body.replaceChildren(button);
}
"""


@dataclass
class Told:
    """What was told so far, and when it began and ended."""

    facts: int = 0
    chunks: int = 0
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def lines(self) -> int:
        """Log lines."""
        return self.chunks * LINES_PER_CHUNK


@dataclass
class Read:
    """What a bare reader of the stream got so far, and when the newest of it came."""

    chunks: int = 0
    newest_s: float = 0.0
    ended: bool = False
    """It was cut off."""


@dataclass(frozen=True)
class Used:
    """What somebody at the page saw."""

    latencies_ms: list[float]
    """Of each interaction that took longer than a frame, slowest first."""
    known_ms: list[float]
    """On the page of known work."""

    @property
    def inp_ms(self) -> float:
        """The page's interaction to next paint."""
        return _inp(self.latencies_ms)

    @property
    def bound_ms(self) -> float:
        """What it may be on this machine, as busy as it was."""
        return LATENCY_BOUND_MS + max(0.0, _inp(self.known_ms) - QUIET_CLICK_MS)

    def __str__(self) -> str:
        slowest = ", ".join(f"{ms:.0f}" for ms in self.latencies_ms[:3])
        return (
            f"interaction to next paint {self.inp_ms:.0f} ms of {self.bound_ms:.0f} ms allowed (slowest {slowest} of "
            f"{len(self.latencies_ms)}), {_inp(self.known_ms):.0f} ms for known work beside it"
        )


@dataclass(frozen=True)
class Tried:
    """What came of one run."""

    used: Used
    lag_s: float
    """Of the page behind the bare reader, at the end."""
    broken: bool
    """The server cut the page or the bare reader off: what it had not been sent came in a new snapshot, uncounted."""
    shifted: float
    """What moved under the reader's hands, as the web's own measure (CLS) counts it."""

    @property
    def is_good(self) -> bool:
        """Whether the page was in time with everything."""
        return self.used.inp_ms < self.used.bound_ms and self.lag_s < LAG_BOUND_S and not self.broken


def _inp(slowest_first: list[float]) -> float:
    return slowest_first[len(slowest_first) // LEFT_OUT_OF] if slowest_first else 0.0


@asynccontextmanager
async def streaming(log: JetStreamLog, run: ToldRun, told: Told) -> AsyncIterator[None]:
    """Log chunks and heartbeats of all sims, 2,000 a second, during the block."""

    # Not cancelled: before Python 3.12 a cancellation in the middle of an append may be lost.
    enough = asyncio.Event()

    async def stream() -> None:
        told.began_s = due = time.monotonic()
        numbers = [0] * len(run.sims)
        turn = 0
        while not enough.is_set():
            batch: list[AnyFact] = []
            chunks = 0
            for _ in range(round(EVENTS_PER_S * TICK_S)):
                at = turn % len(run.sims)
                sim = run.sims[at]
                turn += 1
                if turn % 8 == 0:
                    batch.append(run.heartbeat(sim))
                else:
                    lines = [LINE.format(number=numbers[at], sim=at)] * LINES_PER_CHUNK
                    batch.append(run.chunk(sim, numbers[at], lines))
                    numbers[at] += 1
                    chunks += 1
            await tell(log, batch)
            told.facts += len(batch)
            told.chunks += chunks
            due = max(
                due + TICK_S, time.monotonic() - 1
            )  # a machine that falls behind is not made to catch up
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        told.ended_s = time.monotonic()

    task = asyncio.create_task(stream())
    try:
        yield
    finally:
        enough.set()
        await task


@asynccontextmanager
async def reading(server: Server, run_id: str) -> AsyncIterator[Read]:
    """A reader of the run's event stream that does nothing but count, during the block: what the gateway can give."""
    read = Read()
    open_now = asyncio.Event()

    async def count() -> None:
        tail = b""
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        async with (
            server.client() as client,
            client.stream("GET", f"/api/runs/{run_id}/events", headers=headers) as reply,
        ):
            async for piece in reply.aiter_raw():
                open_now.set()
                found = (tail + piece).count(LOG_EVENT)
                tail = piece[-(len(LOG_EVENT) - 1) :]
                if found > 0:
                    read.chunks += found
                    read.newest_s = time.monotonic()
        read.ended = True

    task = asyncio.create_task(count())
    try:
        await asyncio.wait_for(open_now.wait(), PATIENCE_S)
        yield read
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_clicks_are_answered_while_64_sims_stream(
    server: Server, estimated_run: str, open_page: OpenPage, notes: list[str]
) -> None:
    async with operator_log(server.data_dir) as log:
        for _ in range(TRIES):
            tried = await watch(server, log, open_page, notes)
            if tried.is_good:
                break
    assert tried.is_good, [tried, notes]
    assert len(tried.used.latencies_ms) > TURNS, "the browser told of too few interactions"
    assert tried.shifted < 0.1


async def watch(server: Server, log: JetStreamLog, open_page: OpenPage, notes: list[str]) -> Tried:
    """Tell a run, and use its page meanwhile. What was told must be there, unless a stream broke."""
    run = await tell_run(log, "demo", {"SM80_A100": SIMS_OF_GROUP, "SM80_A30": SIMS - SIMS_OF_GROUP})
    assert len(run.sims) == SIMS
    await tell(log, [fact for sim in run.sims for fact in [*run.launched(sim), run.heartbeat(sim)]])
    await server.shows(
        run.run_id, lambda shown: all(sim["state"] == "running" for sim in shown["sims"]), "runs"
    )
    page = await open_page(server, f"/runs/{run.run_id}")
    line = page.get_by_test_id("line")
    await expect(line).to_contain_text("Live")
    known = await open_page(server, "/api/health")  # a window of its own: none of the two is hidden
    await known.evaluate(KNOWN_WORK)
    for each in (page, known):
        await each.evaluate(OBSERVE)
    await page.evaluate(OBSERVE_LINE)

    told = Told()
    quiet = await use(page, known, turns=QUIET_TURNS)
    async with reading(server, run.run_id) as read:
        async with streaming(log, run, told):
            await expect(line).to_contain_text("events a second")
            used = await use(page, known, turns=TURNS)
            behind_s = await lag_s(page, read)

        async def broken() -> bool:
            return read.ended or bool(await page.evaluate("breaks"))

        async def all_shown() -> bool:
            return await lines_shown(page) >= told.lines or await broken()

        await eventually(all_shown, f"all {told.lines:,} log lines on the page")
        shown_s = time.monotonic()

        async def all_read() -> bool:
            return read.chunks >= told.chunks or await broken()

        await eventually(all_read, f"all {told.chunks:,} log events at the reader")
    rates = [told.facts / (end - told.began_s) for end in (told.ended_s, read.newest_s, shown_s)]
    notes.append(
        f"load: {told.facts:,} events; {EVENTS_PER_S:,} a second wanted, {rates[0]:,.0f} told, "
        f"{rates[1]:,.0f} read, {rates[2]:,.0f} shown"
    )
    notes.append(f"load, before the stream: {quiet}")
    notes.append(f"load, during it: {used}")
    tried = Tried(used, behind_s, broken=await broken(), shifted=await page.evaluate("shifted"))
    if tried.broken:
        notes.append("load: the server cut a stream off")
    else:
        assert [read.chunks, await lines_shown(page)] == [told.chunks, told.lines]
        assert int(await line.get_attribute("data-events") or 0) >= told.facts
        await expect(line).to_have_attribute("data-state", "live")
        await expect(line).to_contain_text("Live")
    for each in (page, known):
        await each.close()
    return tried


async def lag_s(page: Page, read: Read) -> float:
    """How long the page takes to have the lines that the bare reader has now. [s]"""
    wanted, since_s = read.chunks * LINES_PER_CHUNK, time.monotonic()

    async def shown() -> bool:
        return await lines_shown(page) >= wanted or bool(await page.evaluate("breaks"))

    await eventually(shown, f"{wanted:,} log lines on the page")
    return time.monotonic() - since_s


async def lines_shown(page: Page) -> int:
    """Log lines that reached the page."""
    return int(await page.get_by_test_id("line").get_attribute("data-log-lines") or 0)


async def use(page: Page, known: Page, *, turns: int) -> Used:
    """What a reader does: unfold, fold, open a sim, close it; and a click of known work after each.

    A latency is from the key or button to the frame that shows its effect. [ms]
    """
    for each in (page, known):
        await each.evaluate("latencies.length = 0")
    group = page.get_by_test_id("sim-group").first
    for number in range(turns):
        await group.locator("button.fold").click()
        await expect(group.get_by_test_id("sim-card").first).to_be_visible()
        await known.locator("button").click()
        await group.locator("button.fold").click()
        await expect(group.locator(".square").first).to_be_visible()
        await known.locator("button").click()
        await group.locator(".square").nth(number % SIMS_OF_GROUP).click()
        await expect(page.get_by_test_id("sim-drawer")).to_be_visible()
        await page.bring_to_front()  # keys go to the window that was clicked last
        await page.keyboard.press("Escape")
        await expect(page.get_by_test_id("sim-drawer")).to_have_count(0)
        await known.locator("button").click()
        await page.wait_for_function(
            "(then) => performance.now() - then > 900", arg=await page.evaluate("performance.now()")
        )
    return Used(latencies_ms=await page.evaluate(SLOWEST_FIRST), known_ms=await known.evaluate(SLOWEST_FIRST))
