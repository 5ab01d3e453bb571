"""Which sims this instance reads. Sims fall into partitions by their id; instances share the partitions by leases.

Each instance shows itself in the lease bucket, counts the others, takes no more than its fair share and gives back
what it has beyond it. A killed instance's partitions are free again when its leases run out.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
from cascade_core import subjects
from cascade_core.jetstream.lease import Lease, try_acquire
from cascade_core.jetstream.provision import LEASE_TTL_S
from cascade_core.tasks import end
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NoKeysError, NotFoundError

_logger = structlog.get_logger(__name__)

PARTITIONS = 8
"""More instances than this stay idle; fewer share unevenly by at most one partition."""
ROUND_EVERY_S = LEASE_TTL_S / 10

Changed = Callable[[int], Awaitable[None]]


def partition_of(sim_id: str) -> int:
    """The partition of a sim: the same in every process and for ever."""
    return zlib.crc32(sim_id.encode()) % PARTITIONS


def fair_share(instances: int) -> int:
    """The most partitions that one of `instances` holds."""
    return -(-PARTITIONS // max(instances, 1))


class Shares:
    """The partitions that this instance holds, kept up to date by `run`."""

    def __init__(self, client: Client, holder: str, *, gained: Changed, lost: Changed) -> None:
        self._client = client
        self._holder = holder
        self._gained = gained
        self._lost = lost
        self._held: dict[int, tuple[Lease, asyncio.Task[None]]] = {}

    def holds(self, sim_id: str) -> bool:
        """Whether this instance reads the sim."""
        held = self._held.get(partition_of(sim_id))
        return held is not None and not held[0].lost.is_set()

    @property
    def partitions(self) -> list[int]:
        """The partitions that this instance holds now."""
        return sorted(self._held)

    async def run(self) -> None:
        """Take, keep and give back partitions for ever; releases all at the end."""
        try:
            while True:
                await self._round()
                await asyncio.sleep(ROUND_EVERY_S)
        finally:
            await asyncio.gather(*(self._release(partition) for partition in list(self._held)))
            with suppress(NatsError, APIError, TimeoutError, OSError):
                kv = await self._client.jetstream().key_value(subjects.LEASES)
                await kv.purge(self._member_key)

    @property
    def _member_key(self) -> str:
        return f"parser-member.{self._holder}"

    async def _round(self) -> None:
        for partition, (lease, _) in list(self._held.items()):
            if lease.lost.is_set():
                await self._release(partition)
        try:
            instances = await self._instances()
        except (NatsError, APIError, TimeoutError, OSError):
            return  # leases tell for themselves when they are lost
        share = fair_share(instances)
        for partition in sorted(self._held)[share:]:
            await self._release(partition)
        for partition in range(PARTITIONS):
            if len(self._held) >= share:
                return
            if partition not in self._held:
                await self._take(partition)

    async def _instances(self) -> int:
        kv = await self._client.jetstream().key_value(subjects.LEASES)
        await kv.put(self._member_key, b"")
        try:
            keys = [key for key in await kv.keys() if key.startswith("parser-member.")]
        except (NoKeysError, NotFoundError):
            return 1
        return max(len(keys), 1)

    async def _take(self, partition: int) -> None:
        lease = await try_acquire(self._client, f"parser-{partition}", self._holder)
        if lease is None:
            return
        renewal = asyncio.create_task(lease.renew_for_ever())
        self._held[partition] = (lease, renewal)
        await self._gained(partition)

    async def _release(self, partition: int) -> None:
        """Stop reading, finish what is under way while the lease is kept, then let the next instance read."""
        lease, renewal = self._held.pop(partition)
        try:
            await self._lost(partition)
        finally:
            await end(renewal)
            await lease.release()
