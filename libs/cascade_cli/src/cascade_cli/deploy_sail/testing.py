"""A small Sail account in memory, behind the names of the SDK. Keeps state, can be told to fail.

It speaks the SDK's own types (`sail.Listener`, `sail.AutoSleep`, the errors), and a test holds its signatures to the
SDK's. What it does is what the SDK's docstrings (package `sail`, 0.17) say:
- `Sailbox.create` builds the image first and "returns once the new Sailbox is running"; a Sailbox is known by its id,
  two may have the same name; `list` filters by the whole name and leaves statuses out on request.
- `resume` returns "this paused or sleeping Sailbox ... to running"; pausing keeps memory, so what ran goes on.
- `exec(background=True)` detaches and discards output; its `wait` "only confirms the launcher started it".
- `listener` raises a LookupError for a port that is not exposed; `expose` works at run time.
- `fs.read` raises `sail.FileNotFoundError`; `fs.write` makes parents and takes a mode; "the write itself runs as root".

A sandbox's disk is a directory, and its commands run there for real, with `/data` and `/app` below it.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import sail

STUB = """\
#!/bin/sh
# Stands for the app: notes how it was started, then runs until it is ended.
env >"$CASCADE_DATA_DIR/environment"
echo "$@" >>"$CASCADE_DATA_DIR/started"
exec sleep 600
"""
STARTED_WITHIN_S = 60.0


@dataclass
class FakeSail:
    """One account. Pass it where the SDK is expected."""

    directory: Path
    api_key: str | None = "sk_test"
    calls: list[str] = field(default_factory=list)
    boxes: "list[FakeSailbox]" = field(default_factory=list)
    apps: dict[str, sail.App] = field(default_factory=dict)
    fail: dict[str, sail.SailError] = field(default_factory=dict)
    """The error that the named call raises next."""
    break_after: str | None = None
    """The call after which this process is cut off."""

    PermissionDeniedError = sail.PermissionDeniedError
    SailError = sail.SailError
    NotFoundError = sail.NotFoundError
    FileNotFoundError = sail.FileNotFoundError
    AutoSleep = sail.AutoSleep

    def __post_init__(self) -> None:
        self.App = _Apps(self)
        self.Sailbox = _Sailboxes(self)
        self.Image = _Images(self)
        self.Config = _Config(self)

    def note(self, call: str) -> None:
        """Remember a call; raise what it was told to."""
        self.calls.append(call)
        if call in self.fail:
            raise self.fail.pop(call)
        if self.break_after == call:
            self.break_after = None
            raise CutOffError(call)

    def transport(self) -> httpx.MockTransport:
        """The public ingress: answers for a running app, 502 while nobody listens."""

        def handle(request: httpx.Request) -> httpx.Response:
            for box in self.boxes:
                if request.url.host == box.host(8000) and box.status == "running" and box.serves():
                    return httpx.Response(200, json={"ok": True, "auth": True})
            return httpx.Response(502, text="<html>no listener</html>")

        return httpx.MockTransport(handle)

    def close(self) -> None:
        """End what still runs in the sandboxes."""
        for box in self.boxes:
            box.end()


class CutOffError(Exception):
    """Stands for a deploy that was killed at that point."""


class FakeClock:
    """Time that passes only in sleeps, with a moment of real time for real processes."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self.now

    def sleep(self, seconds: float, /) -> None:
        """Let it be later."""
        self.now += seconds
        time.sleep(0.02)


@dataclass
class _Config:
    _account: FakeSail

    def from_env_optional_api_key(self) -> "_Config":
        return self

    @property
    def api_key(self) -> str | None:
        return self._account.api_key


@dataclass
class _Apps:
    _account: FakeSail

    def find(self, name: str, *, mint_if_missing: bool = False) -> sail.App:
        self._account.note("App.find")
        if name not in self._account.apps:
            if not mint_if_missing:
                raise sail.NotFoundError(f"app {name!r} not found")
            self._account.apps[name] = sail.App(f"app-{len(self._account.apps)}", name, datetime.now(UTC))
        return self._account.apps[name]


