"""The embedded servers start, keep their data through kills, and leave nothing behind."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import asyncpg
import nats
import psutil
import pytest
from cascade_cli.embedded import stack as stack_module
from cascade_cli.embedded.errors import DataDirectoryInUseError, EmbeddedServerError, PortTakenError
from cascade_cli.embedded.locks import is_free
from cascade_cli.embedded.nats import EmbeddedNats, NatsUser
from cascade_cli.embedded.process import free_ports
from cascade_cli.embedded.s3_requests import S3Access, request
from cascade_cli.embedded.stack import EmbeddedStack, NatsLogin, StackUrls

NO_NATS = "nats://127.0.0.1:1"
NO_DATABASE = "postgresql://127.0.0.1:1/none"
NO_S3 = S3Access(
    endpoint="http://127.0.0.1:1", access_key=None, secret_key=None, bucket="b", internal_bucket="i"
)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the condition was not met in time"
        await asyncio.sleep(0.02)


def pids(stack: EmbeddedStack) -> list[int]:
    """Every process of the stack, with those that Postgres forked."""
    own = [process.pid for server in stack.servers for process in server.processes]
    return [*own, *(child.pid for pid in own for child in psutil.Process(pid).children(recursive=True))]


def none_left(all_pids: list[int]) -> bool:
    def runs(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return not any(map(runs, all_pids))


async def write(urls: StackUrls) -> None:
    """Put one thing into each server; each has acknowledged it when this returns."""
    client = await nats.connect(urls.nats_url)
    await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
    await client.jetstream().publish("kept", b"kept")
    await client.close()
    connection = await asyncpg.connect(urls.database_url)
    await connection.execute("CREATE TABLE kept AS SELECT 'kept' AS word")
    await connection.close()
    for bucket in (urls.s3.bucket, urls.s3.internal_bucket):
        status, _ = await asyncio.to_thread(request, "PUT", urls.s3, f"/{bucket}/kept", b"kept" * 1000)
        assert status == 200


async def check(urls: StackUrls) -> None:
    """All that `write` put there is there."""
    client = await nats.connect(urls.nats_url, allow_reconnect=False, connect_timeout=60)
    message = await client.jetstream().get_msg("KEPT", 1)
    assert message.data == b"kept"
    await client.close()
    connection = await asyncpg.connect(urls.database_url)
    assert await connection.fetchval("SELECT word FROM kept") == "kept"
    await connection.close()
    for bucket in (urls.s3.bucket, urls.s3.internal_bucket):
        answer = await asyncio.to_thread(request, "GET", urls.s3, f"/{bucket}/kept")
        assert answer == (200, b"kept" * 1000)


async def test_a_stopped_stack_leaves_no_process_and_no_lock_and_starts_again_with_its_data(
    data_dir: Path,
) -> None:
    async with EmbeddedStack(data_dir) as stack:
        await write(stack.urls)
        first_credentials = (data_dir / "embedded" / "credentials.json").read_text()
        used = pids(stack)
    assert none_left(used)
    assert all(is_free(lock) for lock in (data_dir / "embedded").rglob("*lock") if lock.is_file())
    async with EmbeddedStack(data_dir) as stack:
        await check(stack.urls)
    assert (data_dir / "embedded" / "credentials.json").read_text() == first_credentials


async def test_every_server_listens_on_loopback_only(data_dir: Path) -> None:
    async with EmbeddedStack(data_dir) as stack:
        hosts = {
            connection.laddr.ip
            for server in stack.servers
            for process in server.processes
            for connection in psutil.Process(process.pid).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert hosts == {"127.0.0.1"}


async def test_servers_killed_under_the_stack_are_started_again_on_their_ports_with_their_data(
    data_dir: Path,
) -> None:
    async with EmbeddedStack(data_dir) as stack:
        await write(stack.urls)
        before = stack.urls
        killed = [process.pid for server in stack.servers for process in server.processes]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not any(psutil.pid_exists(pid) for pid in killed))

        async def all_back() -> bool:
            try:
                await check(stack.urls)
            except (OSError, nats.errors.Error, asyncpg.PostgresError, AssertionError):
                return False  # the last while a store listens that has not found its parts yet
            return True

        async with asyncio.timeout(60):
            while not await all_back():  # noqa: ASYNC110 - the servers set no event of ours
                await asyncio.sleep(0.05)
        assert stack.urls == before


@pytest.mark.parametrize("part", ["master", "volume", "filer", "s3"])
async def test_the_store_comes_back_when_any_one_part_is_killed(data_dir: Path, part: str) -> None:
    async with EmbeddedStack(data_dir, external_nats_url=NO_NATS, external_database_url=NO_DATABASE) as stack:
        access = stack.urls.s3
        assert request("PUT", access, "/cascade/kept", b"kept")[0] == 200
        assert stack.s3 is not None
        old = next(process.pid for process in stack.s3.processes if process.spec.name == part)
        os.kill(old, signal.SIGKILL)
        await until(lambda: not psutil.pid_exists(old))

        def is_back() -> bool:
            try:
                return request("GET", access, "/cascade/kept") == (200, b"kept")
            except OSError:
                return False

        await until(is_back)


async def test_a_server_that_keeps_dying_fails_the_stack_with_its_last_log_lines(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_module, "MAX_RESTARTS", 1)
    async with EmbeddedStack(data_dir, external_database_url=NO_DATABASE, external_s3=NO_S3) as stack:
        failed = asyncio.create_task(stack.failed())

        def kill() -> bool:
            for server in stack.servers:
                for process in server.processes:
                    process.kill()
            return failed.done()

        await until(kill)
        with pytest.raises(EmbeddedServerError, match=r"died more than 1 times(.|\n)*nats-server.log"):
            await failed


async def test_a_second_stack_on_the_same_data_is_refused_while_the_first_runs(data_dir: Path) -> None:
    async with EmbeddedStack(data_dir, external_database_url=NO_DATABASE, external_s3=NO_S3) as stack:
        with pytest.raises(
            DataDirectoryInUseError,
            match=rf"in use by another Cascade \(process {os.getpid()}\).*CASCADE_DATA_DIR",
        ):
            await EmbeddedStack(data_dir).start()
        assert all(process.alive for server in stack.servers for process in server.processes)


PARENT = """
import asyncio, sys
from pathlib import Path
from cascade_cli.embedded.stack import EmbeddedStack

