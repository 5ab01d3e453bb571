"""A service's metrics as Prometheus gets them: from its own port, without a token."""

import asyncio
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException

from prometheus_client.parser import text_string_to_metric_families

DEADLINE_S = 60.0
EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one look at `/metrics` showed."""

    values: dict[tuple[str, frozenset[tuple[str, str]]], float]

    @property
    def names(self) -> set[str]:
        """Every sample's name."""
        return {name for name, _ in self.values}

    def value(self, name: str, **labels: str) -> float | None:
        """The sample with exactly these labels; None where it is not shown."""
        return self.values.get((name, frozenset(labels.items())))


async def scrape(port: int) -> Scrape:
    """Look once. Raises OSError while nobody listens there."""
    return await asyncio.to_thread(_scraped, port)


async def scraped_until(port: int, wanted: Callable[[Scrape], bool]) -> Scrape:
    """Look until the metrics are as wanted; fails at the deadline with what they were."""
    seen: Scrape | None = None
    try:
        async with asyncio.timeout(DEADLINE_S):
            while seen is None or not wanted(seen):
                await asyncio.sleep(EVERY_S)
                try:
                    seen = await scrape(port)
                except (OSError, HTTPException):
                    continue  # it has just been started, or ended in the middle of its answer
    except TimeoutError:
        shown = None if seen is None else {f"{key}": value for key, value in seen.values.items() if value}
        raise AssertionError(f"the metrics were not as wanted in {DEADLINE_S} s: {shown}") from None
    return seen


def _scraped(port: int) -> Scrape:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        assert reply.headers["content-type"].startswith("text/plain")
        text: str = reply.read().decode()
    return Scrape(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )
