"""Several instances on a real server: they share the sims, hand them over, and die."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.jetstream import lease
from cascade_core.jetstream import provision as provisioning
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.logs.facts import LogAppended
from cascade_core.settings import NatsSettings
from cascade_core.sims.transitions import SimState
from cascade_core.tasks import ASK_AGAIN_S, end
from cascade_core.testing.builders import launch_started, reported, run_requested
from cascade_parser import shares as sharing
from cascade_parser.main import holder_name
from cascade_parser.reactor import ParserReactor
from cascade_parser.shares import PARTITIONS, Shares, fair_share
from cascade_parser.testing import cut, is_parsed, kernels_of, progress_of, until
from nats.aio.client import Client

SIMS = [f"sim-{i:012x}" for i in range(12)]
CYCLES = [6174, 5923, 6216]


@pytest.fixture
def long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that outlive any pause of this machine: with one that ran out its sims come over, and are read again.

    For tests in which nobody is killed. Ask for it before the log, which makes the leases' bucket.
    """
    for module in (provisioning, lease):
        monkeypatch.setattr(module, "LEASE_TTL_S", 600.0)
    for module in (lease, sharing):  # then nothing that was not given back runs out in time
        monkeypatch.setattr(module, "RELEASE_TIMEOUT_S", 60.0)


@pytest.fixture
async def log(fresh_nats: EmbeddedNats) -> AsyncIterator[JetStreamLog]:
    async with connected(NatsSettings(nats_url=fresh_nats.url), name="test") as client:
        await provision(client)
        yield JetStreamLog(client)


@asynccontextmanager
async def instance(server: EmbeddedNats) -> AsyncIterator[tuple[ParserReactor, Shares]]:
    """One parser with a connection of its own, ended as on SIGTERM."""
    async with connected(NatsSettings(nats_url=server.url), name="parser") as client:
        reactor = ParserReactor(JetStreamLog(client))
        shares = Shares(client, holder_name(), gained=reactor.gained, lost=reactor.lost)
        running = asyncio.create_task(reactor.run(shares))
        try:
            yield reactor, shares
        finally:
            ended_by_itself = running.done()
            await end(running)
            assert not ended_by_itself


async def started(log: JetStreamLog) -> None:
    await log.append(run_requested(sims=SIMS))
    for sim in SIMS:
        await log.append(launch_started(sim_id=sim))
        await log.append(reported(SimState.RUNNING, 2, sim_id=sim))


async def write(
    log: JetStreamLog, lines: list[str], *, size: int, pause_s: float, may_end: asyncio.Event | None = None
) -> None:
    """Every sim's log at once, a chunk of each in turn; the sims' ends not before `may_end`."""
    logs = [cut(lines, size, sim_id=sim) for sim in SIMS]
    for chunks in zip(*logs, strict=True):
        await log.append_all([(one, f"log:{one.sim_id}:{one.seq}") for one in chunks])
        await asyncio.sleep(pause_s)
    if may_end is not None:
        await may_end.wait()
    for sim in SIMS:
        await log.append(reported(SimState.SUCCEEDED, 9, sim_id=sim))


async def check(log: JetStreamLog) -> None:
    """Nothing lost, nothing twice, each sim's kernels in order."""
    for sim in SIMS:
        await until(lambda sim=sim: is_parsed(log, sim), deadline_s=60)  # type: ignore[misc]
        kernels = await kernels_of(log, sim)
        assert [(kernel.index, kernel.gpu_sim_cycle) for kernel in kernels] == list(enumerate(CYCLES)), sim
        progress = await progress_of(log, sim)
        assert [one.through_seq for one in progress] == sorted(one.through_seq for one in progress), sim
        assert (progress[-1].kernels_done, progress[-1].latest.gpu_tot_sim_cycle) == (3, 18313.0), sim


async def until_shared(*shares: Shares) -> None:
    """Wait until every partition is held once, and each instance has the share that it keeps.

    An even share is not enough: with one partition too many for its name, an instance gives that one back again.
    """
    names = [one._holder for one in shares]

    async def shared() -> bool:
        held = sorted(partition for one in shares for partition in one.partitions)
        counts = [len(one.partitions) for one in shares]
        return held == list(range(PARTITIONS)) and counts == [fair_share(name, names) for name in names]

    await until(shared)


@pytest.mark.usefixtures("long_leases")
async def test_counting_each_other_leaves_no_consumers_and_who_ends_is_not_counted(
    fresh_nats: EmbeddedNats, log: JetStreamLog
) -> None:
    async with (
        instance(fresh_nats) as (_, one),
        connected(NatsSettings(nats_url=fresh_nats.url), name="test") as client,
    ):
        async with instance(fresh_nats) as (_, two):
            await until_shared(one, two)
            assert await one._members() == await two._members() == {one._holder, two._holder}
        assert await one._members() == {one._holder}
        await until_shared(one)
        leases = await client.jetstream().stream_info(f"KV_{subjects.LEASES}")
        assert leases.state.consumer_count == 0


