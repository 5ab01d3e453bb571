"""The stack of compose.yaml without containers: the same commands and environments, on servers from wheels.

Only what Docker itself would do is replaced: names become loopback addresses, volumes become directories.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from cascade_cli import bundled
from cascade_cli.embedded.process import ServerProcess, ServerSpec, free_ports
from cascade_cli.embedded.s3 import EmbeddedS3

BIN = Path(sys.executable).parent
POLICIES = bundled.ROOT / "deploy" / "minio" / "policies"

# What an S3 policy's action is called by the store that stands in for MinIO.
_ACTIONS = {
    "s3:GetObject": "Read",
    "s3:PutObject": "Write",
    "s3:DeleteObject": "Write",
    "s3:ListBucket": "List",
}


class ScopedS3(EmbeddedS3):
    """The embedded store with the users of deploy/minio instead of its own: root, and one per role."""

    def __init__(self, directory: Path, secrets: Mapping[str, str], *, root_secret: str) -> None:
        super().__init__(
            directory,
            access_key="root",
            secret_key=root_secret,
            internal_key="internal-key-of-the-test",
            bucket="cascade",
            internal_bucket="cascade-internal",
        )
        self._secrets = secrets

    async def create_bucket(self, bucket: str) -> None:
        """Leave the buckets to `cascade provision`."""

    def _identities(self) -> str:
        owner = json.loads(super()._identities())["identities"]
        roles = [
            {
                "name": role,
                "credentials": [{"accessKey": role, "secretKey": secret}],
                "actions": _granted(POLICIES / f"{role}.json"),
            }
            for role, secret in self._secrets.items()
        ]
        return json.dumps({"identities": owner + roles})


def _granted(policy: Path) -> list[str]:
    granted: set[str] = set()
    for statement in json.loads(policy.read_bytes())["Statement"]:
        for resource in statement["Resource"]:
            bucket = resource.removeprefix("arn:aws:s3:::").split("/")[0]
            granted |= {
                f"{_ACTIONS[action]}:{bucket}" for action in statement["Action"] if action in _ACTIONS
            }
    return sorted(granted)


def nats_server(
    directory: Path,
    name: str,
    environment: Mapping[str, str],
    *,
    port: int,
    replaced: Mapping[str, str] | None = None,
) -> ServerProcess:
    """A NATS server on `name` of deploy/nats, with its store in `directory` instead of the container's volume.

    `replaced`: other texts of the files that only hold inside a cluster's network.
    """
    shutil.copytree(bundled.ROOT / "deploy" / "nats", directory / "config")
    for path in (directory / "config").glob("*.conf"):
        text = path.read_text("utf-8").replace('"/data"', json.dumps(str(directory / "store")))
        for old, new in (replaced or {}).items():
            text = text.replace(old, new)
        path.write_text(text, "utf-8")
    monitor = free_ports(1)[0]
    return ServerProcess(
        ServerSpec(
            name="nats-server",
            argv=[
                str(BIN / "nats-server"),
                *("--config", str(directory / "config" / name)),
                *("--addr", "127.0.0.1", "--port", str(port), "--http_port", str(monitor)),
            ],
            directory=directory,
            environment=environment,
        )
    )


async def started(server: ServerProcess, *, says: str = "Server is ready") -> None:
    """Start it and wait until its log says so."""
    await server.start()
    await server.ready(lambda: says in server.log_since_start())


@dataclass
class Wiring:
    """Where the names of compose.yaml are in this test."""

    directory: Path
    nats_url: str
    s3_endpoint: str
    database_url: str
    api_port: int
    outputs: dict[str, Path] = field(default_factory=dict)

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    def environment(self, service: str, given: Mapping[str, str]) -> dict[str, str]:
        """The environment of a container of `service`: what compose.yaml gives and what the image sets."""
        data = self.directory / service
        data.mkdir(exist_ok=True)
        image = {
            "PATH": f"{BIN}{os.pathsep}{os.defpath}",
            "HOME": str(data),
            "PYTHONUNBUFFERED": "1",
            "CASCADE_DATA_DIR": str(data),
        }
        here = {
            "nats://nats:4222": self.nats_url,
            "http://minio:9000": self.s3_endpoint,
            "http://localhost:9000": self.s3_endpoint,
            "http://api:8000": self.api_url,
            "http://api:8000/api/health": f"{self.api_url}/api/health",
            "/app/configs": str(bundled.CONFIGS),
            "/data/tmp": str(data / "tmp"),
        }
        environment = image | {name: here.get(value, value) for name, value in given.items()}
        if service == "api":
            # Published by Docker on a port of the host; the database by its own name.
            environment |= {"CASCADE_PORT": str(self.api_port), "CASCADE_DATABASE_URL": self.database_url}
        return environment

    def run(
        self, service: str, command: Sequence[str], given: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        """Run a one-shot service to its end."""
        return subprocess.run(
            [BIN / "cascade", *command],
            env=self.environment(service, given),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    @contextmanager
    def running(
        self, name: str, command: Sequence[str], given: Mapping[str, str]
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """A service as a process of its own for the length of the block, then SIGTERM, as `docker stop` does."""
        service = name.split("-", maxsplit=1)[0]
        self.outputs[name] = self.directory / f"{name}.log"
        with self.outputs[name].open("wb") as out:
            process = _spawn([str(BIN / "cascade"), *command], self.environment(service, given), out)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def said(self) -> str:
        """The end of what every service wrote, for a failed test."""
        return "\n".join(f"== {name}\n{path.read_text()[-3000:]}" for name, path in self.outputs.items())


def _spawn(command: list[str], environment: Mapping[str, str], out: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
    )


async def until(probe: Callable[[], Awaitable[bool]], timeout_s: float, what: str) -> None:
    """Wait until `await probe()` is true."""
    try:
        async with asyncio.timeout(timeout_s):
            while not await probe():  # noqa: ASYNC110 - polls another process
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{what} did not happen within {timeout_s} s") from None
