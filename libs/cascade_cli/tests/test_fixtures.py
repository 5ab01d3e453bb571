"""The fixtures give each test servers that work and data of its own."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import nats
import pytest
from cascade_cli.embedded import process
from cascade_cli.embedded.errors import EmbeddedServerError
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_cli.embedded.proxy import TcpProxy
from cascade_cli.embedded.s3 import EmbeddedS3
from cascade_cli.embedded.s3_requests import S3Access, request
from cascade_cli.embedded.testing import PostgresServer


async def test_the_session_nats_takes_a_stream_and_gives_it_back(nats_server: EmbeddedNats) -> None:
    client = await nats.connect(nats_server.url)
    stream = client.jetstream()
    await stream.add_stream(name="FIXTURE", subjects=["fixture.>"])
    ack = await stream.publish("fixture.one", b"hello")
    assert ack.seq == 1
    await stream.delete_stream("FIXTURE")
    await client.close()


@pytest.mark.parametrize("_round", [1, 2])
async def test_a_fresh_nats_is_empty_each_time(fresh_nats: EmbeddedNats, _round: int) -> None:
    client = await nats.connect(fresh_nats.url)
    stream = client.jetstream()
    assert await stream.streams_info() == []
    await stream.add_stream(name="MINE", subjects=["mine"])
    await client.close()


@pytest.mark.parametrize("_round", [1, 2])
async def test_each_test_gets_an_empty_database(postgres_url: str, _round: int) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE mine (n int)")
    assert await connection.fetchval("SELECT count(*) FROM mine") == 0
    await connection.close()


def test_a_template_is_filled_once_and_cloned_for_each_test(postgres_server: PostgresServer) -> None:
    fills: list[str] = []

    def fill(url: str) -> None:
        fills.append(url)
        postgres_server.sql("CREATE TABLE t AS SELECT 7 AS n", database=url.rsplit("/", 1)[1])

    for _ in range(2):
        template = postgres_server.create_template("filled", fill)
        clone = postgres_server.create_database(template=template).rsplit("/", 1)[1]
        assert postgres_server.sql("SELECT n FROM t", database=clone) == "7"
        postgres_server.sql("DELETE FROM t", database=clone)
    assert len(fills) == 1


@pytest.mark.parametrize("_round", [1, 2])
def test_each_test_gets_an_empty_bucket(bucket: S3Access, _round: int) -> None:
    status, listing = request("GET", bucket, f"/{bucket.bucket}", query="list-type=2")
    assert (status, b"<Key>" in listing) == (200, False)
    assert request("PUT", bucket, f"/{bucket.bucket}/mine", b"x")[0] == 200


def test_a_deleted_bucket_is_gone(s3_server: EmbeddedS3, bucket: S3Access) -> None:
    request("PUT", bucket, f"/{bucket.bucket}/left-behind", b"x")
    asyncio.run(s3_server.delete_bucket(bucket.bucket))
    assert request("HEAD", bucket, f"/{bucket.bucket}")[0] == 404


async def test_a_cut_proxy_breaks_connections_and_a_restored_one_takes_new_ones(
    fresh_nats: EmbeddedNats,
) -> None:
    async with TcpProxy(fresh_nats.port) as proxy:
        url = fresh_nats.url.replace(str(fresh_nats.port), str(proxy.port))
        broken = asyncio.Event()
        back = asyncio.Event()

        async def on_disconnect() -> None:
            broken.set()

        async def on_reconnect() -> None:
            back.set()

        client = await nats.connect(
            url, disconnected_cb=on_disconnect, reconnected_cb=on_reconnect, reconnect_time_wait=0.05
        )
        assert proxy.connections == 1
        await proxy.cut()
        await asyncio.wait_for(broken.wait(), 30)
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.1", proxy.port)
        await proxy.restore()
        await asyncio.wait_for(back.wait(), 30)
        await client.flush()
        await client.close()


@asynccontextmanager
async def echoing() -> AsyncIterator[int]:
    """A server that sends back what it gets; its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while line := await reader.read(100):
                writer.write(line)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("turns", range(8))
async def test_a_cut_breaks_also_what_has_just_connected(turns: int) -> None:
    async with echoing() as port, TcpProxy(port) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            await proxy.cut()
            assert proxy.connections == 0
            loop = asyncio.get_running_loop()
            with contextlib.suppress(ConnectionError):
                await loop.sock_sendall(client, b"x")
                assert await asyncio.wait_for(loop.sock_recv(client, 1), 30) == b""


async def test_a_frozen_proxy_keeps_the_connection_but_passes_nothing_on() -> None:
    # Not NATS: it ends a connection that says nothing for two seconds.
    async with echoing() as port, TcpProxy(port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"one")
        assert await asyncio.wait_for(reader.read(3), 30) == b"one"
        proxy.freeze()
        writer.write(b"two")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(3), 0.3)
        assert proxy.connections == 1
        await proxy.restore()
        assert await asyncio.wait_for(reader.read(3), 30) == b"two"
        writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port that is held is its server's no more")
def test_a_port_that_was_given_out_is_kept_for_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = process.free_ports(1)
    only = range(port, port + 1)
    monkeypatch.setattr(process, "_PORT_RANGE", only)
    with pytest.raises(EmbeddedServerError, match="no 1 free ports"):
        process.free_ports(1)
    elsewhere = f"from cascade_cli.embedded import process as p; p._PORT_RANGE = {only!r}; p.free_ports(1)"
    done = subprocess.run([sys.executable, "-c", elsewhere], capture_output=True, text=True, check=False)
    assert "no 1 free ports" in done.stderr
    for _ in range(2):  # also after a restart
        with socket.create_server(("127.0.0.1", port)):
            assert process.accepts(port)
