"""Which sims this instance reads. Sims fall into partitions by their id; instances share the partitions by leases.

Each instance shows itself in the lease bucket, counts the others, takes no more than its fair share and gives back
what it has beyond it. A killed instance's partitions are free again when its leases run out.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import structlog
from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.jetstream.lease import RELEASE_TIMEOUT_S, Lease, try_acquire
from cascade_core.jetstream.provision import LEASE_TTL_S
from cascade_core.jetstream.stream_subjects import subjects_in
from cascade_core.tasks import end, undisturbed
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import APIError

_logger = structlog.get_logger(__name__)

PARTITIONS = 8
"""More instances than this stay idle; fewer share unevenly by at most one partition."""
_MEMBERS = f"$KV.{subjects.LEASES}.parser-member."
"""An instance writes its name here in every round, and the server forgets it after the time of a lease."""
_LEFT = f"$KV.{subjects.LEASES}.parser-left."
"""Written last by one that ends. A delete would count like any other message, and there is no telling them apart."""
ROUND_EVERY_S = LEASE_TTL_S / 10

_TROUBLE = (LogUnavailable, NatsError, APIError, TimeoutError, OSError)

Changed = Callable[[int], Awaitable[None]]


def partition_of(sim_id: str) -> int:
    """The partition of a sim: the same in every process and for ever."""
    return zlib.crc32(sim_id.encode()) % PARTITIONS


def fair_share(holder: str, others: Iterable[str]) -> int:
    """How many partitions `holder` has beside `others`: all have the same, and the first ones by name one more.

    So every instance works, up to as many as there are partitions.
    """
    ranked = sorted({holder, *others})
    share, over = divmod(PARTITIONS, len(ranked))
    return share + (ranked.index(holder) < over)


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
            # Whoever ends this asks again soon; the others would have to wait until what was not given back runs out.
            await undisturbed(self._leave())

    async def _leave(self) -> None:
        await asyncio.gather(*(self._release(partition) for partition in list(self._held)))
        with suppress(*_TROUBLE):
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                await self._client.jetstream().publish(_LEFT + self._holder)

    async def _round(self) -> None:
        for partition, (lease, _) in list(self._held.items()):
            if lease.lost.is_set():
                await undisturbed(self._release(partition))
        try:
            await self._client.jetstream().publish(_MEMBERS + self._holder)
            share = fair_share(self._holder, await self._members())
        except _TROUBLE:
            return  # leases tell for themselves when they are lost
        for partition in sorted(self._held)[share:]:
            await undisturbed(self._release(partition))
        for partition in range(PARTITIONS):
            if len(self._held) >= share:
                return
            if partition not in self._held:
                await self._take(partition)

    async def _members(self) -> set[str]:
        """Everybody who has shown themselves. Asked without a consumer: the client's `keys` leaves one each time."""
        found = await subjects_in(self._client, f"KV_{subjects.LEASES}", f"$KV.{subjects.LEASES}.*.*")
        return {
            key.removeprefix(_MEMBERS)
            for key in found
            if key.startswith(_MEMBERS) and _LEFT + key.removeprefix(_MEMBERS) not in found
        }

    async def _take(self, partition: int) -> None:
        # What the server has given must be known here, to be given back: an answer may come when this instance ends.
        if await undisturbed(self._is_acquired(partition)):
            await self._gained(partition)

    async def _is_acquired(self, partition: int) -> bool:
        lease = await try_acquire(self._client, f"parser-{partition}", self._holder)
        if lease is None:
            return False
        self._held[partition] = (lease, asyncio.create_task(lease.renew_for_ever()))
        return True

    async def _release(self, partition: int) -> None:
        """Stop reading, finish what is under way while the lease is kept, then let the next instance read."""
        lease, renewal = self._held.pop(partition)
        try:
            await self._lost(partition)
        finally:
            await end(renewal)
            await lease.release()
