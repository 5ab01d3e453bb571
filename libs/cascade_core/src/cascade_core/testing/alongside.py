"""A part that works for ever, for the length of a test's block."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from cascade_core.tasks import end


@asynccontextmanager
async def alongside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` during the block and end it at its end. Raises what `work` raised by itself."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await end(task)
    if not task.cancelled():
        task.result()
        raise AssertionError("what was to work for ever returned")