@dataclass(frozen=True)
class FakeImage:
    """What was asked to be booted."""

    ref: str | None = None
    dockerfile: Path | None = None
    context_dir: Path | None = None
    build_args: dict[str, str] = field(default_factory=dict)


@dataclass
class _Images:
    _account: FakeSail

    def from_registry(self, ref: str) -> FakeImage:
        sail.Image.from_registry(ref)  # raises for a reference that Sail does not take
        return FakeImage(ref=ref)

    def from_dockerfile(
        self, dockerfile: Path, *, context_dir: Path | None = None, build_args: dict[str, str] | None = None
    ) -> FakeImage:
        return FakeImage(dockerfile=Path(dockerfile), context_dir=context_dir, build_args=build_args or {})


@dataclass
class _Sailboxes:
    _account: FakeSail

    size_for = staticmethod(sail.Sailbox.size_for)

    def create(
        self,
        *,
        app: sail.App,
        image: FakeImage,
        name: str,
        image_build_timeout: int = 3600,  # noqa: ARG002 - nothing takes time here
        size: str | None = None,
        memory_limit_gib: int | None = None,  # noqa: ARG002 - nothing takes memory here
        disk_limit_gib: int | None = None,
        ingress_ports: Sequence[int] = (),
        auto_sleep: sail.AutoSleep | None = None,
    ) -> "FakeSailbox":
        account = self._account
        account.note("Sailbox.create")
        number = len(account.boxes)
        box = FakeSailbox(
            account,
            sailbox_id=f"sb-{number}",
            name=name,
            app_id=app.id,
            created_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number),
            image=image,
            size=size,
            disk_limit_gib=disk_limit_gib,
            auto_sleep=auto_sleep or sail.AutoSleep.default(),
            exposed=set(ingress_ports),
        )
        account.boxes.append(box)
        account.note("Sailbox.create.done")
        return box

    def list(
        self, *, app_id: sail.App, name: str | None = None, exclude_statuses: Sequence[str] = ()
    ) -> "list[FakeSailbox]":
        self._account.note("Sailbox.list")
        return [
            box
            for box in self._account.boxes
            if box.app_id == app_id.id and box.name == name and box.status not in exclude_statuses
        ]

    def get(self, sailbox_id: str) -> "FakeSailbox":
        self._account.note("Sailbox.get")
        for box in self._account.boxes:
            if box.sailbox_id == sailbox_id:
                box.on_get()
                return box
        raise sail.NotFoundError(f"sailbox {sailbox_id!r} not found")