@pytest.mark.usefixtures("long_leases")
async def test_one_that_ends_gives_everything_back_however_slow_the_server_is(
    fresh_nats: EmbeddedNats, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = lease.Lease.release

    async def slow(held: lease.Lease) -> None:
        await asyncio.sleep(2 * ASK_AGAIN_S)  # whoever ends the instance asks again meanwhile
        await release(held)

    async with instance(fresh_nats) as (_, one):
        async with instance(fresh_nats) as (_, two):
            await until_shared(one, two)
            monkeypatch.setattr(lease.Lease, "release", slow)
        assert await one._members() == {one._holder}
        await until_shared(one)


@pytest.mark.usefixtures("long_leases")
async def test_one_that_ends_while_it_takes_a_partition_leaves_it_to_the_next(
    fresh_nats: EmbeddedNats, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = asyncio.Event()

    async def slow(client: Client, name: str, holder: str) -> lease.Lease | None:
        acquired = await lease.try_acquire(client, name, holder)
        taken.set()
        await asyncio.sleep(2 * ASK_AGAIN_S)  # the answer is on its way
        return acquired

    with monkeypatch.context() as patched:
        patched.setattr(sharing, "try_acquire", slow)
        async with instance(fresh_nats):
            await taken.wait()
    async with instance(fresh_nats) as (_, following):
        await until_shared(following)


@pytest.mark.usefixtures("long_leases")
@pytest.mark.parametrize("instances", [1, 2, 3, 5])
async def test_instances_share_the_sims(
    fresh_nats: EmbeddedNats, log: JetStreamLog, three_kernels: list[str], instances: int
) -> None:
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(instance(fresh_nats)) for _ in range(instances)]
        await until_shared(*(shares for _, shares in running))
        await started(log)
        await write(log, three_kernels, size=20, pause_s=0)
        await check(log)
        assert sum(reactor.lines_read for reactor, _ in running) == len(SIMS) * len(three_kernels)
        assert all(reactor.lines_read > 0 for reactor, _ in running)


@pytest.mark.usefixtures("long_leases")
async def test_sims_are_handed_over_while_their_logs_arrive(
    fresh_nats: EmbeddedNats, log: JetStreamLog, three_kernels: list[str]
) -> None:
    await started(log)
    writing = asyncio.create_task(write(log, three_kernels, size=5, pause_s=0.1))
    async with instance(fresh_nats) as (_, one):
        await until_shared(one)
        async with instance(fresh_nats) as (_, two):
            await until_shared(one, two)
            async with instance(fresh_nats) as (_, three):
                await until_shared(one, two, three)
        # Two have gone in good order; the first takes over what they held.
        await until_shared(one)
        await writing
        await check(log)


@asynccontextmanager
async def process(server: EmbeddedNats) -> AsyncIterator[asyncio.subprocess.Process]:
    """The real service, in a process of its own."""
    environment = {"PATH": os.environ["PATH"], "CASCADE_NATS_URL": server.url, "CASCADE_LOG_LEVEL": "WARNING"}
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", "cascade_parser.main", env=environment)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()


async def test_a_killed_instances_sims_are_read_on_by_another(
    fresh_nats: EmbeddedNats, log: JetStreamLog, three_kernels: list[str]
) -> None:
    await started(log)
    async with process(fresh_nats) as doomed, instance(fresh_nats) as (_, survivor):
        writing = asyncio.create_task(write(log, three_kernels, size=5, pause_s=0.1))

        async def both_read() -> bool:
            return 0 < len(survivor.partitions) < PARTITIONS and len(await kernels_of(log, SIMS[0])) > 0

        await until(both_read)
        doomed.send_signal(signal.SIGKILL)
        await doomed.wait()
        await writing
        await check(log)


async def test_a_killed_service_reads_on_where_it_was(
    fresh_nats: EmbeddedNats, log: JetStreamLog, three_kernels: list[str]
) -> None:
    await started(log)
    last_began = (
        asyncio.Event()
    )  # else those that are killed may have read it all, and the last is not up yet
    writing = asyncio.create_task(write(log, three_kernels, size=5, pause_s=0.15, may_end=last_began))
    for kernels in (1, 2):
        async with process(fresh_nats) as doomed:

            async def read(kernels: int = kernels) -> bool:
                return len(await kernels_of(log, SIMS[0])) >= kernels

            await until(read)
            doomed.send_signal(signal.SIGKILL)
            await doomed.wait()
    async with process(fresh_nats) as last:
        last_began.set()
        await writing
        await check(log)
        last.terminate()
        async with asyncio.timeout(60):
            assert await last.wait() == 0


async def test_a_killed_nats_server_costs_nothing(
    fresh_nats: EmbeddedNats, log: JetStreamLog, three_kernels: list[str]
) -> None:
    await started(log)
    logs = [cut(three_kernels, 20, sim_id=sim) for sim in SIMS]
    async with instance(fresh_nats) as (_, one), instance(fresh_nats) as (_, two):
        await until_shared(one, two)
        for round_, chunks in enumerate(zip(*logs, strict=True)):
            if round_ == 5:
                os.kill(fresh_nats.processes[0].pid, signal.SIGKILL)
                await fresh_nats.stop()
                await fresh_nats.start()

            async def stored(chunks: tuple[LogAppended, ...] = chunks) -> bool:
                with suppress(LogUnavailable):
                    await log.append_all([(one, f"log:{one.sim_id}:{one.seq}") for one in chunks])
                    return True
                return False

            await until(stored)
        for sim in SIMS:
            await log.append(reported(SimState.SUCCEEDED, 9, sim_id=sim))
        await check(log)
