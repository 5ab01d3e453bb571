"""Tasks that live and end together, also where a library loses a cancel.

Before Python 3.12, `asyncio.wait_for` swallows a cancel that meets its result (python/cpython#86296), and the NATS
client waits with it for every answer. `asyncio.TaskGroup` cancels once and then waits for ever; this asks again.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

ASK_AGAIN_S = 0.5


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel `tasks` and wait until none of them is left. What they raise is not raised here.

    A cancel of the caller is raised once they have ended: whoever asks a tree of tasks again must not leave its leaves.
    """
    cancelled: asyncio.CancelledError | None = None
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=ASK_AGAIN_S)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # taken note of, so that the loop does not complain
    if cancelled is not None:
        raise cancelled


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which no cancel cuts short: one that comes meanwhile is raised once it has ended.

    For what must not stop half way, such as ending a process. `work` must end by itself within a bounded time; what it
    raises is raised here, unless a cancel is.
    """
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # taken note of, so that the loop does not complain
    raise cancelled


async def passed(event: asyncio.Event, *, within_s: float) -> bool:
    """Wait for `event`, but not longer than `within_s`; whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
    return event.is_set()


class TaskSet:
    """Tasks whose first failure ends all of them. `wait` is where they end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def create(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start `work` now; it may end at any time, as long as it does not fail."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def wait(self, stop: asyncio.Event | None = None) -> None:
        """Wait until `stop` is set or a task fails, and raise what that raised. However it ends, no task is left."""
        stopping = asyncio.create_task((stop or asyncio.Event()).wait())
        either: list[asyncio.Future[Any]] = [stopping, self._failure]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            while self._tasks:  # one that is ending may still start others
                await end(*self._tasks)
            await end(stopping)
            if not self._failure.done():
                self._failure.cancel()
        if not self._failure.cancelled():
            self._failure.result()

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._failure.done():
            self._failure.set_exception(error)
