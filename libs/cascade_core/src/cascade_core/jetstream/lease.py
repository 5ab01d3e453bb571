"""Who leads: one holder of a name at a time, told apart by a key that its holder keeps refreshing.

A lease spares duplicate work and decides who acts; what must never happen twice is also guarded by the log itself
(appends that demand to be first), since a paused holder may wake up late.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import APIError, KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from cascade_core import subjects
from cascade_core.jetstream.provision import LEASE_TTL_S

_logger = structlog.get_logger(__name__)

RENEW_EVERY_S = LEASE_TTL_S / 4
TRY_EVERY_S = LEASE_TTL_S / 10
RELEASE_WITHIN_S = 1.0
"""A server that is away must not hold up an orderly stop; the lease runs out by itself."""


class LeaseLost(Exception):
    """Somebody else may lead now. Stop acting and start over."""


class Lease:
    """A name held by this process until `lost` is set."""

    def __init__(self, kv: KeyValue, name: str, holder: str, revision: int) -> None:
        self.lost = asyncio.Event()
        self._kv = kv
        self._name = name
        self._holder = holder
        self._revision = revision

    async def renew_for_ever(self) -> None:
        """Refresh the key; sets `lost` and returns once that has failed for as long as the key lives."""
        loop = asyncio.get_running_loop()
        renewed_at = loop.time()
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            try:
                self._revision = await self._kv.update(self._name, self._holder.encode(), last=self._revision)
                renewed_at = loop.time()
            except (KeyWrongLastSequenceError, APIError, NatsError, TimeoutError, OSError) as error:
                if loop.time() - renewed_at >= LEASE_TTL_S - RENEW_EVERY_S or isinstance(
                    error, KeyWrongLastSequenceError
                ):
                    _logger.warning("lease lost", lease=self._name, reason=str(error))
                    self.lost.set()
                    return

    async def release(self) -> None:
        """Let the next one lead at once."""
        with suppress(NatsError, APIError, TimeoutError, OSError):
            async with asyncio.timeout(RELEASE_WITHIN_S):
                await self._kv.purge(self._name)


async def try_acquire(client: Client, name: str, holder: str) -> Lease | None:
    """The lease if nobody holds it, else None."""
    try:
        kv = await client.jetstream().key_value(subjects.LEASES)
        revision = await kv.create(name, holder.encode())
    except (KeyWrongLastSequenceError, KeyNotFoundError, APIError, NatsError, TimeoutError, OSError):
        return None
    return Lease(kv, name, holder, revision)


@asynccontextmanager
async def held(client: Client, name: str, holder: str) -> AsyncIterator[Lease]:
    """Wait until this process leads, keep leading during the block, release at its end."""
    lease = await try_acquire(client, name, holder)
    while lease is None:
        await asyncio.sleep(TRY_EVERY_S)
        lease = await try_acquire(client, name, holder)
    _logger.info("leads", lease=name)
    renewal = asyncio.create_task(lease.renew_for_ever())
    try:
        yield lease
    finally:
        renewal.cancel()
        await asyncio.gather(renewal, return_exceptions=True)
        if not lease.lost.is_set():
            await lease.release()
