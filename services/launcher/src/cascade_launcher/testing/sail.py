"""Sail's service, small but faithful: a stand-in for the SDK's compiled core, below all of its Python.

The SDK's Python layer (sail 0.17.1) is used as it is; it talks to `sail._core_client.CoreClient.get()`, whose methods
answer with JSON. What this one does, and where the SDK says so:
- `from_checkpoint(restore_memory=False)`: a new sandbox from the disk, no process survives (`Sailbox.from_checkpoint`);
- names are not unique, and lists hold terminated sandboxes too unless excluded (`Sailbox.list`);
- `terminate` is idempotent (`Sailbox.terminate`);
- checkpoints are listed newest first, only those that can still be started from (`SailboxCheckpoint.list`);
- an exec with the key of an earlier one attaches to it instead of starting a second (`Sailbox.exec`, idempotency_key);
- a background command runs in a detached shell, by the core's own `shell_argv`; here it really runs, on this machine;
- reading a missing file raises `sail.FileNotFoundError`, anything of an unknown sandbox `sail.NotFoundError`.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sail
from cascade_core.ports import Bucket
from sail import _core_client

from cascade_launcher.backends.remote import RemoteOptions
from cascade_launcher.backends.sail import SailBackend, SailSettings
from cascade_launcher.testing import Simulator, eventually

Row = dict[str, object]
MAIN = "sb-main"
APP = "app-1"


class FakeSail:
    """Sandboxes and checkpoints of one organisation. Simulators run as processes of this machine."""

    def __init__(self) -> None:
        self.boxes: dict[str, Row] = {}
        self.checkpoints: dict[str, Row] = {}
        self.checkpoints_taken: list[str] = []
        self.execs: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self.refuse: sail.SailError | None = None
        self.unlisted: set[str] = set()
        """Sandboxes that exist, but that no listing shows yet."""
        self.listing_lags = False
        """Whether new sandboxes become `unlisted`."""
        # Starting and ending a process leave the loop; the service takes one change of a sandbox at a time.
        self._changing = asyncio.Lock()
        self._now = datetime(2026, 11, 7, tzinfo=UTC)
        self._add(MAIN, "cascade-main")

    @contextmanager
    def installed(self) -> Iterator["FakeSail"]:
        """Take the place of the compiled core for the length of the block."""
        _core_client.CoreClient._instance = self
        try:
            yield self
        finally:
            sail.reset_transports()
            _core_client.CoreClient.reset()
            for sailbox_id in self.boxes:
                self._kill(sailbox_id)

    # ---- what the core answers

    async def get_sailbox_aio(self, sailbox_id: str) -> str:
        return json.dumps(self._box(sailbox_id))

    async def list_sailboxes_aio(
        self,
        *,
        limit: int,
        offset: int,
        name: str | None,
        app: str | None,
        search: str | None,
        **filters: object,
    ) -> str:
        self._check()
        excluded = filters.pop("exclude_statuses") or []
        assert isinstance(excluded, list)
        assert not any(filters.values()), f"not built: {filters}"
        rows = [
            row
            for row in reversed(list(self.boxes.values()))
            if (name is None or row["name"] == name)
            and (app is None or row["app_id"] == app)
            and (search is None or search in str(row["name"]))
            and row["status"] not in excluded
            and row["sailbox_id"] not in self.unlisted
        ]
        page = rows[offset : offset + limit]
        return json.dumps(
            {
                "items": page,
                "limit": limit,
                "offset": offset,
                "total": len(rows),
                "has_more": offset + len(page) < len(rows),
            }
        )

    async def terminate_sailbox_aio(self, sailbox_id: str) -> None:
        async with self._changing:
            self._box(sailbox_id)["status"] = "terminated"
            await asyncio.to_thread(self._kill, sailbox_id)

    async def checkpoint_sailbox_aio(
        self, sailbox_id: str, *, name: str | None, ttl_seconds: int | None
    ) -> str:
        assert ttl_seconds is None
        self._box(sailbox_id)
        checkpoint_id = f"cp-{len(self.checkpoints_taken)}"
        self.checkpoints_taken.append(str(name))
        await asyncio.sleep(0)
        row: Row = {
            "checkpoint_id": checkpoint_id,
            "sailbox_id": sailbox_id,
            "checkpoint_generation": len(self.checkpoints_taken),
            "name": name,
            "created_at": self._tick(),
        }
        self.checkpoints[checkpoint_id] = row
        return json.dumps(row | {"status": "running"})

    async def list_checkpoints_aio(
        self, *, name: str | None, sailbox_id: str | None, app_id: str | None
    ) -> str:
        self._check()
        assert app_id is None
        rows = [
            row
            for row in reversed(list(self.checkpoints.values()))
            if row["name"] == name and row["sailbox_id"] == sailbox_id
        ]
        return json.dumps(rows)

    async def delete_checkpoint_aio(self, checkpoint_id: str) -> None:
        if self.checkpoints.pop(checkpoint_id, None) is None:
            raise sail.NotFoundError("no such checkpoint")

    async def create_from_checkpoint_aio(
        self, checkpoint_id: str, *, name: str, max_lifetime_seconds: int | None, restore_memory: bool
    ) -> str:
        self._check()
        assert restore_memory is False, "the fork would carry on the app's own processes"
        assert max_lifetime_seconds is None
        if checkpoint_id not in self.checkpoints:
            raise sail.NotFoundError("checkpoint not found")
        await asyncio.sleep(0)
        sailbox_id = f"sb-{len(self.boxes)}"
        self._add(sailbox_id, name)
        if self.listing_lags:
            self.unlisted.add(sailbox_id)
        return json.dumps({"sailbox_id": sailbox_id, "name": name, "status": "running"})

    async def start_exec_aio(
        self,
        sailbox_id: str,
        argv: Sequence[str],
        *,
        idempotency_key: str,
        env: Sequence[tuple[str, str]],
        **_options: object,
    ) -> object:
        key = (sailbox_id, idempotency_key)
        async with self._changing:
            if self._box(sailbox_id)["status"] != "running":
                raise sail.SailboxTerminatedError("the Sailbox no longer exists")
            if key not in self.execs:
                environ = {"PATH": os.environ["PATH"], "IS_SANDBOX": "1", "SAILBOX_ID": sailbox_id}
                self.execs[key] = await asyncio.to_thread(
                    subprocess.Popen, list(argv), env=environ | dict(env), start_new_session=True
                )
        return object()

    def read_file(self, sailbox_id: str, path: str) -> "_Reader":
        if self._box(sailbox_id)["status"] == "terminated":
            raise sail.SailboxTerminatedError("the Sailbox no longer exists")
        try:
            return _Reader(Path(path).read_bytes())
        except OSError as error:
            raise sail.FileNotFoundError(path) from error

    # ---- inside

    def _add(self, sailbox_id: str, name: str) -> None:
        self.boxes[sailbox_id] = {
            "sailbox_id": sailbox_id,
            "name": name,
            "status": "running",
            "app_id": APP,
            "created_at": self._tick(),
        }

    def _tick(self) -> str:
        self._now += timedelta(seconds=1)
        return self._now.isoformat()

    def _check(self) -> None:
        if self.refuse is not None:
            raise self.refuse

    def _box(self, sailbox_id: str) -> Row:
        self._check()
        if sailbox_id not in self.boxes:
            raise sail.NotFoundError(f"no Sailbox {sailbox_id}")
        return self.boxes[sailbox_id]

    def _kill(self, sailbox_id: str) -> None:
        """A background command stays in the group of the shell that began it, so the group is all of the sandbox."""
        for (owner, _), shell in self.execs.items():
            if owner == sailbox_id:
                with suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)
                shell.wait()


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._content

    def close(self) -> None:
        """Nothing is open."""


class SailPlatform:
    """The Sail backend on the fake service, as the contract suite wants it; its simulators really run."""

    def __init__(
        self, service: FakeSail, traces: Bucket, options: RemoteOptions, data_dir: Path, simulator: Simulator
    ) -> None:
        self.service = service
        self._traces = traces
        self._options = options
        self._data_dir = data_dir
        self._simulator = simulator

    def backend(self, sim_cmd: str | None = "default") -> SailBackend:
        """A backend as a newly started launcher makes it."""
        command = self._simulator.command("told") if sim_cmd == "default" else sim_cmd
        options = replace(self._options, sim_cmd=command)
        return SailBackend(SailSettings(main_id=MAIN), options, self._traces, data_dir=self._data_dir)

    def starts(self, sim_id: str) -> int:
        """How often a simulator of the sim really started."""
        return len(self._simulator.starts(sim_id))

    async def up(self, sim_id: str) -> None:
        """The simulator runs."""
        await eventually(lambda: self._simulator.is_up(sim_id))

    async def exit(self, sim_id: str, code: int) -> None:
        """The simulator exits."""
        self._simulator.tell(sim_id, code)
