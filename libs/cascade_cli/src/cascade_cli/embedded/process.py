"""One server process: started behind a guard, watched until it is ready, stopped for certain.

It depends on no event loop, so that one process can serve tests or stacks that run on several. On Linux the server dies
with the *thread* that started it: start it from a thread that lives as long as the server should.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from cascade_cli import child_environment
from cascade_cli.embedded.errors import DataDirectoryInUseError, EmbeddedServerError, PortTakenError
from cascade_cli.embedded.locks import HeldLock, holder, is_free, try_lock

START_TIMEOUT_S = 30.0  # a cold start reads about 200 MB of binaries from a slow disk
LINGER_TIMEOUT_S = 10.0  # what a server of a killed parent gets to finish dying
KILL_TIMEOUT_S = 10.0  # from SIGKILL until the last descendant is gone
_POLL_S = 0.01
_LOG_TAIL_LINES = 15
_LOG_MAX_BYTES = 8 * 1024 * 1024
_PORT_RANGE = range(20_000, 32_000)
_PORTS_HELD = 128  # of those given out last; more than anybody starts before the first of them listens
_GUARD = Path(__file__).with_name("guard.py")
_held_ports: deque[int] = deque()  # file descriptors of bound sockets, the oldest first


@dataclass(frozen=True, slots=True)
class RunAs:
    """Another user for the server, where this process is root and the server refuses root."""

    uid: int
    gid: int
    keep_file_access: bool
    """Leave it the right to walk into directories that are closed to that user."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How to run one server."""

    name: str
    argv: Sequence[str]
    directory: Path
    """Where its log and its lock lie. Exists. Also the working directory."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to what any program needs."""
    run_as: RunAs | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    """What the server gets when its parent dies."""
    before_start: Callable[[], None] | None = None
    """Called with the lock held, so with no earlier server left: clears away what a killed one left behind."""
    watch: bool = False
    """Use the watcher of systems without a parent-death signal also where there is one."""

    @property
    def log_path(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def lock_path(self) -> Path:
        return self.directory / f"{self.name}.lock"


class ServerProcess:
    """A running server. `start` it, wait until it is `ready`, `stop` it."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """The process id. Raises EmbeddedServerError when it was never started."""
        if self._child is None:
            raise EmbeddedServerError(f"{self.spec.name} was not started")
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether the server process runs."""
        return self._child is not None and self._child.poll() is None

    async def start(self) -> None:
        """Start the server without waiting for it. Raises EmbeddedServerError."""
        lock = await self._take_lock()
        try:
            self._spawn(lock)
        finally:
            lock.close()  # from here on only the server and its children hold it

    async def ready(self, is_ready: Callable[[], bool], *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when `is_ready` says so. Raises EmbeddedServerError when it ends first or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if not self.alive:
                raise self._ended_early()
            if time.monotonic() >= deadline:
                await self.stop(grace_s=0)
                raise EmbeddedServerError(
                    f"{self.spec.name} was not ready within {timeout_s:g} s. Is the machine overloaded or its "
                    f"disk full? {self.log_tail()}"
                )
            await asyncio.sleep(_POLL_S)

    async def finished(self, *, timeout_s: float) -> None:
        """Wait for a command that ends by itself. Raises EmbeddedServerError when it fails or takes too long."""
        try:
            ended = await self._wait(lambda: not self.alive, timeout_s)
        finally:
            self.kill()  # also when the waiting is cancelled
        if not ended:
            raise EmbeddedServerError(f"{self.spec.name} took longer than {timeout_s:g} s. {self.log_tail()}")
        if self._child is not None and self._child.returncode != 0:
            raise EmbeddedServerError(
                f"{self.spec.name} failed with exit status {self._child.returncode}. {self.log_tail()}"
            )

    async def stop(self, *, grace_s: float) -> None:
        """End it: the stop signal, SIGKILL after `grace_s`, then wait until no descendant is left.

        Raises EmbeddedServerError when something survives even that.
        """
        if self._child is None:
            return
        if self.alive and grace_s > 0:
            self._signal(self.spec.stop_signal)
            await self._wait(lambda: not self.alive, grace_s)
        self.kill()
        gone = await self._wait(lambda: not self.alive and is_free(self.spec.lock_path), KILL_TIMEOUT_S)
        if not gone:
            raise EmbeddedServerError(
                f"{self.spec.name} (process {self._child.pid}) left processes behind that SIGKILL did not end within "
                f"{KILL_TIMEOUT_S:g} s; they hold {self.spec.lock_path}. End them by hand before the next start."
            )
        self._child = None

    def kill(self) -> None:
        """SIGKILL to the whole process group, without waiting."""
        if self._child is not None and (self.alive or not is_free(self.spec.lock_path)):
            self._signal(signal.SIGKILL)
            self._child.poll()

    def log_since_start(self) -> str:
        """What the server wrote since it was started."""
        with contextlib.suppress(FileNotFoundError), self.spec.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace")
        return ""

    def log_tail(self) -> str:
        """The last log lines as the end of an error message."""
        lines = self.log_since_start().strip().split("\n")[-_LOG_TAIL_LINES:]
        return f"The last lines of {self.spec.log_path}:\n" + "\n".join(f"  {line}" for line in lines)

    async def _take_lock(self) -> HeldLock:
        deadline = time.monotonic() + LINGER_TIMEOUT_S
        while True:
            lock = try_lock(self.spec.lock_path)
            if lock is not None:
                return lock
            if time.monotonic() >= deadline:
                raise DataDirectoryInUseError(
                    f"A {self.spec.name} (process {holder(self.spec.lock_path)}) still runs on "
                    f"{self.spec.directory} after {LINGER_TIMEOUT_S:g} s. "
                    "Stop it, or choose another data directory with CASCADE_DATA_DIR."
                )
            await asyncio.sleep(_POLL_S)

    def _spawn(self, lock: HeldLock) -> None:
        spec = self.spec
        if spec.before_start is not None:
            spec.before_start()
        _rotate(spec.log_path)
        run_as = spec.run_as
        options = {
            "parent_pid": os.getpid(),
            "death_signal": int(spec.death_signal),
            "uid": None if run_as is None else run_as.uid,
            "gid": None if run_as is None else run_as.gid,
            "keep_file_access": run_as is not None and run_as.keep_file_access,
            "watch": spec.watch,
        }
        guarded = [sys.executable, "-I", "-S", str(_GUARD), json.dumps(options), *spec.argv]
        with _open_log(spec.log_path) as log:
            self._log_start = log.tell()
            try:
                self._child = subprocess.Popen(
                    guarded,
                    cwd=spec.directory,
                    env=child_environment.bare() | dict(spec.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(lock.fd,),
                    start_new_session=True,  # Ctrl-C goes to Cascade, which then stops its servers in order
                )
            except OSError as error:
                raise EmbeddedServerError(f"{spec.name} could not be started: {error}") from error
        lock.note_holder(self._child.pid)

    def _signal(self, number: signal.Signals) -> None:
        if self._child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self._child.pid, number)  # the group outlives its leader; ESRCH once it is empty
            else:
                self._child.send_signal(number)

    def _ended_early(self) -> EmbeddedServerError:
        code = None if self._child is None else self._child.returncode
        tail = self.log_tail()
        if "address already in use" in tail.lower():
            return PortTakenError(
                f"{self.spec.name} found its port in use. Stop the other program or choose another port. {tail}"
            )
        return EmbeddedServerError(
            f"{self.spec.name} ended with exit status {code} before it was ready. {tail}"
        )

    @staticmethod
    async def _wait(condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return True


def free_ports(count: int) -> list[int]:
    """`count` different loopback ports that nobody listens on now, and that nobody else who asks here is given.

    They lie below the range from which systems number outgoing connections: a client that keeps calling a stopped
    server could otherwise be given that server's port as its own, and hold it against the restart.
    """
    with contextlib.ExitStack() as held:
        found: dict[int, socket.socket] = {}
        for port in random.sample(_PORT_RANGE, len(_PORT_RANGE)):
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found[port] = probe
            if len(found) == count:
                for one, bound in found.items():
                    _hold(one, bound)
                return list(found)
    raise EmbeddedServerError(f"no {count} free ports between {_PORT_RANGE.start} and {_PORT_RANGE.stop}")


def _hold(port: int, probe: socket.socket) -> None:
    """Leave `port` bound in this process, if its server may take it all the same.

    A server binds its port seconds after it was found free, and until then any other one could be given it. Linux lets
    a socket listen where another one is only bound if both say SO_REUSEADDR, as servers do and a look here does not.
    """
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with contextlib.suppress(OSError):
        socket.create_server(("127.0.0.1", port)).close()  # on other systems the held port would be nobody's
        _held_ports.append(probe.detach())
    while len(_held_ports) > _PORTS_HELD:
        os.close(_held_ports.popleft())


def accepts(port: int) -> bool:
    """Whether something listens on the loopback port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _open_log(path: Path) -> BinaryIO:
    path.touch(mode=0o600)
    log = path.open("ab")
    log.seek(0, os.SEEK_END)
    return log


def _rotate(path: Path) -> None:
    """Keep one earlier log of bounded size; called between two runs only."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > _LOG_MAX_BYTES:
            path.replace(path.with_suffix(".log.1"))
