"""Growing, bounded pauses between tries."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from cascade_core.errors import Unavailable

from cascade_launcher.backends.protocol import LaunchError

FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 30.0

R = TypeVar("R")


def growing_delays() -> Iterator[float]:
    """0.25 s, doubled each time up to 30 s, for ever. [s]"""
    delay_s = FIRST_DELAY_S
    while True:
        yield delay_s
        delay_s = min(delay_s * 2, LONGEST_DELAY_S)


async def persistently(act: Callable[[], Awaitable[R]], *, tries: int, what: str) -> R:
    """`act`'s result, tried again while a server does not answer.

    what: begins the error's text. Raises LaunchError after `tries`, and whatever else `act` raises at once.
    """
    delays = growing_delays()
    for attempt in range(1, tries + 1):
        try:
            return await act()
        except Unavailable as error:
            if attempt == tries:
                raise LaunchError(f"{what}: {error}") from error
            await asyncio.sleep(next(delays))
    raise AssertionError("unreachable")
