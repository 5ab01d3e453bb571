"""How a service process runs and ends: one task group, two signals, a deadline."""

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from cascade_core.errors import CascadeError
from cascade_core.tasks import TaskSet

_logger = structlog.get_logger(__name__)

GARBAGE_BEFORE_COLLECTING: Final = 50_000
"""Objects made and not yet freed before the youngest are looked through."""

Main = Callable[[asyncio.Event], Awaitable[None]]


def run(
    main: Main, *, service: str, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> int:
    """Run `main(stop)` until it returns; SIGTERM and SIGINT set `stop`. Returns the exit code.

    loop_factory: makes the event loop; the standard one where it is left out.

    A CascadeError ends the process with its message and code 1: a restart at the checkpoint is cheap.
    """
    code = 0
    collect_seldom()
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(_supervised(main))
    except* CascadeError as errors:
        for error in _leaves(errors):
            _logger.critical("stopped", service=service, error=str(error), kind=type(error).__name__)
        code = 1
    except* KeyboardInterrupt:
        code = 0
    return code


def collect_seldom() -> None:
    """Let the cycle collector run once in many requests and leave out what was imported: it took a quarter of a busy
    gateway's time (measured), and facts make no cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_BEFORE_COLLECTING, 20, 20)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found


async def _supervised(main: Main) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError, ValueError):
            loop.add_signal_handler(number, stop.set)
    await main(stop)


async def until_stopped(stop: asyncio.Event, *tasks: Awaitable[None]) -> None:
    """Run `tasks` together until `stop` is set, then end them. An error in one ends all, and is raised."""
    together = TaskSet()
    for task in tasks:
        together.create(_awaited(task))
    await together.wait(stop)


async def _awaited(awaitable: Awaitable[object]) -> None:
    await awaitable
