"""A real S3 store from the wheel, shared by this package's tests; every test gets a bucket prefix of its
own."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from cascade_cli.embedded.s3 import EmbeddedS3
from cascade_cli.embedded.s3_requests import S3Access

_numbers = itertools.count()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Access]:
    server = EmbeddedS3(
        tmp_path_factory.mktemp("s3"),
        access_key="owner",
        secret_key="owner-secret",
        internal_key="internal-key-of-this-test-run",
        bucket="cascade",
        internal_bucket="cascade-internal",
        anonymous=True,
    )
    asyncio.run(server.start())
    yield server.access
    asyncio.run(server.stop())


@pytest.fixture
def prefix() -> str:
    return f"traces-{next(_numbers)}"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A small trace of an older tracer, with a dotfile that nobody should see."""
    directory = tmp_path / "my-run"
    (directory / "traces").mkdir(parents=True)
    (directory / "traces" / "kernelslist.g").write_text("kernel-1.traceg\nkernel-2.traceg\n")
    (directory / "traces" / "kernel-1.traceg").write_bytes(b"-kernel name = a\n" * 100)
    (directory / "traces" / "kernel-2.traceg").write_bytes(b"-kernel name = b\n" * 200)
    (directory / "traces" / ".kernel-3.swp").write_text("x")
    (directory / "real_timing.json").write_text("[]")
    return directory
