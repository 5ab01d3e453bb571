"""Who leads, on a real server."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_cli.embedded.proxy import TcpProxy
from cascade_core import subjects
from cascade_core.jetstream import lease as lease_module
from cascade_core.jetstream import provision as provision_module
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.lease import Lease, held, try_acquire
from cascade_core.jetstream.provision import LEASE_TTL_S, provision
from cascade_core.settings import NatsSettings
from cascade_core.tasks import end
from nats.aio.client import Client
from nats.errors import Error as NatsError

PATIENCE_S = 60.0
# A busy machine may stand still for longer than a lease usually has.
LONG_TTL_S = 600.0


@asynccontextmanager
async def with_leases_of(
    ttl_s: float, server: EmbeddedNats, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Client]:
    """A connection to a server on which leases have that time."""
    for module in (lease_module, provision_module):
        monkeypatch.setattr(module, "LEASE_TTL_S", ttl_s)
    async with connected(NatsSettings(nats_url=server.url), name="test") as client:
        await provision(client)
        yield client


@pytest.fixture
async def patient(fresh_nats: EmbeddedNats, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A connection to a server on which no lease runs out during a test."""
    async with with_leases_of(LONG_TTL_S, fresh_nats, monkeypatch) as client:
        yield client


async def acquired(client: Client, name: str, holder: str) -> Lease:
    async with asyncio.timeout(PATIENCE_S):
        while (lease := await try_acquire(client, name, holder)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return lease


async def holder_of(client: Client, name: str) -> str:
    kv = await client.jetstream().key_value(subjects.LEASES)
    return ((await kv.get(name)).value or b"").decode()


async def revision_of(client: Client, name: str) -> int:
    """How often the stream of leases was written up to the name's newest value; 0 while nobody answers."""
    with suppress(NatsError, TimeoutError):
        kv = await client.jetstream().key_value(subjects.LEASES)
        return (await kv.get(name)).revision or 0
    return 0


async def renewed(client: Client, name: str, *, since: int) -> None:
    """Wait until the lease was written again after the revision `since`."""
    async with asyncio.timeout(PATIENCE_S):
        while await revision_of(client, name) <= since:  # noqa: ASYNC110 - the server sets no event of ours
            await asyncio.sleep(0.05)


async def test_one_of_many_leads(client: Client) -> None:
    leases = await asyncio.gather(*(try_acquire(client, "ingest", f"h{i}") for i in range(8)))
    assert sum(1 for lease in leases if lease is not None) == 1
    assert await try_acquire(client, "other", "h9") is not None


async def test_a_released_lease_is_free_at_once(patient: Client) -> None:
    for holder in ("a", "b", "c"):
        async with asyncio.timeout(PATIENCE_S), held(patient, "ingest", holder):
            assert await holder_of(patient, "ingest") == holder
            assert await try_acquire(patient, "ingest", "other") is None


async def test_a_release_frees_a_lease_whose_last_refresh_got_no_answer(patient: Client) -> None:
    lease = await try_acquire(patient, "ingest", "a")
    assert lease is not None
    await (await patient.jetstream().key_value(subjects.LEASES)).put("ingest", b"a")
    await lease.release()
    assert await try_acquire(patient, "ingest", "b") is not None


async def test_a_dead_holders_lease_runs_out(client: Client) -> None:
    assert await try_acquire(client, "ingest", "dead") is not None
    assert await try_acquire(client, "ingest", "next") is None
    await acquired(client, "ingest", "next")
    assert await holder_of(client, "ingest") == "next"


async def test_a_holder_that_renews_keeps_its_lease_beyond_the_keys_life(
    fresh_nats: EmbeddedNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for a holder that stands still for some seconds between two refreshes.
    ttl_s = 2 * LEASE_TTL_S
    async with (
        with_leases_of(ttl_s, fresh_nats, monkeypatch) as client,
        held(client, "ingest", "a") as lease,
    ):
        ends = asyncio.get_running_loop().time() + 1.2 * ttl_s
        while asyncio.get_running_loop().time() < ends:
            assert await try_acquire(client, "ingest", "b") is None
            assert not lease.lost.is_set()
            await asyncio.sleep(0.25)


async def test_a_holder_that_cannot_reach_the_server_stops_before_another_leads(
    fresh_nats: EmbeddedNats, client: Client
) -> None:
    async with TcpProxy(fresh_nats.port) as proxy:
        url = fresh_nats.url.replace(f":{fresh_nats.port}", f":{proxy.port}")
        async with (
            connected(NatsSettings(nats_url=url), name="cut off") as cut_off,
            held(cut_off, "ingest", "a") as lease,
        ):
            proxy.freeze()
            await acquired(client, "ingest", "b")
            for _ in range(100):  # both learn of it in the same turn where this process stood still meanwhile
                await asyncio.sleep(0)
            assert lease.lost.is_set()
            await proxy.cut()
            await proxy.restore()


async def test_a_release_does_not_take_the_lease_from_the_next_holder(client: Client) -> None:
    late = await try_acquire(client, "ingest", "a")
    assert late is not None
    await acquired(client, "ingest", "b")
    await late.release()
    assert await holder_of(client, "ingest") == "b"


async def test_a_holder_whose_key_was_taken_notices(patient: Client) -> None:
    async with held(patient, "ingest", "a") as lease:
        kv = await patient.jetstream().key_value(subjects.LEASES)
        await kv.put("ingest", b"b")
        async with asyncio.timeout(PATIENCE_S):
            await lease.lost.wait()
    assert await holder_of(patient, "ingest") == "b"


async def test_a_refresh_whose_answer_was_lost_is_no_loss(patient: Client) -> None:
    lease = await try_acquire(patient, "ingest", "a")
    assert lease is not None
    kv = await patient.jetstream().key_value(subjects.LEASES)
    unanswered = await kv.put("ingest", b"a")
    renewal = asyncio.create_task(lease.renew_for_ever())
    await renewed(patient, "ingest", since=unanswered)
    assert not lease.lost.is_set()
    assert await holder_of(patient, "ingest") == "a"
    await end(renewal)


async def test_a_refresh_that_gets_no_answer_is_asked_for_again(
    patient: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await try_acquire(patient, "ingest", "a")
    assert lease is not None
    update = lease._kv.update
    asked: list[str] = []

    async def unanswered_once(key: str, value: bytes, last: int | None = None) -> int:
        asked.append(key)
        if len(asked) == 1:
            await asyncio.Event().wait()  # as one that is lost with its connection
        return int(await update(key, value, last))

    monkeypatch.setattr(lease._kv, "update", unanswered_once)
    renewal = asyncio.create_task(lease.renew_for_ever())
    await renewed(patient, "ingest", since=await revision_of(patient, "ingest"))
    assert not lease.lost.is_set()
    await end(renewal)


async def test_a_lease_survives_a_server_that_is_killed_and_comes_back(
    fresh_nats: EmbeddedNats, patient: Client
) -> None:
    async with held(patient, "ingest", "a") as lease:
        before = await revision_of(patient, "ingest")
        assert before
        os.kill(fresh_nats.processes[0].pid, signal.SIGKILL)
        await fresh_nats.stop()
        await fresh_nats.start()
        await renewed(patient, "ingest", since=before)
        assert not lease.lost.is_set()
        assert await holder_of(patient, "ingest") == "a"


async def test_a_lease_is_lost_also_where_saying_so_fails(
    patient: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await try_acquire(patient, "ingest", "a")
    assert lease is not None
    kv = await patient.jetstream().key_value(subjects.LEASES)
    await kv.put("ingest", b"b")

    class Broken:
        def warning(self, *_words: str, **_more: str) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(lease_module, "_logger", Broken())
    with pytest.raises(BrokenPipeError):
        await lease.renew_for_ever()
    assert lease.lost.is_set()
