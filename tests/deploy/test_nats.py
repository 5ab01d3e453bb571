"""The files of deploy/nats: up to date with the code's permissions, and understood by a real server and a cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from cascade_cli import bundled
from cascade_cli.embedded.process import free_ports
from cascade_cli.provisioning.nats_config import password_variable, users, users_config
from cascade_cli.provisioning.settings import ProvisionSettings
from cascade_cli.provisioning.streams import provision_streams
from cascade_cli.provisioning.testing.wiring import nats_server, started
from cascade_core import subjects
from cascade_core.jetstream.connection import connect, connected
from cascade_core.jetstream.permissions import SERVICES
from cascade_core.settings import NatsSettings
from nats.aio.client import Client
from pydantic import SecretStr

PASSWORDS = {password_variable(user): f"k{user}" for user in users()} | {
    "CASCADE_NATS_ROUTE_PASSWORD": "kroute"
}


@dataclass(frozen=True)
class Login:
    """A server to log in to."""

    url: str

    def settings(self, user: str) -> ProvisionSettings:
        """As `user`."""
        return ProvisionSettings(
            nats_url=self.url, nats_user=user, nats_password=SecretStr(f"k{user}"), nats_replicas=1
        )


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Login]:
    """One server on nats.conf."""
    port = free_ports(1)[0]
    process = nats_server(tmp_path / "nats", "nats.conf", PASSWORDS, port=port)
    await started(process)
    yield Login(f"nats://127.0.0.1:{port}")
    await process.stop(grace_s=5)


def test_the_users_file_is_what_the_code_permits() -> None:
    stored = (bundled.ROOT / "deploy" / "nats" / "users.conf").read_text("utf-8")
    assert stored == users_config(), "run `uv run cascade nats-config > deploy/nats/users.conf`"


async def test_every_login_of_the_file_is_let_in(server: Login) -> None:
    for user in (*SERVICES, "minio", "operator"):
        async with connected(server.settings(user), name=user) as client:
            assert client.is_connected


async def test_the_bucket_may_announce_uploads_and_nothing_else(server: Login) -> None:
    async with (
        connected(server.settings("ingest"), name="ingest") as ingest,
        connected(server.settings("operator"), name="operator") as operator,
    ):
        heard = await ingest.subscribe("minio.events")
        facts = await operator.subscribe("cascade.v1.>")
        await ingest.flush()
        await operator.flush()
        store = await connect(server.settings("minio"), name="minio")
        await store.publish("cascade.v1.trace.x.ready", b"forged")
        await store.publish("minio.events", b"{}")
        await store.flush()
        message = await heard.next_msg(timeout=60)
        assert message.subject == "minio.events"
        with pytest.raises(TimeoutError):
            await facts.next_msg(timeout=0.2)
        await store.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_three_servers_of_the_cluster_file_keep_three_copies(tmp_path: Path) -> None:
    ports = free_ports(6)
    clients, routes = ports[:3], ports[3:]
    urls = {
        f"CASCADE_NATS_ROUTE_{number}": f"nats-route://route:kroute@127.0.0.1:{route}"
        for number, route in enumerate(routes)
    }
    async with AsyncExitStack() as stack:
        for number, (port, route) in enumerate(zip(clients, routes, strict=True)):
            process = nats_server(
                tmp_path / f"nats-{number}",
                "cluster.conf",
                PASSWORDS | urls | {"POD_NAME": f"cascade-nats-{number}"},
                port=port,
                # Three servers on one host cannot share a port.
                replaced={"port: 6222": f'listen: "127.0.0.1:{route}"'},
            )
            await process.start()
            stack.push_async_callback(process.stop, grace_s=5)
        one = Login(f"nats://127.0.0.1:{clients[0]}").settings("operator")
        await _until_led(one)
        lines = await provision_streams(one.model_copy(update={"nats_replicas": 1}))
        assert lines[0] == f"stream {subjects.STREAM}: 1 replica(s)"
        # A set-up of one server that grew into a cluster.
        grown = await provision_streams(one.model_copy(update={"nats_replicas": 3}))
        assert f"stream {subjects.STREAM}: had 1 replica(s)" in grown
        async with connected(one, name="test") as client:
            for stream in (subjects.STREAM, f"OBJ_{subjects.CLAIMS}", f"KV_{subjects.LEASES}"):
                info = await client.jetstream().stream_info(stream)
                assert info.config.num_replicas == 3


async def _until_led(settings: NatsSettings) -> None:
    """Wait until the cluster has chosen a leader: before that, JetStream answers nobody."""
    async with asyncio.timeout(90):
        while True:
            async with connected(settings, name="test") as client:
                if await _answers(client):
                    return
            await asyncio.sleep(0.2)


async def _answers(client: Client) -> bool:
    from nats.errors import Error as NatsError

    try:
        await client.jetstream().account_info()
    except (NatsError, TimeoutError):
        return False
    return True
