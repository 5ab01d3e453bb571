"""Sims as Sail sandboxes: one checkpoint of the app's own sandbox a run, one fork of it a sim.

Needs the extra `sail` (the package `sail`; `sail-sdk` is its deprecated name). The app itself runs in a sandbox, with
the trace on its disk, so every fork begins with an identical trace and nothing is copied over the network.
"""

import asyncio
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import sail
import structlog
from cascade_core.errors import CascadeError
from cascade_core.ports import Bucket
from cascade_core.runs.state import Run
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from cascade_launcher.backends.protocol import (
    BackendUnavailable,
    Ended,
    Gone,
    Launch,
    LaunchError,
    Running,
    Vital,
    Waiting,
)
from cascade_launcher.backends.remote import RemoteOptions, split_command
from cascade_launcher.bucket_traces import key_prefix
from cascade_launcher.endings import MOST_OUTPUT_CHARS, lines_of
from cascade_launcher.trace_files import materialise
from cascade_launcher.trace_paths import index_path

if TYPE_CHECKING:
    from sail import Sailbox

_logger = structlog.get_logger(__name__)

CALLS_AT_ONCE = 16
LOOK_EVERY_S = 1.0
_TAIL_BYTES = 4 * MOST_OUTPUT_CHARS
_OVER = frozenset({"terminating", "terminated"})


class SailSettings(BaseSettings):
    """What the Sail backend is told besides `SAIL_API_KEY`, which the SDK reads itself."""

    model_config = SettingsConfigDict(
        env_prefix="CASCADE_SAIL_", frozen=True, extra="ignore", env_ignore_empty=True
    )

    main_id: str | None = Field(
        default=None, description="Id of the app's own sandbox; by default the one that this process runs in."
    )
    max_lifetime_s: int | None = Field(
        default=None, ge=60, description="Wall time after which Sail ends a sim's sandbox by itself. [s]"
    )


@dataclass(frozen=True, slots=True)
class _Home:
    """The app's own sandbox."""

    sailbox_id: str
    app_id: str | None


