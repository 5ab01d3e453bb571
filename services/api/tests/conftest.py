"""Running gateways on real servers: one shared by a module's tests, or the parts for one of a test's own."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cascade_api.testing.client import Client
from cascade_api.testing.patience import patient, patient_for_parser
from cascade_api.testing.running import LoopThread, RunningApi, Work
from cascade_api.testing.servers import Servers
from cascade_cli.embedded.nats import EmbeddedNats, NatsUser
from cascade_cli.embedded.s3 import EmbeddedS3
from cascade_cli.embedded.testing import PostgresServer, run_now
from cascade_parser.main import ParserSettings
from cascade_parser.main import serve as serve_parser

CONFIGS = Path(__file__).parent / "cases" / "configs-comments-and-spellings"


def _servers(nats: EmbeddedNats, postgres: PostgresServer, s3: EmbeddedS3) -> Servers:
    access = s3.access
    return Servers(
        nats_url=nats.url,
        database_url=postgres.create_database(),
        s3_endpoint=access.endpoint,
        s3_access_key=access.access_key,
        s3_secret_key=access.secret_key,
        s3_internal_bucket=access.internal_bucket,
        accelsim_dir=CONFIGS,
    )


@pytest.fixture(scope="module", autouse=True)
def _patient() -> Iterator[None]:
    """What a test has stored is what it reads, however slow the machine is."""
    with patient():
        yield


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer, s3_server: EmbeddedS3
) -> Iterator[Servers]:
    """A NATS and a database for one module's tests, and the session's S3."""
    nats = EmbeddedNats(tmp_path_factory.mktemp("nats"), users=[NatsUser("cascade", "test-password")])
    run_now(nats.start())
    yield _servers(nats, postgres_server, s3_server)
    run_now(nats.stop())


@pytest.fixture
def own_servers(fresh_nats: EmbeddedNats, postgres_server: PostgresServer, s3_server: EmbeddedS3) -> Servers:
    """Servers for one test that stops them, or that counts what is in them."""
    return _servers(fresh_nats, postgres_server, s3_server)


@pytest.fixture(scope="module")
def api(servers: Servers) -> Iterator[RunningApi]:
    """A module's gateway."""
    with RunningApi(servers.settings()) as running:
        yield running


@pytest.fixture(scope="module")
def parser(api: RunningApi) -> Iterator[None]:
    """The real parser on the module's log."""
    with patient_for_parser(), LoopThread(_parser(api.settings.nats_url), name="parser"):
        yield


def _parser(nats_url: str) -> Work:
    async def run(stop: asyncio.Event) -> None:
        await serve_parser(ParserSettings(nats_url=nats_url), stop)

    return run


@pytest.fixture
def parser_on() -> Callable[[Servers], LoopThread]:
    """Starts the real parser on a test's own servers, as a context manager."""
    return lambda servers: LoopThread(_parser(servers.nats_url), name="parser")


@pytest.fixture
def client(api: RunningApi) -> Iterator[Client]:
    """A client with the token."""
    with Client(api) as client:
        yield client


@pytest.fixture
def stranger(api: RunningApi) -> Iterator[Client]:
    """A client without a token."""
    with Client(api, token=False) as client:
        yield client
