"""The Postgres pool and the schema: plain SQL files, applied once each, in name order, under one lock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources

import asyncpg
import structlog
from cascade_core.errors import Corrupt, Unavailable

_logger = structlog.get_logger(__name__)

MIGRATION_LOCK = 0x0CA5CADE
POOL_MIN, POOL_MAX = 2, 12
COMMAND_TIMEOUT_S = 30.0
VIEW_TABLES = (
    "trace_view",
    "run_view",
    "sim_view",
    "kernel_view",
    "log_chunk_view",
    "sim_file_view",
    "step_timeline_view",
)

Pool = asyncpg.Pool
Connection = asyncpg.Connection


class DatabaseUnavailable(Unavailable):
    """Postgres does not answer. The same call may succeed later."""


@asynccontextmanager
async def opened(url: str) -> AsyncIterator["asyncpg.Pool[asyncpg.Record]"]:
    """A pool for the length of the block. Raises DatabaseUnavailable if Postgres cannot be reached."""
    try:
        pool = await asyncpg.create_pool(
            url, min_size=POOL_MIN, max_size=POOL_MAX, command_timeout=COMMAND_TIMEOUT_S
        )
    except (OSError, asyncpg.PostgresError, TimeoutError) as error:
        raise DatabaseUnavailable(
            f"Postgres cannot be reached ({type(error).__name__}: {error}). Start it, or set CASCADE_DATABASE_URL; "
            "`cascade doctor` tells more."
        ) from error
    try:
        yield pool
    finally:
        try:
            await pool.close()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pool.terminate()


def migrations() -> list[tuple[str, str]]:
    """`(name, sql)` of every migration, in the order of application."""
    folder = resources.files("cascade_api.read_models") / "migrations"
    return sorted(
        (entry.name, entry.read_text()) for entry in folder.iterdir() if entry.name.endswith(".sql")
    )


async def migrate(pool: "asyncpg.Pool[asyncpg.Record]") -> list[str]:
    """Apply what is missing, each file in one transaction; returns the names applied. Safe to run at once from many."""
    applied: list[str] = []
    async with pool.acquire() as connection:
        await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
        try:
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_migration"
                " (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
            )
            done = {row["name"] for row in await connection.fetch("SELECT name FROM schema_migration")}
            known = migrations()
            if foreign := done - {name for name, _ in known}:
                raise Corrupt(
                    f"the database has migrations that this Cascade does not know: {', '.join(sorted(foreign))}. "
                    "It was written by a newer Cascade; upgrade this one."
                )
            for name, sql in known:
                if name in done:
                    continue
                async with connection.transaction():
                    await connection.execute(sql)
                    await connection.execute("INSERT INTO schema_migration (name) VALUES ($1)", name)
                applied.append(name)
                _logger.info("migrated", migration=name)
        finally:
            await connection.execute("SELECT pg_advisory_unlock($1)", MIGRATION_LOCK)
    return applied


async def clear_views(pool: "asyncpg.Pool[asyncpg.Record]") -> None:
    """Empty every view and start the projection over."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(f"TRUNCATE {', '.join(VIEW_TABLES)}")
        await connection.execute("UPDATE projection_checkpoint SET position = 0 WHERE projection = 'views'")