class SailBackend:
    """Runs each sim in a fork of the app's sandbox. Implements `Backend`."""

    poll_every_s = 15.0
    ends_with_launcher = False

    def __init__(
        self, settings: SailSettings, options: RemoteOptions, traces: Bucket, *, data_dir: Path
    ) -> None:
        self._settings = settings
        self._options = options
        self._traces = traces
        self._data_dir = data_dir.absolute()
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._locks: dict[str, asyncio.Lock] = {}
        self._checkpoints: dict[str, str] = {}
        self._home: _Home | None = None

    async def prepare(self, run: Run) -> None:
        """Put the trace on this sandbox's disk, then checkpoint it, once a run."""
        split_command(self._options.sim_cmd)
        await materialise(
            self._traces,
            prefix=key_prefix(self._options.prefix, run.trace_id),
            directory=Path(self._options.trace_dir(run.trace_id, str(self._data_dir))),
            index_path=index_path(self._data_dir, run.trace_id),
        )
        # A fork boots from the disk alone, so what only the page cache holds would be missing from it.
        await asyncio.to_thread(os.sync)
        await self._checkpoint_of(run.run_id)

    async def start(self, launch: Launch) -> str:
        """Fork a sandbox and start the simulator in it, or find both; returns the sandbox's id."""
        with _translated("could not start the sim's sandbox", refused=LaunchError):
            box = await self._first_box(launch.sim_id) or await self._fork(launch)
            if box.status in _OVER or box.status == "failed":
                return str(box.sailbox_id)  # it ran, or could not: a second one must not begin
            # The same key attaches to the command that a killed launcher may have started.
            await box.exec.aio(
                self._shell_command(launch.sim_id),
                background=True,
                env=self._options.contract(launch, data_dir=str(self._data_dir)),
                idempotency_key=launch.sim_id,
            )
        return str(box.sailbox_id)

    async def stop(self, sim_id: str, *, patience_s: float = 0.0) -> None:
        """Terminate the sim's sandbox, once its simulator has ended or patience has."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        # Another machine sets no event of ours.
        while loop.time() < until and isinstance(await self.alive(sim_id), Running):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_EVERY_S)
        with _translated("the sim's sandbox cannot be terminated"):
            for box in await self._boxes(sim_id):
                if box.status not in _OVER:
                    await box.terminate.aio()

    async def alive(self, sim_id: str) -> Vital:
        """How one sim fares."""
        with _translated("the sim's sandbox cannot be looked at"):
            box = next((one for one in await self._boxes(sim_id) if one.status not in _OVER), None)
            return Gone() if box is None else await self._vital(box, sim_id)

    async def census(self) -> Mapping[str, Vital]:
        """Every sandbox of a sim in this app that was not terminated."""
        with _translated("the sandboxes cannot be listed"):
            home = await self._own_home()
            boxes = await sail.Sailbox.list.aio(
                app_id=home.app_id, search=_NAME_PREFIX, exclude_statuses=sorted(_OVER)
            )
            sims = {
                box.name.removeprefix("cascade-"): box for box in boxes if box.name.startswith(_NAME_PREFIX)
            }
            vitals = await asyncio.gather(*(self._vital(box, sim_id) for sim_id, box in sims.items()))
        return {
            sim_id: vital for sim_id, vital in zip(sims, vitals, strict=True) if not isinstance(vital, Gone)
        }

    async def finish(self, run_id: str) -> None:
        """Delete the run's checkpoint: nothing will start from it any more."""
        with _translated("the run's checkpoint cannot be deleted"):
            for checkpoint in await self._stored_checkpoints(run_id):
                await checkpoint.delete.aio()
        self._checkpoints.pop(run_id, None)
        self._locks.pop(run_id, None)

    # ---- checkpoints and sandboxes

    async def _own_home(self) -> _Home:
        if self._home is None:
            sailbox_id = self._settings.main_id or sail.guest.current_sailbox_id()
            self._home = _Home(sailbox_id, (await sail.Sailbox.get.aio(sailbox_id)).app_id)
        return self._home

    async def _checkpoint_of(self, run_id: str) -> str:
        """The run's checkpoint, taken now unless it was taken before."""
        async with self._locks.setdefault(run_id, asyncio.Lock()):
            if run_id not in self._checkpoints:
                with _translated("launcher prepare", refused=LaunchError):
                    stored = await self._stored_checkpoints(run_id)
                    # Newest first: the oldest is the one that earlier sims of this run were forked from.
                    checkpoint = stored[-1] if stored else await self._take_checkpoint(run_id)
                self._checkpoints[run_id] = checkpoint.checkpoint_id
            return self._checkpoints[run_id]

    async def _take_checkpoint(self, run_id: str) -> "sail.SailboxCheckpoint":
        home = await self._own_home()
        _logger.info("checkpointing this sandbox", run_id=run_id, sailbox_id=home.sailbox_id)
        return await sail.Sailbox.from_id(home.sailbox_id).checkpoint.aio(name=_checkpoint_name(run_id))

    async def _stored_checkpoints(self, run_id: str) -> "list[sail.SailboxCheckpoint]":
        home = await self._own_home()
        return list(
            await sail.SailboxCheckpoint.list.aio(name=_checkpoint_name(run_id), sailbox_id=home.sailbox_id)
        )

    async def _fork(self, launch: Launch) -> "Sailbox":
        checkpoint_id = await self._checkpoint_of(launch.run_id)
        try:
            await sail.Sailbox.from_checkpoint.aio(
                checkpoint_id,
                name=f"cascade-{launch.sim_id}",
                max_lifetime_seconds=self._settings.max_lifetime_s,
                restore_memory=False,
            )
        except sail.NotFoundError as error:
            self._checkpoints.pop(launch.run_id, None)
            raise BackendUnavailable(
                f"the run's checkpoint is gone; another one is taken ({error})"
            ) from error
        # Names are not unique. Whoever forked at the same time sees the same first one, and ends the others.
        boxes = await self._boxes(launch.sim_id)
        if not boxes:
            raise BackendUnavailable("the sim's sandbox was forked, but is not listed yet; look again")
        first, *others = boxes
        for box in others:
            await box.terminate.aio()
        return first

    async def _first_box(self, sim_id: str) -> "Sailbox | None":
        return next(iter(await self._boxes(sim_id)), None)

    async def _boxes(self, sim_id: str) -> "list[Sailbox]":
        """Every sandbox that ever bore the sim's name in this app, the oldest first."""
        home = await self._own_home()
        boxes = await sail.Sailbox.list.aio(app_id=home.app_id, name=f"cascade-{sim_id}")
        return sorted(boxes, key=lambda box: (box.created_at or _NO_DATE, box.sailbox_id))

    async def _vital(self, box: "Sailbox", sim_id: str) -> Vital:
        if box.status == "creating":
            return Waiting("its sandbox is being created")
        if box.status == "failed":
            return Ended(None, f"its sandbox failed: {box.error_message or 'Sail gives no reason'}")
        if box.status in ("sleeping", "paused"):
            return Running()  # reading a file would wake it; what it does not say is noticed as silence
        try:
            async with self._slots:
                told: bytes = await box.fs.read.aio(self._end_path(sim_id))
        except sail.FileNotFoundError:
            return Running()
        except (sail.NotFoundError, sail.SailboxTerminatedError):
            return Gone()
        code, _, output = told.partition(b"\n")
        # Not a number where the sandbox's disk was full: the end was seen, the code was not.
        exit_code = int(code) if code.isdigit() else None
        return Ended(exit_code, None, lines_of(output, whole=len(output) < _TAIL_BYTES))

    # ---- the simulator in its sandbox

    def _shell_command(self, sim_id: str) -> str:
        """CASCADE_SIM_CMD through a shell, its output kept, and its end written down with its last words.

        spec: concepts, How a run launches; simulator, Where output goes.
        """
        out, end = self._out_path(sim_id), self._end_path(sim_id)
        directory = shlex.quote(str(self._data_dir / "work" / "sims"))
        quoted_out, quoted_end = shlex.quote(out), shlex.quote(end)
        # The line end keeps a comment at the end of the command from swallowing the bracket.
        return (
            f"mkdir -p {directory}; ( {self._options.sim_cmd}\n) >{quoted_out} 2>&1 </dev/null; "
            f"{{ echo $? && tail -c {_TAIL_BYTES} {quoted_out}; }} >{quoted_end}.tmp && "
            f"mv {quoted_end}.tmp {quoted_end}"
        )

    def _out_path(self, sim_id: str) -> str:
        return str(self._data_dir / "work" / "sims" / f"{sim_id}.out")

    def _end_path(self, sim_id: str) -> str:
        return str(self._data_dir / "work" / "sims" / f"{sim_id}.end")


_NAME_PREFIX = "cascade-sim-"
_NO_DATE = datetime.max.replace(tzinfo=UTC)


def _checkpoint_name(run_id: str) -> str:
    return f"cascade-{run_id}"


@contextmanager
def _translated(what: str, *, refused: type[CascadeError] = BackendUnavailable) -> Iterator[None]:
    """The SDK's errors as ours. refused: what an answer becomes that asking again would not change."""
    try:
        yield
    except sail.PermissionDeniedError as error:
        raise refused(
            f"{what}: Sail refused it ({error}). Check SAIL_API_KEY in the app's environment."
        ) from error
    except sail.InvalidArgumentError as error:
        raise refused(
            f"{what}: {error}. The app must run in a Sail sandbox (`cascade deploy`), with SAIL_API_KEY in its "
            "environment."
        ) from error
    except sail.SailError as error:
        passing = error.retryable or (error.status_code or 0) >= 500 or error.status_code == 429
        raise (BackendUnavailable if passing else refused)(f"{what}: Sail says: {error}") from error
