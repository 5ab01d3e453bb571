"""compose.yaml as Docker would read it: variables of .env filled in, anchors merged."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cascade_cli.embedded.process import free_ports

ROOT = Path(__file__).resolve().parents[2]

# ${NAME}, ${NAME:-default}, ${NAME:?message}: the forms of the compose specification that the file uses.
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}")


class UnsetVariableError(Exception):
    """A variable that must be set is not: `docker compose up` would end with this message."""


@dataclass(frozen=True)
class Compose:
    """The file, interpolated."""

    services: Mapping[str, Mapping[str, Any]]
    volumes: Mapping[str, Any]

    def environment(self, service: str) -> dict[str, str]:
        """The environment that compose gives a service."""
        return {name: str(value) for name, value in self.services[service].get("environment", {}).items()}


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """`text` with every variable filled in. Raises UnsetVariableError."""

    def value(match: re.Match[str]) -> str:
        given = variables.get(match["name"], "")
        if given or match["kind"] is None:
            return given
        if match["kind"] == "-":
            return match["rest"]
        raise UnsetVariableError(f"{match['name']}: {match['rest']}")

    return _VARIABLE.sub(value, text)


def read_compose(variables: Mapping[str, str]) -> Compose:
    """compose.yaml with `variables` as its .env."""
    # Values are filled in before parsing, which is the same for values without YAML's special characters.
    document = yaml.safe_load(interpolated((ROOT / "compose.yaml").read_text("utf-8"), variables))
    return Compose(document["services"], document["volumes"])


def read_env(path: Path) -> dict[str, str]:
    """The settings of an .env file."""
    lines = [line for line in path.read_text("utf-8").split("\n") if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.fixture(scope="session")
def env_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An .env as `deploy/make-env` writes it."""
    path = tmp_path_factory.mktemp("env") / ".env"
    subprocess.run(
        ["/bin/sh", ROOT / "deploy" / "make-env", path],
        check=True,
        capture_output=True,
        env={"PATH": os.defpath},
    )
    return path


@pytest.fixture(scope="session")
def compose(env_file: Path) -> Compose:
    """compose.yaml with the .env that make-env writes."""
    return read_compose(read_env(env_file))


@pytest.fixture
def unused_port() -> int:
    """A port on which nobody listens."""
    return free_ports(1)[0]
