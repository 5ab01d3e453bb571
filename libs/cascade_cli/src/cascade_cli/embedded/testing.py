"""Pytest fixtures: real NATS, Postgres and S3 processes, started at first use and shared by all tests of a session.

The root `conftest.py` imports them. Each test gets what is its own: a database cloned from a template, a bucket, and
with `fresh_nats` a server of its own (about 40 ms).
"""

import asyncio
import itertools
import re
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cascade_cli.embedded.nats import EmbeddedNats, NatsUser
from cascade_cli.embedded.postgres import EmbeddedPostgres
from cascade_cli.embedded.proxy import TcpProxy
from cascade_cli.embedded.s3 import EmbeddedS3
from cascade_cli.embedded.s3_requests import S3Access

__all__ = [
    "PostgresServer",
    "TcpProxy",
    "bucket",
    "fresh_nats",
    "nats_server",
    "postgres_server",
    "postgres_url",
    "s3_server",
    "servers_dir",
]

T = TypeVar("T")
_numbers = itertools.count(1)


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on a loop of its own, without touching the loops that tests and their plugins keep."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """The session's Postgres."""

    server: EmbeddedPostgres

    def sql(self, statement: str, *, database: str = "postgres") -> str:
        """Run an administrative statement; the rows as text."""
        return run_now(self.server.sql(statement, database=database))

    def create_database(self, *, template: str = "template1") -> str:
        """The URL of a new database that is a copy of `template`."""
        name = f"test_{next(_numbers)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY WAL_LOG")
        return self.server.url_for(name)

    def create_template(self, name: str, fill: Callable[[str], None]) -> str:
        """A database `name` that `fill` (called once a session, with its URL) has put tables into; returns `name`.

        Clone it with `create_database(template=name)`. Leave no connection to it open.
        """
        if self.sql(f"SELECT 1 FROM pg_database WHERE datname = '{name}'") == "":  # noqa: S608
            self.sql(f"CREATE DATABASE {name}")
            fill(self.server.url_for(name))
        return name


@pytest.fixture(scope="session")
def servers_dir() -> Iterator[Path]:
    """Where the session's servers keep their files. Not pytest's own: that is kept for days."""
    directory = Path(tempfile.mkdtemp(prefix="cascade-test-"))
    directory.chmod(0o755)  # where the tests run as root, Postgres runs as somebody else
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def nats_server(servers_dir: Path) -> Iterator[EmbeddedNats]:
    """The session's NATS; `.url` holds the credentials. Use stream names and subjects of your own, or `fresh_nats`."""
    server = EmbeddedNats(servers_dir / "nats", users=[NatsUser("cascade", "test-password")])
    run_now(server.start())
    yield server
    run_now(server.stop())


@pytest.fixture
def fresh_nats(tmp_path: Path) -> Iterator[EmbeddedNats]:
    """A NATS server of this test's own, with an empty store. `stop()` and `start()` keep port and data."""
    server = EmbeddedNats(tmp_path / "nats", users=[NatsUser("cascade", "test-password")])
    run_now(server.start())
    yield server
    run_now(server.stop())


@pytest.fixture(scope="session")
def postgres_server(servers_dir: Path) -> Iterator[PostgresServer]:
    """The session's Postgres, without fsync. Most tests want `postgres_url`."""
    server = EmbeddedPostgres(servers_dir / "postgres", password="test-password", durable=False)  # noqa: S106
    run_now(server.start())
    yield PostgresServer(server)
    run_now(server.stop())


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database of this test's own, dropped afterwards."""
    url = postgres_server.create_database()
    yield url
    name = url.rsplit("/", 1)[1]
    postgres_server.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def s3_server(servers_dir: Path) -> Iterator[EmbeddedS3]:
    """The session's S3 store; requests without credentials may use its bucket `cascade`. Most tests want `bucket`."""
    server = EmbeddedS3(
        servers_dir / "s3",
        access_key="TESTACCESSKEY",
        secret_key="test-secret-key",  # noqa: S106
        internal_key="test-internal-key",
        bucket="cascade",
        internal_bucket="cascade-internal",
        anonymous=True,
    )
    run_now(server.start())
    yield server
    run_now(server.stop())


@pytest.fixture
def bucket(s3_server: EmbeddedS3, request: pytest.FixtureRequest) -> Iterator[S3Access]:
    """An empty bucket of this test's own and the keys to it; deleted afterwards with all that is in it."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    name = f"t{next(_numbers)}-{words}".rstrip("-")
    run_now(s3_server.create_bucket(name))
    yield replace(s3_server.access, bucket=name)
    run_now(s3_server.delete_bucket(name))
