"""How many calls of one kind are worked on at once. The rest wait their turn without holding up anything else.

A call under way takes several turns of the event loop, and a turn lasts as long as all that is ready in it. A thousand
simulators that send their chunks in the same moment would make every heartbeat wait for all of them, several times.
"""

import asyncio
from types import TracebackType

from cascade_core.errors import LogUnavailable


class Slots:
    """A bounded number of places. Waiting is first come, first served, and bounded in time."""

    def __init__(self, count: int, *, patience_s: float) -> None:
        """patience_s: who waits longer is refused; what holds the places does not get on. [s]"""
        self._free = asyncio.Semaphore(count)
        self._patience_s = patience_s

    async def __aenter__(self) -> None:
        """Take a place. Raises LogUnavailable."""
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(self._patience_s):
                await self._free.acquire()
        except TimeoutError:
            raise LogUnavailable(
                "more log chunks wait than the event log takes right now; the same call may succeed in a moment"
            ) from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._free.release()
