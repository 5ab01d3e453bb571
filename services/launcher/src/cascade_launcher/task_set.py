"""Tasks that live and end together, like `asyncio.TaskGroup`, for tasks that use libraries which lose a cancel.

Before Python 3.12, `asyncio.wait_for` swallows a cancel that meets its result (python/cpython#86296), and the NATS
client waits with it for every answer. A group that cancels once then waits for ever, so this one asks again.
"""

import asyncio
from collections.abc import Coroutine

ASK_AGAIN_S = 2.0


class TaskSet:
    """Tasks whose first failure ends all of them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def create(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        """Start `work` now; it may end at any time, as long as it does not fail."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def wait(self) -> None:
        """Wait until a task fails, and raise what it raised; however this ends, no task is left."""
        try:
            await self._failure
        finally:
            while self._tasks:
                for task in self._tasks:
                    task.cancel()
                await asyncio.wait(self._tasks, timeout=ASK_AGAIN_S)
