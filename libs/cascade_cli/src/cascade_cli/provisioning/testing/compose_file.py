"""compose.yaml as Docker would read it: variables of .env filled in, anchors merged."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cascade_cli import bundled

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
    document = _filled(yaml.safe_load((bundled.ROOT / "compose.yaml").read_text("utf-8")), variables)
    return Compose(document["services"], document["volumes"])


def _filled(node: Any, variables: Mapping[str, str]) -> Any:
    """Every text of a parsed document interpolated, as compose does it: an empty value stays a text."""
    match node:
        case str():
            return interpolated(node, variables)
        case dict():
            return {key: _filled(value, variables) for key, value in node.items()}
        case list():
            return [_filled(value, variables) for value in node]
        case _:
            return node


def read_env(path: Path) -> dict[str, str]:
    """The settings of an .env file."""
    lines = [line for line in path.read_text("utf-8").split("\n") if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def make_env(target: Path) -> None:
    """Write `target` as `deploy/make-env` does for a user."""
    subprocess.run(
        ["/bin/sh", bundled.ROOT / "deploy" / "make-env", target],
        check=True,
        capture_output=True,
        env={"PATH": os.defpath},
    )
