"""Throws the views away and replays the log, with the projector's own code, so the result is what it made."""

from collections.abc import Callable

import asyncpg
from cascade_core.jetstream.log import JetStreamLog

from cascade_api.read_models.database import clear_views
from cascade_api.read_models.gate import ProjectionGate
from cascade_api.read_models.projector import BATCH, PROJECTED, Projector

ProgressReport = Callable[[int, int], None]
"""Called with the position reached and the last position."""


async def rebuild(pool: "asyncpg.Pool[asyncpg.Record]", log: JetStreamLog, progress: ProgressReport) -> int:
    """Empty the views, replay everything that is stored now, return the number of facts.

    A projector that leads meanwhile finds its checkpoint moved, starts over and helps: both write the same.
    """
    newest = await log.newest(PROJECTED)
    await clear_views(pool)
    projector = Projector(pool, log, ProjectionGate())
    position = replayed = 0
    if newest == 0:
        return 0
    async with log.follow(PROJECTED, after=0, batch=BATCH) as batches:
        async for records in batches:
            position = await projector.project(position, records)
            replayed += len(records)
            progress(position, newest)
            if position >= newest:
                break
    return replayed
