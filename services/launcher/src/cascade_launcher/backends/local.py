"""Sims as processes of this machine, each in a session and process group of its own.

They outlive a launcher that is killed, and are found again by the records on disk. An orderly stop ends them.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog
from cascade_core.ports import Bucket
from cascade_core.runs.state import Run
from cascade_core.sim_tokens import sim_token

from cascade_launcher.backends import processes
from cascade_launcher.backends.protocol import (
    BackendUnavailable,
    Ended,
    Gone,
    Launch,
    LaunchError,
    Running,
    Vital,
)
from cascade_launcher.backends.records import AlreadyLocked, Intent, ProcessRecord, Records
from cascade_launcher.backends.remote import split_command
from cascade_launcher.bucket_traces import key_prefix
from cascade_launcher.environment import contract, inherited
from cascade_launcher.trace_files import materialise
from cascade_launcher.trace_paths import index_path, trace_dir

_logger = structlog.get_logger(__name__)

KILL_AFTER_S = 5.0
"""From SIGTERM to SIGKILL. spec: concepts, How a run launches."""
GONE_WITHIN_S = 10.0
"""How long the kernel may take to end what was killed; only a process stuck in the kernel takes longer."""
LOOK_EVERY_S = 0.05
_DAY_S = 86_400
STOPPED_ERROR = "cascade was stopped while this sim ran"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """What the local backend is told."""

    sim_cmd: str | None
    main_url: str
    token: str = field(repr=False)
    sim_tokens: bool = False
    """Whether each sim gets a token of its own instead of the app's."""
    data_dir: Path
    accelsim_dir: Path
    bucket_name: str
    prefix: str
    keep_sim_files_days: float = 14.0


@dataclass(slots=True)
class _Process:
    record: ProcessRecord
    child: "subprocess.Popen[bytes] | None"
    """None for a process that an earlier launcher started; its exit code is nobody's to see."""


