"""Following the log while its server dies, comes back, or is out of reach."""

import asyncio
import os
import signal

import pytest
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_cli.embedded.proxy import TcpProxy
from cascade_core import subjects
from cascade_core.errors import Corrupt, LogUnavailable, UnknownFactVersion
from cascade_core.facts import AnyFact
from cascade_core.jetstream.codec import VERSION_HEADER, delivery_of
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.settings import NatsSettings
from cascade_core.testing.builders import RUN, SIM, chunk, kernel
from cascade_core.testing.event_log_contract import DEADLINE_S, taken
from nats.aio.client import Client
from nats.aio.msg import Msg

TURNS_AT_ONCE = 100
"""Of the event loop, and none of them waits: what is done in them waited for nothing, however slow the machine is."""


async def kill_and_restart(server: EmbeddedNats) -> None:
    """End the server as a power cut does, and start it on what it had written."""
    os.kill(server.processes[0].pid, signal.SIGKILL)
    await server.stop()
    await server.start()


async def append_for_certain(log: JetStreamLog, seq: int) -> None:
    """Append until it is stored, as every writer does: the id makes repeats harmless."""
    while True:
        try:
            await log.append(chunk(seq, [str(seq)]), event_id=f"log:{SIM}:{seq}")
        except LogUnavailable:
            await asyncio.sleep(0.05)
        else:
            return


@pytest.mark.timeout(300)
async def test_a_killed_server_costs_no_fact_and_repeats_none(
    fresh_nats: EmbeddedNats, client: Client, jetstream_log: JetStreamLog
) -> None:
    async with jetstream_log.follow([subjects.ALL_LOGS], batch=16) as batches:
        reading = asyncio.create_task(taken(batches, 300, deadline_s=200))

        written: list[int] = []

        async def write() -> None:
            for seq in range(300):
                await append_for_certain(jetstream_log, seq)
                written.append(seq)

        writing = asyncio.create_task(write())
        for _ in range(2):
            before = len(written)
            await kill_and_restart(fresh_nats)
            async with asyncio.timeout(DEADLINE_S):
                while len(written) == before < 300:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        await writing
        records = await reading
    assert [record.position for record in records] == list(range(1, 301))
    assert [getattr(record.fact, "seq", None) for record in records] == list(range(300))


async def test_what_was_acknowledged_is_there_after_a_kill(
    fresh_nats: EmbeddedNats, jetstream_log: JetStreamLog
) -> None:
    await jetstream_log.append_all([(kernel(i), f"kernel:{SIM}:{i}") for i in range(500)])
    await jetstream_log.append(chunk(0, ["x" * 600_000]))
    await kill_and_restart(fresh_nats)
    async with connected(NatsSettings(nats_url=fresh_nats.url), name="after") as client:
        log = JetStreamLog(client)
        assert await log.last_position() == 501
        assert len(await log.read([subjects.ALL])) == 501
        again = await log.append(kernel(3), event_id=f"kernel:{SIM}:3")
        assert again.duplicate


async def test_a_batch_that_was_cut_off_gives_back_what_it_held(
    fresh_nats: EmbeddedNats, client: Client, jetstream_log: JetStreamLog
) -> None:
    # The client counts unanswered appends; each that is given up must be given back, or appends stall one day.
    batch: list[tuple[AnyFact, str | None]] = [(kernel(i), f"kernel:{SIM}:{i}") for i in range(256)]
    os.kill(fresh_nats.processes[0].pid, signal.SIGSTOP)
    with pytest.raises(LogUnavailable):
        await jetstream_log.append_all(batch)
    os.kill(fresh_nats.processes[0].pid, signal.SIGCONT)
    assert len(await jetstream_log.append_all(batch)) == 256
    async with asyncio.timeout(DEADLINE_S):
        while jetstream_log._js.publish_async_pending() != 0:  # noqa: ASYNC110 - the client counts in callbacks
            await asyncio.sleep(0)
    assert len(await jetstream_log.read([subjects.ALL_KERNELS])) == 256


async def test_an_append_without_a_server_says_so_at_once(
    fresh_nats: EmbeddedNats, client: Client, jetstream_log: JetStreamLog
) -> None:
    await fresh_nats.stop()
    async with asyncio.timeout(DEADLINE_S):
        while client.is_connected:  # noqa: ASYNC110 - the client has no event for it
            await asyncio.sleep(0.01)
    for call in (
        jetstream_log.append(chunk(0, ["a"])),
        jetstream_log.append(chunk(0, ["x" * 600_000])),
        jetstream_log.append_all([(kernel(0), None)]),
        jetstream_log.last_position(),
        jetstream_log.read([subjects.ALL]),
        jetstream_log.at(1),
        jetstream_log.subjects(subjects.ALL),
        jetstream_log.purge(subjects.log_of(RUN, SIM)),
    ):
        asked: asyncio.Task[object] = asyncio.create_task(call)
        for _ in range(TURNS_AT_ONCE):
            await asyncio.sleep(0)
        assert asked.done()
        with pytest.raises(LogUnavailable):
            await asked


