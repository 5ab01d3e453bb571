"""A Postgres server on loopback TCP, with a password, also where Cascade runs as root.

Postgres refuses to run as root, so there it runs as the user `nobody`, which owns its directory. Where that
user could not reach the directory or the binaries (a clone below /root), the server keeps the one right to walk
closed directories.
"""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import urllib.parse
from collections.abc import Iterable
from pathlib import Path

from cascade_cli import child_environment
from cascade_cli.embedded.binaries import postgres_directory
from cascade_cli.embedded.errors import EmbeddedServerError, PortTakenError
from cascade_cli.embedded.process import RunAs, ServerProcess, ServerSpec, free_ports

USER = "cascade"
DATABASE = "cascade"
MAX_CONNECTIONS = 100
SHARED_BUFFERS = "128MB"
UNPRIVILEGED_USERS = ("nobody", "postgres", "daemon")
"""initdb demands a user that the system knows by name; the first of these that exists is taken."""
_INITDB_TIMEOUT_S = 120.0
_PSQL_TIMEOUT_S = 60.0
_PORT_ATTEMPTS = 5
_STOP_GRACE_S = 15.0  # a fast shutdown writes a checkpoint


class EmbeddedPostgres:
    """One Postgres cluster below `directory` (created), on 127.0.0.1:`port`; port 0 chooses one at the first start.

    `durable=False` gives up fsync: for tests, whose data may vanish with the machine.
    """

    name = "postgres"

    def __init__(self, directory: Path, *, password: str, port: int = 0, durable: bool = True) -> None:
        self.port = port
        self._password = password
        self._directory = directory
        self._cluster = directory / "cluster"
        self._durable = durable
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """The URL of Cascade's database. Known once it was started."""
        return self.url_for(DATABASE)

    def url_for(self, database: str) -> str:
        """The URL of one of the cluster's databases."""
        return f"postgresql://{USER}:{urllib.parse.quote(self._password, safe='')}@127.0.0.1:{self.port}/{database}"

    @property
    def processes(self) -> tuple[ServerProcess, ...]:
        """The processes that make up the server; none before the first start."""
        return () if self._process is None else (self._process,)

    async def start(self) -> None:
        """Create the cluster where there is none, start, wait until it takes clients. Raises EmbeddedServerError."""
        installation = postgres_directory()
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        run_as = _run_as(self._directory, installation)
        if run_as is not None:
            _give_to(run_as, self._directory)
        if not (self._cluster / "PG_VERSION").exists():
            await self._create_cluster(installation, run_as)
        chosen = self.port == 0
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            port = free_ports(1)[0] if chosen else self.port
            try:
                await self._start_on(port, installation, run_as)
            except PortTakenError:
                if not chosen or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                self.port = port
                break
        if await self.sql(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'") == "":  # noqa: S608
            await self.sql(f"CREATE DATABASE {DATABASE}")

    async def sql(self, statement: str, *, database: str = "postgres") -> str:
        """Run one administrative statement by psql; the unaligned rows, a line each. Raises EmbeddedServerError."""
        return await asyncio.to_thread(self._psql, statement, database)

    async def stop(self) -> None:
        """End it by a fast shutdown: open transactions are rolled back."""
        if self._process is not None:
            await self._process.stop(grace_s=_STOP_GRACE_S)

    def _psql(self, statement: str, database: str) -> str:
        psql = postgres_directory() / "bin" / "psql"
        server = ["--host=127.0.0.1", f"--port={self.port}", f"--username={USER}", f"--dbname={database}"]
        style = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]
        result = subprocess.run(
            [str(psql), *server, *style, f"--command={statement}"],
            # Not in the arguments, which every user of the machine can read.
            env=child_environment.bare() | {"PGPASSWORD": self._password, "PGCONNECT_TIMEOUT": "10"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_PSQL_TIMEOUT_S,
        )
        if "password authentication failed" in result.stderr:
            raise EmbeddedServerError(
                f"Postgres on {self._directory} does not take the password in credentials.json, which was made "
                "for other data. Restore the file that belongs to it, or remove the directory to start over."
            )
        if result.returncode != 0:
            raise EmbeddedServerError(f"psql could not run {statement!r}: {result.stderr.strip()}")
        return result.stdout.strip()

    async def _create_cluster(self, installation: Path, run_as: RunAs | None) -> None:
        """Run initdb beside the final place and rename, so that a kill half-way leaves no half cluster."""
        draft = self._directory / "cluster.new"
        password_file = self._directory / "password.new"

        def clear_draft() -> None:
            shutil.rmtree(draft, ignore_errors=True)
            shutil.rmtree(self._cluster, ignore_errors=True)  # it has no PG_VERSION: nothing was ever in it
            with contextlib.suppress(FileNotFoundError):
                password_file.unlink()
            password_file.touch(mode=0o600)
            password_file.write_text(self._password + "\n", "utf-8")
            if run_as is not None:
                os.chown(password_file, run_as.uid, run_as.gid)

        initdb = ServerProcess(
            ServerSpec(
                name="initdb",
                argv=[
                    str(installation / "bin" / "initdb"),
                    f"--pgdata={draft}",
                    f"--username={USER}",
                    f"--pwfile={password_file}",
                    "--auth-host=scram-sha-256",
                    "--auth-local=reject",
                    "--encoding=UTF8",
                    # Sorts by code point, on every machine alike: no index depends on the system's libc.
                    "--locale-provider=builtin",
                    "--builtin-locale=C.UTF-8",
                    "--locale=C",
                    "--no-instructions",
                    *([] if self._durable else ["--no-sync"]),
                ],
                directory=self._directory,
                run_as=run_as,
                before_start=clear_draft,
            )
        )
        await initdb.start()
        try:
            await initdb.finished(timeout_s=_INITDB_TIMEOUT_S)
        finally:
            password_file.unlink(missing_ok=True)
        draft.rename(self._cluster)

    async def _start_on(self, port: int, installation: Path, run_as: RunAs | None) -> None:
        process = ServerProcess(
            ServerSpec(
                name="postgres",
                argv=[
                    str(installation / "bin" / "postgres"),
                    "-D",
                    str(self._cluster),
                    *[f"--{name}={value}" for name, value in self._settings(port).items()],
                ],
                directory=self._directory,
                run_as=run_as,
                stop_signal=signal.SIGINT,  # fast shutdown; SIGTERM would wait for every client to leave
                death_signal=signal.SIGQUIT,  # immediate shutdown: the postmaster takes its children along
                before_start=self._clear_stale_pid_file,
            )
        )
        await process.start()
        self._process = process
        await process.ready(lambda: "ready to accept connections" in process.log_since_start())

    def _settings(self, port: int) -> dict[str, str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "max_connections": str(MAX_CONNECTIONS),
            "shared_buffers": SHARED_BUFFERS,
            "synchronous_commit": "on",
            "fsync": "on",
            "huge_pages": "off",
            "jit": "off",  # compiling costs more than our short queries take
            "io_method": "sync",  # three processes fewer; the tables fit in memory
            # Nothing is replicated from this server, so the log need not say how.
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "max_logical_replication_workers": "0",
            "max_wal_size": "512MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        if not self._durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        return settings

    def _clear_stale_pid_file(self) -> None:
        """Remove what a killed server left, since by the lock no server is left.

        Postgres itself would refuse to start where another program has been given the old process id.
        """
        (self._cluster / "postmaster.pid").unlink(missing_ok=True)


def _run_as(directory: Path, installation: Path) -> RunAs | None:
    """The user to run as, or None where this process isn't root. Raises EmbeddedServerError."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED_USERS:
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            open_to_all = _open_to_all(directory.parent, _needed_files(installation))
            return RunAs(uid=user.pw_uid, gid=user.pw_gid, keep_file_access=not open_to_all)
    raise EmbeddedServerError(
        f"Postgres refuses to run as root, and this system has none of the users {', '.join(UNPRIVILEGED_USERS)}. "
        "Run Cascade as another user, or set CASCADE_DATABASE_URL to a Postgres of your own."
    )


def _needed_files(installation: Path) -> tuple[Path, ...]:
    return (
        installation / "bin" / "postgres",
        installation / "lib",
        next(iter((installation / "share").rglob("postgres.bki")), installation),
    )


def _open_to_all(directory: Path, files: Iterable[Path]) -> bool:
    """Whether any user may enter `directory` and read `files`."""
    for path in files:
        if not path.stat().st_mode & stat.S_IROTH or not _open_to_all(path.parent, ()):
            return False
    return all(path.stat().st_mode & stat.S_IXOTH for path in (directory, *directory.parents))


def _give_to(run_as: RunAs, directory: Path) -> None:
    """Make `run_as` the owner of all below `directory`, unless it is already."""
    if directory.stat().st_uid == run_as.uid:
        return
    for path in (*directory.rglob("*"), directory):  # the directory itself last: it marks the rest as done
        os.chown(path, run_as.uid, run_as.gid, follow_symlinks=False)