async def main():
    async with EmbeddedStack(Path(sys.argv[1])) as stack:
        print(*(process.pid for server in stack.servers for process in server.processes), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_parent_leaves_no_children_and_the_next_start_finds_the_data(data_dir: Path) -> None:
    async with EmbeddedStack(data_dir) as stack:
        await write(stack.urls)
    with subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [sys.executable, "-c", PARENT, str(data_dir)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        line = await asyncio.to_thread(parent.stdout.readline)
        children = [int(word) for word in line.split()]
        assert len(children) == 6
        children += [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
        parent.kill()
    async with EmbeddedStack(data_dir) as stack:  # at once: it waits for what is still dying
        assert none_left(children)
        await check(stack.urls)


async def test_a_pid_file_that_names_somebody_else_does_not_stop_postgres(data_dir: Path) -> None:
    def only_postgres() -> EmbeddedStack:
        return EmbeddedStack(data_dir, external_nats_url=NO_NATS, external_s3=NO_S3)

    async with only_postgres():
        pid_file = data_dir / "embedded" / "postgres" / "cluster" / "postmaster.pid"
        stale = pid_file.read_text()
    pid_file.write_text(stale.replace(stale.split("\n", 1)[0], str(os.getppid())))
    async with only_postgres() as stack:
        connection = await asyncpg.connect(stack.urls.database_url)
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
        assert await connection.fetchval("SHOW shared_buffers") == "128MB"
        await connection.close()


async def test_postgres_wants_the_password(data_dir: Path) -> None:
    async with EmbeddedStack(data_dir, external_nats_url=NO_NATS, external_s3=NO_S3) as stack:
        assert stack.postgres is not None
        url = f"postgresql://cascade:wrong@127.0.0.1:{stack.postgres.port}/cascade"
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(url)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
async def test_as_root_postgres_runs_as_somebody_else_also_below_a_closed_directory(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    async with EmbeddedStack(closed, external_nats_url=NO_NATS, external_s3=NO_S3) as stack:
        assert stack.postgres is not None
        (process,) = stack.postgres.processes
        assert psutil.Process(process.pid).uids().effective != 0


async def test_external_servers_are_used_and_not_started(data_dir: Path) -> None:
    stack = EmbeddedStack(
        data_dir, external_nats_url=NO_NATS, external_database_url=NO_DATABASE, external_s3=NO_S3
    )
    async with stack:
        assert stack.servers == ()
        assert stack.urls == StackUrls(nats_url=NO_NATS, database_url=NO_DATABASE, s3=NO_S3)


async def test_a_taken_port_is_named_as_the_reason_and_nothing_is_left_running(data_dir: Path) -> None:
    (taken,) = free_ports(1)
    with socket.create_server(("127.0.0.1", taken)):
        for stack in (
            EmbeddedStack(data_dir, nats_port=taken),
            EmbeddedStack(data_dir, postgres_port=taken),
            EmbeddedStack(data_dir, s3_port=taken),
        ):
            with pytest.raises(PortTakenError, match="port in use"):
                await stack.start()
            assert not any(process.alive for server in stack.servers for process in server.processes)
    async with EmbeddedStack(data_dir, nats_port=taken) as stack:
        assert stack.urls.nats_url.endswith(f":{taken}")


async def test_a_failed_start_ends_with_the_servers_last_log_lines(data_dir: Path) -> None:
    store = data_dir / "embedded" / "nats" / "store"
    store.parent.mkdir(parents=True)
    store.write_text("a file where a directory should be")
    with pytest.raises(EmbeddedServerError, match=r"exit status 1(.|\n)*nats-server.log:\n(.|\n)*\[FTL\]"):
        await EmbeddedStack(data_dir, external_database_url=NO_DATABASE, external_s3=NO_S3).start()


async def test_credentials_are_for_the_owner_only_and_missing_ones_are_not_replaced(data_dir: Path) -> None:
    async with EmbeddedStack(data_dir, external_nats_url=NO_NATS, external_s3=NO_S3):
        path = data_dir / "embedded" / "credentials.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    stored = path.read_text()
    path.unlink()
    with pytest.raises(EmbeddedServerError, match=r"credentials\.json is missing.*Restore the file"):
        await EmbeddedStack(data_dir).start()
    path.write_text(stored[:-10])
    with pytest.raises(EmbeddedServerError, match="does not hold the credentials"):
        await EmbeddedStack(data_dir).start()
    path.write_text(json.dumps({**json.loads(stored), "postgres_password": "other"}))
    with pytest.raises(EmbeddedServerError, match="does not take the password"):
        await EmbeddedStack(data_dir, external_nats_url=NO_NATS, external_s3=NO_S3).start()


async def test_a_nats_login_may_do_what_it_was_given_and_no_more(data_dir: Path) -> None:
    logins = [NatsLogin("reader", publish=(), subscribe=("allowed.>",))]
    async with EmbeddedStack(
        data_dir, nats_logins=logins, external_database_url=NO_DATABASE, external_s3=NO_S3
    ) as stack:
        refusals: list[str] = []

        async def on_error(error: Exception) -> None:
            refusals.append(str(error).lower())

        admin = await nats.connect(stack.urls.nats_url)
        reader = await nats.connect(stack.nats_url_for("reader"), error_cb=on_error)
        subscription = await reader.subscribe("allowed.one")
        await reader.flush()
        await admin.publish("allowed.one", b"seen")
        assert (await subscription.next_msg(timeout=60)).data == b"seen"
        await reader.publish("allowed.one", b"refused")
        await reader.subscribe("secret")
        await until(lambda: len(refusals) == 2)
        assert "publish" in refusals[0]
        assert "subscription" in refusals[1]
        await reader.close()
        await admin.close()


async def test_nats_takes_eight_megabytes_and_no_login_no_entry(fresh_nats: EmbeddedNats) -> None:
    client = await nats.connect(fresh_nats.url)
    assert client.max_payload == 8 * 1024 * 1024
    await client.close()
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        await nats.connect(f"nats://127.0.0.1:{fresh_nats.port}", allow_reconnect=False, connect_timeout=60)


def test_a_nats_server_without_users_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one NatsUser"):
        EmbeddedNats(tmp_path, users=[])
    assert EmbeddedNats(tmp_path, users=[NatsUser("a b", "p@ss")]).url == "nats://a%20b:p%40ss@127.0.0.1:0"
