"""Makes the views anew from the log: beside the present ones, which serve until the new ones take their place.

Nobody is told "not found" meanwhile, and a rebuild that breaks off leaves everything as it was.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
import structlog
from cascade_core.errors import Refused
from cascade_core.ports import EventLog

from cascade_api.read_models import writes
from cascade_api.read_models.database import (
    ACQUIRE_TIMEOUT_S,
    LONG_COMMAND_TIMEOUT_S,
    VIEW_TABLES,
    apply_migrations,
    translated,
)
from cascade_api.read_models.projection import PROJECTED, Projection
from cascade_api.read_models.projector import LEADER_LOCK

if TYPE_CHECKING:
    from cascade_api.read_models.database import Connection, Pool

_logger = structlog.get_logger(__name__)

ProgressReport = Callable[[int, int], None]
"""Called with the position reached and the last position."""

REBUILD_LOCK = 0x0CA5CAE0
SHADOW = "cascade_rebuild"
"""The schema in which the new views grow."""
BATCH = 2048
SIMS_REMEMBERED = 50_000
SWAP_ATTEMPTS = 5
"""A reader in the middle of a snapshot may deadlock with the swap; the server then ends one of them."""
TABLES = (*VIEW_TABLES, "projection_checkpoint")

END_LEADER = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND classid = 0 AND objid = $1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class RebuildUnderWay(Refused):
    """Somebody else rebuilds the same views."""


async def rebuild(pool: "Pool", log: EventLog, progress: ProgressReport) -> int:
    """Replay everything that is stored into new views and put them in place; returns the number of facts.

    Gateways may serve meanwhile; the last facts are waited for while nobody projects, for a moment.
    Raises RebuildUnderWay, DatabaseUnavailable, LogUnavailable, Corrupt.
    """
    with translated():
        async with (
            pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection,
            pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as lock,
        ):
            if not await lock.fetchval("SELECT pg_try_advisory_lock($1)", REBUILD_LOCK):
                raise RebuildUnderWay("a rebuild of these views is under way; wait for its end")
            home = str(await lock.fetchval("SELECT current_schema()"))
            try:
                return await _rebuilt(connection, lock, home, log, progress)
            finally:
                # The pool hands connections on as they are.
                await lock.execute("SELECT pg_advisory_unlock_all()")
                await connection.execute("RESET search_path")


async def _rebuilt(
    connection: "Connection", lock: "Connection", home: str, log: EventLog, progress: ProgressReport
) -> int:
    await connection.execute(f"DROP SCHEMA IF EXISTS {SHADOW} CASCADE")
    await connection.execute(f"CREATE SCHEMA {SHADOW}")
    await connection.execute(f"SET search_path TO {SHADOW}")
    await apply_migrations(connection)
    projection = Projection(_One(connection), sims_remembered=SIMS_REMEMBERED)
    replayed = await _replay(projection, log, await log.newest(PROJECTED), progress)
    await _take_the_lead(lock)
    # Nobody projects any more, so what came meanwhile is the rest, and the old views are not ahead of it.
    reached = int(await lock.fetchval(writes.CHECKPOINT))
    replayed += await _replay(projection, log, max(reached, await log.newest(PROJECTED)), progress)
    await _swap(connection, home)
    await lock.execute("SELECT pg_notify('cascade_projected', $1)", str(projection.position))
    _logger.info("views rebuilt", facts=replayed, position=projection.position)
    return replayed


async def _replay(projection: Projection, log: EventLog, until: int, progress: ProgressReport) -> int:
    replayed = 0
    if projection.position >= until:
        return replayed
    async with log.follow(PROJECTED, after=projection.position, batch=BATCH, reader="rebuild") as batches:
        async for records in batches:
            await projection.project(records)
            replayed += len(records)
            progress(projection.position, until)
            if projection.position >= until:
                break
    return replayed


async def _take_the_lead(lock: "Connection") -> None:
    """End whoever projects now and hold the lock, so that it cannot begin again before the swap."""
    while not await lock.fetchval("SELECT pg_try_advisory_lock($1)", LEADER_LOCK):
        await lock.fetch(END_LEADER, LEADER_LOCK)


async def _swap(connection: "Connection", home: str) -> None:
    """The new tables in place of the old ones, in one transaction."""
    for attempt in range(1, SWAP_ATTEMPTS + 1):
        try:
            async with connection.transaction():
                await connection.execute(
                    "LOCK TABLE " + ", ".join(f'"{home}".{table}' for table in TABLES),
                    timeout=LONG_COMMAND_TIMEOUT_S,
                )
                for table in TABLES:
                    await connection.execute(f'DROP TABLE "{home}".{table}')
                    await connection.execute(f'ALTER TABLE {SHADOW}.{table} SET SCHEMA "{home}"')
                await connection.execute(f"DROP SCHEMA {SHADOW} CASCADE")
        except asyncpg.DeadlockDetectedError:
            if attempt == SWAP_ATTEMPTS:
                raise
        else:
            return


class _One:
    """A single connection as a place to write."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator["Connection"]:
        yield self._connection
