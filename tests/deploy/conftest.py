"""Fixtures of the deployment's tests."""

from pathlib import Path

import pytest
from cascade_cli.embedded.process import free_ports
from cascade_cli.provisioning.testing.compose_file import Compose, make_env, read_compose, read_env


@pytest.fixture(scope="session")
def env_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An .env as `deploy/make-env` writes it."""
    path = tmp_path_factory.mktemp("env") / ".env"
    make_env(path)
    return path


@pytest.fixture(scope="session")
def compose(env_file: Path) -> Compose:
    """compose.yaml with the .env that make-env writes."""
    return read_compose(read_env(env_file))


@pytest.fixture
def unused_port() -> int:
    """A port on which nobody listens."""
    return free_ports(1)[0]
