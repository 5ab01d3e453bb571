"""The stream and the buckets, declared from code."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.jetstream import connection
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.lease import try_acquire
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import inspect, provision, stream_config
from cascade_core.settings import NatsSettings
from cascade_core.testing.builders import chunk
from nats.aio.client import Client
from nats.js import api


async def test_a_new_server_gets_everything_and_a_second_call_changes_nothing(
    nats_settings: NatsSettings,
) -> None:
    async with connected(nats_settings, name="test") as client:
        assert not (await inspect(client)).exists
        await provision(client)
        await JetStreamLog(client).append(chunk(0, ["a"]))
        await provision(client)
        report = await inspect(client)
    assert (report.exists, report.messages, report.last_position, report.differences) == (True, 1, 1, ())
    assert report.bytes > 0


async def test_services_that_start_together_do_not_quarrel(nats_settings: NatsSettings) -> None:
    async with connected(nats_settings, name="a") as one, connected(nats_settings, name="b") as other:
        await asyncio.gather(*(provision(client) for client in (one, other) * 4))
        assert (await inspect(one)).differences == ()


async def test_differences_are_reported_and_left_alone(nats_settings: NatsSettings) -> None:
    async with connected(nats_settings, name="test") as client:
        config = stream_config(1)
        config.discard = api.DiscardPolicy.OLD
        config.subjects = ["cascade.v1.trace.>"]
        await client.jetstream().add_stream(config)
        await provision(client)
        differences = (await inspect(client)).differences
    assert len(differences) == 2
    assert any(line.startswith("subjects: is ['cascade.v1.trace.>']") for line in differences)
    assert any(line.startswith("discard: is ") for line in differences)


async def test_a_full_store_refuses_new_facts_and_keeps_the_old(nats_settings: NatsSettings) -> None:
    async with connected(nats_settings, name="test") as client:
        config = stream_config(1)
        config.max_msgs = 2
        await client.jetstream().add_stream(config)
        await provision(client)
        log = JetStreamLog(client)
        for seq in range(2):
            await log.append(chunk(seq, ["a"]))
        with pytest.raises(LogUnavailable, match="maximum messages exceeded"):
            await log.append(chunk(2, ["a"]))
        with pytest.raises(LogUnavailable):
            await log.append_all([(chunk(2, ["a"]), None)])
        assert [record.position for record in await log.read([subjects.ALL])] == [1, 2]


async def test_leases_and_facts_outlive_the_server(
    fresh_nats: EmbeddedNats, nats_settings: NatsSettings
) -> None:
    async with connected(nats_settings, name="before") as client:
        await provision(client)
        await JetStreamLog(client).append(chunk(0, ["a"]))
    await fresh_nats.stop()
    await fresh_nats.start()
    async with connected(nats_settings, name="after") as client:
        assert (await inspect(client)).messages == 1
        assert await try_acquire(client, "ingest", "me") is not None


async def test_a_server_that_cannot_be_reached_is_named_without_its_password(
    fresh_nats: EmbeddedNats,
) -> None:
    await fresh_nats.stop()
    with pytest.raises(LogUnavailable) as caught:
        async with connected(NatsSettings(nats_url=fresh_nats.url), name="test"):
            pass
    assert f"127.0.0.1:{fresh_nats.port}" in str(caught.value)
    assert "test-password" not in str(caught.value)
    assert "cascade doctor" in str(caught.value)


class Deaf(Client):
    """Its first connection loses the cancel that ends it, as `asyncio.wait_for` may before Python 3.12."""

    async def connect(self, *arguments: Any, **keywords: Any) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await super().connect(*arguments, **keywords)


async def test_a_connection_that_loses_its_cancel_is_given_up_all_the_same(
    nats_settings: NatsSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Client] = []

    def deaf() -> Client:
        made.append(Deaf())
        return made[0]

    monkeypatch.setattr(connection, "Client", deaf)
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 0.1)
    async with asyncio.timeout(60):
        with pytest.raises(LogUnavailable):
            await connection.connect(nats_settings, name="test")
    assert not made[0].is_connected


async def test_a_wrong_password_is_told_at_once(fresh_nats: EmbeddedNats) -> None:
    url = fresh_nats.url.replace("test-password", "wrong")
    async with asyncio.timeout(60):
        with pytest.raises(LogUnavailable):
            async with connected(NatsSettings(nats_url=url), name="test"):
                pass