async def test_a_cut_connection_is_made_anew_and_nothing_is_missed(fresh_nats: EmbeddedNats) -> None:
    async with TcpProxy(fresh_nats.port) as proxy:
        url = fresh_nats.url.replace(f":{fresh_nats.port}", f":{proxy.port}")
        async with (
            connected(NatsSettings(nats_url=fresh_nats.url), name="writer") as straight,
            connected(NatsSettings(nats_url=url), name="reader") as through,
        ):
            await provision(straight)
            writer, reader = JetStreamLog(straight), JetStreamLog(through)
            async with reader.follow([subjects.ALL]) as batches:
                await writer.append(chunk(0, ["0"]))
                await taken(batches, 1)
                waiting = asyncio.create_task(taken(batches, 3))
                for seq in (1, 2, 3):
                    await proxy.cut()
                    await writer.append(chunk(seq, [str(seq)]))
                    await proxy.restore()
                records = await waiting
    assert [record.position for record in records] == [2, 3, 4]


async def handed_over(client: Client, position: int) -> None:
    """Wait until the server has sent the fact at `position` to whoever follows."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            consumers = await client.jetstream().consumers_info(subjects.STREAM)
            if any(
                info.delivered is not None and info.delivered.stream_seq >= position for info in consumers
            ):
                return
            await asyncio.sleep(0.02)


async def test_a_network_that_swallows_everything_is_noticed(fresh_nats: EmbeddedNats) -> None:
    async with TcpProxy(fresh_nats.port) as proxy:
        url = fresh_nats.url.replace(f":{fresh_nats.port}", f":{proxy.port}")
        async with (
            connected(NatsSettings(nats_url=fresh_nats.url), name="writer") as straight,
            connected(NatsSettings(nats_url=url), name="reader") as through,
        ):
            await provision(straight)
            writer, reader = JetStreamLog(straight), JetStreamLog(through)
            async with reader.follow([subjects.ALL]) as batches:
                await writer.append(chunk(0, ["0"]))
                await taken(batches, 1)
                waiting = asyncio.create_task(taken(batches, 1))
                proxy.freeze()
                await writer.append(chunk(1, ["1"]))
                await handed_over(straight, 2)
                # What was swallowed never arrives: only making the consumer anew brings it.
                await proxy.cut()
                await proxy.restore()
                assert [record.position for record in await waiting] == [2]


async def test_a_follower_ends_with_its_connection(client: Client, jetstream_log: JetStreamLog) -> None:
    async with jetstream_log.follow([subjects.ALL]) as batches:
        await jetstream_log.append(chunk(0, ["a"]))
        await taken(batches, 1)
        waiting = asyncio.create_task(taken(batches, 1))
        await client.close()
        with pytest.raises(LogUnavailable, match="closed"):
            await waiting


async def test_facts_of_a_later_version_and_rubbish_stop_the_reader(
    client: Client, jetstream_log: JetStreamLog
) -> None:
    subject = subjects.log_of(RUN, SIM)
    js = client.jetstream()
    await js.publish(subject, b"{}", headers={VERSION_HEADER: "2"})
    with pytest.raises(UnknownFactVersion):
        await jetstream_log.read([subjects.ALL])
    await js.publish(subject, b"{}", headers={VERSION_HEADER: "one"})
    with pytest.raises(Corrupt, match="no schema version"):
        await jetstream_log.at(2)
    await js.publish(subject, b"rubbish")
    with pytest.raises(Corrupt):
        await jetstream_log.at(3)
    async with jetstream_log.follow([subjects.ALL], after=2) as batches:
        with pytest.raises(Corrupt):
            await taken(batches, 1)


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.CASCADE.abc.1.42.7.1700000000000000000.0",
        "$JS.ACK.hub.hash.CASCADE.abc.1.42.7.1700000000000000000.0",
        "$JS.ACK._.hash.CASCADE.abc.1.42.7.1700000000000000000.0.random",
    ],
)
def test_positions_are_read_with_and_without_a_domain(reply: str) -> None:
    delivery = delivery_of(Msg(_client=None, reply=reply))  # type: ignore[arg-type]
    assert (delivery.position, delivery.number) == (42, 7)
