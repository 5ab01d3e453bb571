"""NATS, Postgres and S3 for one data directory: started together, watched, restarted when they die, stopped together.

The data and the credentials stay below `<data_dir>/embedded/`. One process at a time may work there.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from cascade_cli.embedded.credentials import Credentials, load_or_create
from cascade_cli.embedded.errors import DataDirectoryInUseError, EmbeddedServerError
from cascade_cli.embedded.locks import HeldLock, holder, try_lock
from cascade_cli.embedded.nats import EmbeddedNats, NatsUser
from cascade_cli.embedded.postgres import EmbeddedPostgres
from cascade_cli.embedded.process import ServerProcess
from cascade_cli.embedded.s3 import EmbeddedS3
from cascade_cli.embedded.s3_requests import S3Access

ADMIN_USER = "cascade"
MAX_RESTARTS = 5
RESTART_WINDOW_S = 60.0
"""A server that dies more than MAX_RESTARTS times within this time has a reason that a restart does not cure."""
_WATCH_INTERVAL_S = 0.1

_logger = logging.getLogger(__name__)


class EmbeddedServer(Protocol):
    """What the stack asks of each of its servers."""

    name: str

    @property
    def processes(self) -> tuple[ServerProcess, ...]: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StackUrls:
    """Where the three servers are, embedded or external, with the credentials that open them."""

    nats_url: str
    database_url: str
    s3: S3Access


@dataclass(frozen=True, slots=True)
class NatsLogin:
    """A NATS user whose password the stack makes and keeps. See `NatsUser` for the lists."""

    name: str
    publish: tuple[str, ...] | None = None
    subscribe: tuple[str, ...] | None = None


class EmbeddedStack:
    """The three servers of one data directory, as an async context manager. See `urls`.

    A server whose external URL is given is not started. Ports: 0 chooses a free one. `anonymous` lets S3 requests
    without credentials use `bucket`. `nats_logins` are users beside the administrator.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        nats_port: int = 0,
        postgres_port: int = 0,
        s3_port: int = 0,
        bucket: str = "cascade",
        internal_bucket: str = "cascade-internal",
        anonymous: bool = False,
        nats_logins: Sequence[NatsLogin] = (),
        external_nats_url: str | None = None,
        external_database_url: str | None = None,
        external_s3: S3Access | None = None,
        durable: bool = True,
    ) -> None:
        self.directory = data_dir.absolute() / "embedded"
        self.nats: EmbeddedNats | None = None
        self.postgres: EmbeddedPostgres | None = None
        self.s3: EmbeddedS3 | None = None
        self._ports = (nats_port, postgres_port, s3_port)
        self._bucket = bucket
        self._internal_bucket = internal_bucket
        self._anonymous = anonymous
        self._nats_logins = tuple(nats_logins)
        self._external_nats_url = external_nats_url
        self._external_database_url = external_database_url
        self._external_s3 = external_s3
        self._durable = durable
        self._lock: HeldLock | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def urls(self) -> StackUrls:
        """Where the servers are. Raises EmbeddedServerError before the stack was started."""
        nats_url = self._external_nats_url or (self.nats.url if self.nats is not None else None)
        database_url = self._external_database_url or (
            self.postgres.url if self.postgres is not None else None
        )
        s3 = self._external_s3 or (self.s3.access if self.s3 is not None else None)
        if nats_url is None or database_url is None or s3 is None:
            raise EmbeddedServerError("the embedded servers were not started")
        return StackUrls(nats_url=nats_url, database_url=database_url, s3=s3)

    @property
    def servers(self) -> tuple[EmbeddedServer, ...]:
        """The servers that this stack runs itself."""
        return tuple(server for server in (self.nats, self.postgres, self.s3) if server is not None)

    def nats_url_for(self, user_name: str) -> str:
        """The NATS URL with that login's credentials. Raises KeyError. An external URL is the same for everybody."""
        if self._external_nats_url is not None:
            return self._external_nats_url
        if self.nats is None:
            raise EmbeddedServerError("the embedded servers were not started")
        return self.nats.url_for(user_name)

    async def start(self) -> None:
        """Start all three at once. Raises EmbeddedServerError, with none left running."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
        except OSError as error:
            raise EmbeddedServerError(
                f"The data directory {self.directory.parent} cannot be used ({error.strerror}: {error.filename}). "
                "Choose another one with CASCADE_DATA_DIR."
            ) from error
        try:
            self._build(self._credentials())
            async with asyncio.TaskGroup() as group:
                for server in self.servers:
                    group.create_task(server.start())
        except BaseExceptionGroup as errors:
            await self.stop()
            known, unknown = errors.split(EmbeddedServerError)
            if known is not None and unknown is None:
                raise _first(known) from errors
            raise
        except BaseException:
            await self.stop()
            raise
        self._watcher = asyncio.create_task(self._watch(), name="embedded servers")

    async def stop(self) -> None:
        """Stop what runs and let go of the data directory. Harmless when nothing was started."""
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError, EmbeddedServerError):
                await self._watcher
            self._watcher = None
        results = await asyncio.gather(*(server.stop() for server in self.servers), return_exceptions=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def failed(self) -> None:
        """Wait until a server has died too often, then raise its EmbeddedServerError. Never returns before."""
        if self._watcher is None:
            raise EmbeddedServerError("the embedded servers were not started")
        await asyncio.shield(self._watcher)

    def _take_lock(self) -> HeldLock:
        path = self.directory / "lock"
        lock = try_lock(path)
        if lock is None:
            raise DataDirectoryInUseError(
                f"The data directory {self.directory.parent} is in use by another Cascade (process {holder(path)}). "
                "Stop that one, or choose another directory with CASCADE_DATA_DIR."
            )
        lock.note_holder(os.getpid())
        return lock

    def _credentials(self) -> Credentials:
        path = self.directory / "credentials.json"
        if not path.exists() and (self.directory / "postgres" / "cluster").exists():
            raise EmbeddedServerError(
                f"{path} is missing, but there is data that was locked with it. Restore the file, or remove "
                f"{self.directory} to start over without the data."
            )
        return load_or_create(path, nats_user_names=tuple(login.name for login in self._nats_logins))

    def _build(self, credentials: Credentials) -> None:
        nats_port, postgres_port, s3_port = self._ports
        if self._external_nats_url is None:
            passwords = credentials.nats_user_passwords
            self.nats = EmbeddedNats(
                self.directory / "nats",
                users=[
                    NatsUser(ADMIN_USER, credentials.nats_password),
                    *(
                        NatsUser(login.name, passwords[login.name], login.publish, login.subscribe)
                        for login in self._nats_logins
                    ),
                ],
                port=nats_port,
            )
        if self._external_database_url is None:
            self.postgres = EmbeddedPostgres(
                self.directory / "postgres",
                password=credentials.postgres_password,
                port=postgres_port,
                durable=self._durable,
            )
        if self._external_s3 is None:
            self.s3 = EmbeddedS3(
                self.directory / "s3",
                access_key=credentials.s3_access_key,
                secret_key=credentials.s3_secret_key,
                internal_key=credentials.s3_internal_key,
                bucket=self._bucket,
                internal_bucket=self._internal_bucket,
                anonymous=self._anonymous,
                port=s3_port,
            )

    async def _watch(self) -> None:
        if not self.servers:
            await asyncio.Event().wait()  # all are external: nothing of ours can fail
        tasks = [asyncio.create_task(_keep_alive(server)) for server in self.servers]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_alive(server: EmbeddedServer) -> None:
    """Restart `server` on its port whenever one of its processes has died.

    Raises EmbeddedServerError past the limit.
    """
    restarts: deque[float] = deque(maxlen=MAX_RESTARTS)
    reason: str | None = None
    while True:
        await asyncio.sleep(_WATCH_INTERVAL_S)
        dead = [process for process in server.processes if not process.alive]
        if not dead:
            continue
        reason = reason or dead[0].log_tail()
        now = time.monotonic()
        if len(restarts) == MAX_RESTARTS and now - restarts[0] < RESTART_WINDOW_S:
            raise EmbeddedServerError(
                f"{server.name} died more than {MAX_RESTARTS} times within {RESTART_WINDOW_S:g} s. {reason}"
            )
        restarts.append(now)
        _logger.warning("%s died and is started again. %s", server.name, reason)
        for process in server.processes:
            process.kill()  # the parts that still run have lost the one they depend on
        await server.stop()
        try:
            await server.start()
        except EmbeddedServerError as error:
            reason = str(error)  # one more death
        else:
            reason = None


def _first(errors: BaseExceptionGroup[EmbeddedServerError]) -> EmbeddedServerError:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