class LocalBackend:
    """Runs each sim as a subprocess. Implements `Backend`."""

    poll_every_s = 0.5
    ends_with_launcher = True

    def __init__(self, options: LocalOptions, bucket: Bucket, environ: Mapping[str, str]) -> None:
        self._options = options
        self._bucket = bucket
        self._environ = inherited(environ)
        self._records = Records.below(options.data_dir)
        self._survey = processes.Survey()
        self._known: dict[str, _Process] = {}

    async def prepare(self, run: Run) -> None:
        """Put the trace on this disk."""
        split_command(self._options.sim_cmd)
        options = self._options
        await materialise(
            self._bucket,
            prefix=key_prefix(options.prefix, run.trace_id),
            directory=self._trace_dir(run.trace_id),
            index_path=index_path(options.data_dir, run.trace_id),
        )

    async def start(self, launch: Launch) -> str:
        """Start the simulator, or find the one that an earlier launcher started; returns its pid."""
        known = await self._find(launch.sim_id)
        if known is None:
            known = self._known[launch.sim_id] = await self._start(launch)
        return str(known.record.pid)

    async def stop(self, sim_id: str, *, patience_s: float = 0.0) -> None:
        """End the sim's processes: patience, SIGTERM, 5 s, SIGKILL; then forget it."""
        known = await self._find(sim_id)
        if known is None and self._records.is_locked(sim_id):
            raise BackendUnavailable("the simulator runs, but its process is not found yet; look again")
        if known is not None:
            await _end(known, self._survey, patience_s=patience_s)
        self._records.forget(sim_id)
        self._known.pop(sim_id, None)

    async def stop_for_now(self, sim_id: str, *, because: str) -> None:
        """End the sim's processes as `stop` does, but keep its record, so that a later launcher can tell
        why."""
        known = self._known.get(sim_id)
        if known is None:
            return
        known.record = replace(known.record, ended_because=because)
        _write_if_possible(self._records, known.record)
        await _end(known, self._survey, patience_s=0.0)

    async def alive(self, sim_id: str) -> Vital:
        """How one sim's process fares."""
        known = await self._find(sim_id)
        if known is None:
            return Running() if self._records.is_locked(sim_id) else Gone()
        return self._vital(known)

    async def census(self) -> Mapping[str, Vital]:
        """Every process that was started, by whichever launcher, written down or not."""
        vitals = {sim_id: await self.alive(sim_id) for sim_id in self._records.sim_ids() | self._known.keys()}
        return {sim_id: vital for sim_id, vital in vitals.items() if not isinstance(vital, Gone)}

    async def finish(self, run_id: str) -> None:  # noqa: ARG002 -- the protocol's
        """The trace stays on disk for the next run. What sims left long ago goes."""
        before = time.time() - self._options.keep_sim_files_days * _DAY_S
        await asyncio.to_thread(self._records.clear, before=before)

    def known_sims(self, *, own: bool) -> list[str]:
        """The ids of the sims that this process knows. `own`: only those that it started itself."""
        return [sim_id for sim_id, known in self._known.items() if known.child is not None or not own]

    def _trace_dir(self, trace_id: str) -> Path:
        options = self._options
        return trace_dir(
            options.data_dir, bucket=options.bucket_name, prefix=options.prefix, trace_id=trace_id
        )

    async def _start(self, launch: Launch) -> _Process:
        options = self._options
        command = split_command(options.sim_cmd)
        environ = self._environ | contract(
            launch,
            main_url=self._options.main_url,
            token=sim_token(options.token, launch.sim_id) if options.sim_tokens else options.token,
            trace_dir=str(self._trace_dir(launch.trace_id)),
            accelsim_dir=str(self._options.accelsim_dir),
        )
        program = shutil.which(command[0], path=environ.get("PATH", os.defpath))
        if program is None:
            raise LaunchError(
                f"could not start {command[0]!r}: the first word of CASCADE_SIM_CMD is not an executable path, "
                "nor the name of one on PATH"
            )
        try:
            self._records.make_directory()
            try:
                with self._records.locked(launch.sim_id, Intent(launch.run_id, launch.attempt)) as lock:
                    return self._spawn(launch, [program, *command[1:]], environ, lock)
            except AlreadyLocked:
                return await self._found_by_marker(launch)
        except OSError as error:
            raise LaunchError(
                f"could not start {command[0]!r}: {error.strerror or error}"
                + (f" ({error.filename})" if error.filename else "")
            ) from error

    def _spawn(self, launch: Launch, command: list[str], environ: dict[str, str], lock: int) -> _Process:
        with self._records.output_path(launch.sim_id).open("ab") as out:
            child = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
            )
        # An unreaped child keeps its number and its start time, even when it has ended by now.
        record = _record_of(launch, child.pid, processes.first_seen(child.pid))
        try:
            self._records.write(record)
        except OSError:
            child.kill()
            child.wait()
            raise
        return _Process(record, child)

    async def _found_by_marker(self, launch: Launch) -> _Process:
        """The process that a launcher started just before it was killed, and so never wrote down.

        Raises LaunchError where it does not show itself in time, BackendUnavailable where it has ended meanwhile.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + GONE_WITHIN_S
        intent = Intent(launch.run_id, launch.attempt)
        while (record := await _record_by_attempt(self._survey, launch.sim_id, intent)) is None:
            if not self._records.is_locked(launch.sim_id):
                raise BackendUnavailable("what held the sim's lock has let go of it; look again")
            if loop.time() >= until:
                raise LaunchError(
                    f"the sim's lock is held, but no process with CASCADE_ATTEMPT={launch.attempt} is found. "
                    "End what holds it (`fuser` tells), then launch a new run."
                )
            await asyncio.sleep(LOOK_EVERY_S)
        _write_if_possible(self._records, record)
        return _Process(record, None)

    async def _find(self, sim_id: str) -> _Process | None:
        """A known process, or one that is on record: adopted from a launcher that is gone."""
        if sim_id not in self._known:
            record = await _record_of_any(self._records, self._survey, sim_id)
            # Another task may have found it meanwhile.
            if record is not None and sim_id not in self._known:
                self._known[sim_id] = _Process(record, None)
        return self._known.get(sim_id)

    def _vital(self, known: _Process) -> Vital:
        if known.child is not None:
            code = known.child.poll()
            # A command that put its work into the background and left cleanly still runs.
            if code is None or (code == 0 and processes.group_exists(known.record.leader)):
                return Running()
        else:
            code = None
            leader = known.record.leader
            if processes.is_running(leader) or processes.group_exists(leader):
                return Running()
        if known.record.ended_because is not None:
            return Ended(None, known.record.ended_because)
        return Ended(code, output=self._records.last_output(known.record.sim_id))


async def stop_all(data_dir: Path) -> list[str]:
    """End every local sim below `data_dir`, whichever launcher started it; returns the ids of those that ran.

    Whatever became of their launchers, no sim's process is left after this. The
    records stay, so that the next launcher gives these sims up with the reason.
    """
    records = Records.below(data_dir)
    survey = processes.Survey()
    found = await asyncio.gather(
        *(_record_of_any(records, survey, sim_id) for sim_id in sorted(records.sim_ids()))
    )
    on_record = [record for record in found if record is not None]
    members = await asyncio.gather(*(survey.members(record.leader) for record in on_record))
    running = [
        _Process(replace(record, ended_because=STOPPED_ERROR), None)
        for record, pids in zip(on_record, members, strict=True)
        if pids
    ]
    for known in running:
        _write_if_possible(records, known.record)
    async with asyncio.TaskGroup() as tasks:
        for known in running:
            tasks.create_task(_end(known, survey, patience_s=0.0))
    return [known.record.sim_id for known in running]


def _record_of(launch: Launch, pid: int, started: str) -> ProcessRecord:
    return ProcessRecord(
        sim_id=launch.sim_id, run_id=launch.run_id, attempt=launch.attempt, pid=pid, started=started
    )


async def _record_of_any(records: Records, survey: processes.Survey, sim_id: str) -> ProcessRecord | None:
    """The sim's record; made now for a process that holds its lock and was never written down."""
    record = records.read(sim_id)
    if record is not None or not records.is_locked(sim_id) or (intent := records.intent(sim_id)) is None:
        return record
    record = await _record_by_attempt(survey, sim_id, intent)
    if record is not None:
        _write_if_possible(records, record)
    return record


