"""Who leads: one holder of a name at a time, told apart by a key that its holder keeps refreshing.

A lease spares duplicate work and decides who acts; what must never happen twice is also guarded by the log itself
(appends that demand to be first), since a paused holder may wake up late. A holder stops acting before the server
forgets its key, by its own clock.
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
from cascade_core.tasks import end

_logger = structlog.get_logger(__name__)

RENEW_EVERY_S = LEASE_TTL_S / 4
TRY_EVERY_S = LEASE_TTL_S / 10
SAFETY_S = LEASE_TTL_S / 5
"""A holder gives up this long before its key runs out, so that two never think that they hold it."""
RELEASE_TIMEOUT_S = 1.0
"""Without a server the key runs out by itself; a process that ends does not wait for that."""

_TROUBLE = (APIError, NatsError, TimeoutError, OSError)
_WRONG_LAST_SEQUENCE = (10071, 10164)


class Lease:
    """A name held by this process until `lost` is set."""

    def __init__(self, kv: KeyValue, name: str, holder: str, revision: int, asked_at: float) -> None:
        """asked_at: the loop's time just before the server was asked for the key."""
        self.lost = asyncio.Event()
        self._kv = kv
        self._name = name
        self._holder = holder
        self._revision = revision
        self._good_until = asked_at + LEASE_TTL_S - SAFETY_S

    async def renew_for_ever(self) -> None:
        """Refresh the key; sets `lost` and returns as soon as somebody else may hold it."""
        loop = asyncio.get_running_loop()
        wait_s = RENEW_EVERY_S
        while not self.lost.is_set():
            await asyncio.sleep(min(wait_s, max(self._good_until - loop.time(), 0)))
            asked_at = loop.time()
            try:
                # Not all the time that is left: an answer that is lost with its connection leaves time to ask again.
                async with asyncio.timeout_at(min(self._good_until, asked_at + RENEW_EVERY_S)):
                    self._revision = await self._refreshed()
            except KeyWrongLastSequenceError as error:
                self._lose(str(error))
            except _TROUBLE as error:
                wait_s = TRY_EVERY_S
                if loop.time() >= self._good_until:
                    self._lose(str(error) or type(error).__name__)
            else:
                wait_s = RENEW_EVERY_S
                self._good_until = asked_at + LEASE_TTL_S - SAFETY_S

    async def release(self) -> None:
        """Let the next one lead at once. Does nothing to a key that somebody else holds by now."""
        with suppress(*_TROUBLE):
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                await self._deleted()

    async def _refreshed(self) -> int:
        try:
            return await self._kv.update(self._name, self._holder.encode(), last=self._revision)
        except KeyWrongLastSequenceError:
            # The answer to an earlier refresh may have been lost on the way.
            return await self._kv.update(self._name, self._holder.encode(), last=await self._newer_revision())

    async def _deleted(self) -> None:
        try:
            await self._kv.delete(self._name, last=self._revision)
        except APIError as error:
            if error.err_code not in _WRONG_LAST_SEQUENCE:
                raise
            # The end of the renewal may have cut off the answer to the last refresh.
            await self._kv.delete(self._name, last=await self._newer_revision())

    async def _newer_revision(self) -> int | None:
        """The key's revision where it is not the known one. Raises KeyWrongLastSequenceError where it is not ours."""
        try:
            entry = await self._kv.get(self._name)
        except KeyNotFoundError as error:
            raise KeyWrongLastSequenceError(description="the key is gone") from error
        if entry.value != self._holder.encode():
            raise KeyWrongLastSequenceError(description="somebody else holds the key")
        return entry.revision

    def _lose(self, reason: str) -> None:
        self.lost.set()  # before anything that might fail
        _logger.warning("lease lost", lease=self._name, reason=reason)


async def try_acquire(client: Client, name: str, holder: str) -> Lease | None:
    """The lease if nobody holds it, else None. `holder` names this process among all that ever try."""
    asked_at = asyncio.get_running_loop().time()
    try:
        kv = await client.jetstream(timeout=LEASE_TTL_S - SAFETY_S).key_value(subjects.LEASES)
        revision = await kv.create(name, holder.encode())
    except (KeyWrongLastSequenceError, KeyNotFoundError):
        return None
    except _TROUBLE as error:
        _logger.debug("lease cannot be asked for", lease=name, reason=str(error))
        return None
    return Lease(kv, name, holder, revision, asked_at)


@asynccontextmanager
async def held(client: Client, name: str, holder: str) -> AsyncIterator[Lease]:
    """Wait until this process leads, keep leading during the block, release at its end."""
    lease = await try_acquire(client, name, holder)
    while lease is None:
        await asyncio.sleep(TRY_EVERY_S)
        lease = await try_acquire(client, name, holder)
    _logger.info("leads", lease=name)
    async with kept(lease):
        yield lease


@asynccontextmanager
async def kept(lease: Lease) -> AsyncIterator[None]:
    """Refresh the lease during the block, release it at its end."""
    renewal = asyncio.create_task(lease.renew_for_ever())
    try:
        yield
    finally:
        await end(renewal)
        await lease.release()
