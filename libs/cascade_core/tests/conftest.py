"""A connection to a NATS server of the test's own, provisioned."""

from collections.abc import AsyncIterator

import pytest
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.settings import NatsSettings
from nats.aio.client import Client


@pytest.fixture
def nats_settings(fresh_nats: EmbeddedNats) -> NatsSettings:
    return NatsSettings(nats_url=fresh_nats.url)


@pytest.fixture
async def client(nats_settings: NatsSettings) -> AsyncIterator[Client]:
    async with connected(nats_settings, name="test") as client:
        await provision(client)
        yield client


@pytest.fixture
def jetstream_log(client: Client) -> JetStreamLog:
    return JetStreamLog(client)
