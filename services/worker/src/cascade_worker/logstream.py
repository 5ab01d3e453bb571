"""From a growing log file to the gateway: tail, cut into chunks, read for the verdict, send.

Whatever makes the output (a simulator process, a replay, an estimate) only appends to a file. That file is
the buffer between the two sides: a gateway that is away for an hour neither stalls the simulator nor fills
memory.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from cascade_worker.chunking import Chunker, LogChunk

POLL_S = 0.1
"""How long new output may lie in the file before the tail looks again. [s]"""

_READ_BYTES = 256 * 1024


async def forward_log(
    path: Path, *, finished: asyncio.Event, handle: Callable[[LogChunk], Awaitable[None]], chunker: Chunker
) -> None:
    """Hand every chunk of the file at `path` to `handle`, in order, until `finished` is set and all of it is
    read.

    `path` must exist; `finished` is set after its last byte was written. What `handle` raises ends the
    stream.
    """
    with path.open("rb") as file:
        while True:
            no_more_after_this = finished.is_set()  # asked before reading: nothing is written after it
            output = file.read(_READ_BYTES)
            for chunk in chunker.feed(output, now=time.monotonic()):
                await handle(chunk)
            due = chunker.flush_if_due(now=time.monotonic())
            if due is not None:
                await handle(due)
            if output:
                continue
            if no_more_after_this:
                break
            await _wait(finished, at_most_s=POLL_S)
    last = chunker.close()
    if last is not None:
        await handle(last)


async def _wait(event: asyncio.Event, *, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await event.wait()
    except TimeoutError:
        return