async def _record_by_attempt(survey: processes.Survey, sim_id: str, intent: Intent) -> ProcessRecord | None:
    for pid in await survey.of_attempt(intent.attempt):
        started = processes.started_at(pid)
        if started is not None:
            return ProcessRecord(
                sim_id=sim_id, run_id=intent.run_id, attempt=intent.attempt, pid=pid, started=started
            )
    return None


def _write_if_possible(records: Records, record: ProcessRecord) -> None:
    """A full disk costs the next launcher what it could have read, and must not keep this one from its work."""
    try:
        records.write(record)
    except OSError as error:
        _logger.warning("the sim's process cannot be written down", sim_id=record.sim_id, error=str(error))


async def _end(known: _Process, survey: processes.Survey, *, patience_s: float) -> None:
    """End every process of the sim: patience, SIGTERM, 5 s, SIGKILL."""
    leader = known.record.leader
    if await _left(known, within_s=patience_s) and not await survey.members(leader):
        return
    # To the group only: a simulator that started helpers in groups of their own ends them itself, in its
    # order.
    processes.signal_group(leader, signal.SIGTERM)
    await _left(known, within_s=KILL_AFTER_S)
    loop = asyncio.get_running_loop()
    until = loop.time() + GONE_WITHIN_S
    while members := await survey.members(leader):
        # Again and again: what was forked in the meantime is of the sim as well.
        processes.kill(members)
        if loop.time() >= until:
            _logger.error("a killed process does not end", sim_id=known.record.sim_id, pids=sorted(members))
            return
        await asyncio.sleep(LOOK_EVERY_S)
        if known.child is not None:
            known.child.poll()


async def _left(known: _Process, *, within_s: float) -> bool:
    """Whether the leader and its whole group ended in time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while not _is_over(known):
        if loop.time() >= until:
            return False
        await asyncio.sleep(LOOK_EVERY_S)
    return True


def _is_over(known: _Process) -> bool:
    if known.child is not None and known.child.poll() is None:
        return False
    leader = known.record.leader
    return not processes.is_running(leader) and not processes.group_exists(leader)
