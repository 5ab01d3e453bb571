"""Postgres: the pool, the schema (plain SQL files, applied once each, in name order, under one lock), its errors.

A driver's error never leaves: what may pass by itself becomes DatabaseUnavailable, anything else is a bug.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any, Protocol

import asyncpg
import structlog
from cascade_core.errors import Corrupt, Unavailable

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Pool = asyncpg.Pool[asyncpg.Record]
    Connection = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

_logger = structlog.get_logger(__name__)

MIGRATION_LOCK = 0x0CA5CADE
POOL_MIN, POOL_MAX = 2, 12
CONNECT_TIMEOUT_S = 5.0
COMMAND_TIMEOUT_S = 15.0
LONG_COMMAND_TIMEOUT_S = 86_400.0
"""Of what may take long and must not be cut off: a migration of large tables, a wait for a lock. None would mean the
pool's own timeout to the driver."""
ACQUIRE_TIMEOUT_S = 5.0
"""Of a connection from the pool, the wait for one that is in use included."""
SESSION_SETTINGS = {
    "application_name": "cascade-api",
    # The views can be made again from the log, and their checkpoint moves with them: a crash of the server may take
    # back the last moments of both. Waiting for the disk with every batch buys nothing.
    "synchronous_commit": "off",
    # A replica that is cut off or stopped must not hold up the others with a transaction that it left open.
    "idle_in_transaction_session_timeout": "20000",
    "jit": "off",
}
VIEW_TABLES = (
    "trace_view",
    "run_view",
    "sim_view",
    "kernel_view",
    "log_chunk_view",
    "sim_file_view",
    "step_timeline_view",
)
# What a restart, a failover, a full disk or a busy server brings. The same call may succeed later.
PASSING_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.TransactionRollbackError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidCachedStatementError,
    asyncpg.ObjectNotInPrerequisiteStateError,
)


class DatabaseUnavailable(Unavailable):
    """Postgres does not answer. The same call may succeed later."""


class Reader(Protocol):
    """What a query needs: the database, a pool, or a connection in a transaction."""

    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]:
        """All rows."""
        ...

    async def fetchval(self, query: str, *args: Any) -> Any:
        """The first value of the first row, or None."""
        ...


@contextmanager
def translated() -> Iterator[None]:
    """Turns the driver's passing errors into DatabaseUnavailable."""
    try:
        yield
    except PASSING_ERRORS as error:
        reason = str(error) or type(error).__name__
        raise DatabaseUnavailable(
            f"the database does not answer ({reason}). Nothing was lost; try again in a moment."
        ) from error


class Database:
    """The pool as routes use it: bounded waits, translated errors."""

    def __init__(self, pool: "Pool") -> None:
        self.pool = pool

    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]:
        """All rows. Raises DatabaseUnavailable."""
        async with self.connection() as connection:
            return await connection.fetch(query, *args)

    async def fetchval(self, query: str, *args: Any) -> Any:
        """The first value of the first row, or None. Raises DatabaseUnavailable."""
        async with self.connection() as connection:
            return await connection.fetchval(query, *args)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator["Connection"]:
        """A connection that sees one moment of all views. Raises DatabaseUnavailable."""
        async with (
            self.connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator["Connection"]:
        """A connection, each statement a transaction of its own. Raises DatabaseUnavailable."""
        with translated():
            async with self.pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
                yield connection


@asynccontextmanager
async def opened(url: str) -> AsyncIterator["Pool"]:
    """A pool for the length of the block. Raises DatabaseUnavailable if Postgres cannot be reached."""
    try:
        pool = await asyncpg.create_pool(
            url,
            min_size=POOL_MIN,
            max_size=POOL_MAX,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=COMMAND_TIMEOUT_S,
            server_settings=SESSION_SETTINGS,
            reset=_nothing_to_reset,
        )
    except PASSING_ERRORS as error:
        raise DatabaseUnavailable(
            f"Postgres cannot be reached ({type(error).__name__}: {error}). Start it, or set CASCADE_DATABASE_URL; "
            "`cascade doctor` tells more."
        ) from error
    try:
        yield pool
    finally:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await pool.close()
        except PASSING_ERRORS:
            pool.terminate()


async def _nothing_to_reset(_connection: "Connection") -> None:
    """The driver would ask the server to forget session state after each use: a round trip, and we leave none."""


def migrations() -> list[tuple[str, str]]:
    """`(name, sql)` of every migration, in the order of application."""
    folder = resources.files("cascade_api.read_models") / "migrations"
    return sorted(
        (entry.name, entry.read_text()) for entry in folder.iterdir() if entry.name.endswith(".sql")
    )


async def migrate(pool: "Pool") -> list[str]:
    """Apply what is missing, each file in one transaction; returns the names applied. Safe to run at once from many.

    Raises DatabaseUnavailable, Corrupt if a newer Cascade has been here.
    """
    with translated():
        async with pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            # Another replica may be migrating; it is waited for however long that takes.
            await connection.execute(
                "SELECT pg_advisory_lock($1)", MIGRATION_LOCK, timeout=LONG_COMMAND_TIMEOUT_S
            )
            try:
                return await apply_migrations(connection)
            finally:
                await connection.execute("SELECT pg_advisory_unlock($1)", MIGRATION_LOCK)


async def apply_migrations(connection: "Connection") -> list[str]:
    """Apply what the connection's schema lacks, without the lock."""
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
    applied: list[str] = []
    for name, sql in known:
        if name in done:
            continue
        async with connection.transaction():
            await connection.execute(sql, timeout=LONG_COMMAND_TIMEOUT_S)
            await connection.execute("INSERT INTO schema_migration (name) VALUES ($1)", name)
        applied.append(name)
        _logger.info("migrated", migration=name)
    return applied