@dataclass(eq=False)
class FakeSailbox:
    """One sandbox."""

    account: FakeSail
    sailbox_id: str
    name: str
    app_id: str
    created_at: datetime
    image: FakeImage
    size: str | None
    disk_limit_gib: int | None
    auto_sleep: sail.AutoSleep
    exposed: set[int]
    status: str = "running"
    app_starts: bool = True
    """False: the app ends as soon as it is started."""
    on_get: Callable[[], None] = lambda: None
    _processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def __post_init__(self) -> None:
        command = self.root / "app/.venv/bin/cascade"
        command.parent.mkdir(parents=True)
        (self.root / "data").mkdir()
        command.write_text(STUB)
        command.chmod(0o755)

    @property
    def root(self) -> Path:
        """The sandbox's disk."""
        return self.account.directory / self.sailbox_id

    @property
    def fs(self) -> "_Files":
        return _Files(self)

    def host(self, port: int) -> str:
        """The public name of a port."""
        return f"{self.sailbox_id}-{port}.sail.test"

    def serves(self) -> bool:
        """Whether the app runs."""
        return self._starts() > 0 and any(process.poll() is None for process in self._processes)

    def listener(self, guest_port: int) -> sail.Listener:
        self.account.note("listener")
        if guest_port not in self.exposed:
            raise sail.NotFoundError(f"port {guest_port} is not exposed")
        return sail.Listener(
            guest_port, "http", "active", sail.HttpEndpoint(f"https://{self.host(guest_port)}")
        )

    def expose(self, guest_port: int, protocol: str = "http") -> sail.Listener:
        assert protocol == "http"
        self.account.note("expose")
        self.exposed.add(guest_port)
        return self.listener(guest_port)

    def resume(self) -> "FakeSailbox":
        self.account.note("resume")
        self._signal(signal.SIGCONT)
        self.status = "running"
        return self

    def pause(self) -> None:
        self.account.note("pause")
        self._signal(signal.SIGSTOP)
        self.status = "paused"

    def terminate(self) -> None:
        self.account.note("terminate")
        self.end()
        self.status = "terminated"

    def run(
        self, command: Sequence[str], *, timeout: float | None = None, check: bool = False
    ) -> sail.ExecResult:
        self.account.note("run")
        self._wake()
        done = subprocess.run(
            [self._inside(part) for part in command],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        result = sail.ExecResult(stdout=done.stdout, stderr=done.stderr, exit_code=done.returncode)
        if check and result.exit_code != 0:
            raise sail.CommandFailedError(f"exit code {result.exit_code}: {done.stderr}", result=result)
        return result

    def exec(self, command: str, *, background: bool = False) -> "_Launched":
        assert background, "this fake knows detached commands only"
        self.account.note("exec")
        self._wake()
        if self.app_starts:
            starts = self._starts()
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._inside(command)],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={"PATH": os.defpath, "SAILBOX_ID": self.sailbox_id},
            )
            self._processes.append(process)
            # Or the deploy's pretended minutes pass before a busy machine has run the stub.
            give_up_at = time.monotonic() + STARTED_WITHIN_S
            while self._starts() == starts and process.poll() is None:
                assert time.monotonic() < give_up_at, f"the stub did not start in {STARTED_WITHIN_S:.0f} s"
                time.sleep(0.01)
        else:
            (self.root / "data/cascade-serve.log").write_text("the data directory is in use\n")
        return _Launched()

    def end(self) -> None:
        """Kill what runs in it."""
        self._signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def crash(self) -> None:
        """End the app, as a reboot would."""
        self.end()

    def _starts(self) -> int:
        """How often the app was started, as it noted itself; a line that is not whole does not count."""
        started = self.root / "data/started"
        return started.read_text().count("\n") if started.exists() else 0

    def _wake(self) -> None:
        # "Sail wakes a sleeping Sailbox only when an operation needs it"; a paused one must be resumed.
        if self.status == "paused":
            raise sail.SailboxExecutionError("the Sailbox is paused; resume it first")
        self.status = "running"

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, number)

    def _inside(self, text: str) -> str:
        return text.replace("/data", f"{self.root}/data").replace("/app/", f"{self.root}/app/")


@dataclass
class _Launched:
    def wait(self) -> sail.ExecResult:
        return sail.ExecResult(stdout="", stderr="", exit_code=0)


@dataclass
class _Files:
    _box: FakeSailbox

    def read(self, path: str) -> bytes:
        self._box.account.note("fs.read")
        place = self._box.root / path.lstrip("/")
        if not place.exists():
            raise sail.FileNotFoundError(f"{path}: no such file")
        # The stub's data directory lies below the sandbox's disk; a settings file speaks of /data.
        return place.read_bytes()

    def write(self, path: str, data: str, *, mode: int = 0o644) -> None:
        self._box.account.note("fs.write")
        place = self._box.root / path.lstrip("/")
        place.touch()
        place.chmod(mode)
        place.write_text(data.replace("CASCADE_DATA_DIR=/data", f"CASCADE_DATA_DIR={self._box.root}/data"))
        self._box.account.note("fs.write.done")
