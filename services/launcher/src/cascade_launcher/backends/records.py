"""What the local backend remembers of a sim on disk, so that a launcher that was killed finds its processes
again.

`<sim id>.pid` names the process; `<sim id>.lock` is locked by the process itself, from the moment it exists:
the lock is inherited by the fork, so no kill of the launcher, however timed, leaves a process that nobody
knows of. It holds the attempt, by which the process is found where no launcher lived to write its number down.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from cascade_launcher.backends.processes import Leader
from cascade_launcher.endings import MOST_OUTPUT_CHARS, lines_of

_logger = structlog.get_logger(__name__)

_TAIL_BYTES = 4 * MOST_OUTPUT_CHARS
_RECORD = ".pid"
_LOCK = ".lock"
_OUTPUT = ".out"


class AlreadyLocked(Exception):
    """A process of this sim holds the lock: it was started before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """One started process."""

    sim_id: str
    run_id: str
    attempt: str
    pid: int
    started: str
    ended_because: str | None = None
    """Set before the launcher ends the process for a reason of its own."""

    @property
    def leader(self) -> Leader:
        """The process by its full name."""
        return Leader(self.pid, self.started, self.attempt)


@dataclass(frozen=True, slots=True)
class Intent:
    """A start that is about to be made, or was made and never recorded."""

    run_id: str
    attempt: str


class Records:
    """The files of one directory, `$CASCADE_DATA_DIR/work/sims`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def below(cls, data_dir: Path) -> "Records":
        """The records of one data directory. spec: simulator, Where output goes."""
        return cls(data_dir.absolute() / "work" / "sims")

    def output_path(self, sim_id: str) -> Path:
        """Where the simulator's stdout and stderr go."""
        return self._directory / f"{sim_id}{_OUTPUT}"

    def make_directory(self) -> None:
        """Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True)

    def sim_ids(self) -> set[str]:
        """The sims that have a record, or whose start may have come before one."""
        return {path.stem for path in self._directory.glob("sim-*") if path.suffix in (_RECORD, _LOCK)}

    def read(self, sim_id: str) -> ProcessRecord | None:
        """The record of one sim. One that cannot be read counts as absent: the lock still tells."""
        try:
            return ProcessRecord(**json.loads((self._directory / f"{sim_id}{_RECORD}").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, record: ProcessRecord) -> None:
        """Replace the sim's record whole. Raises OSError."""
        path = self._directory / f"{record.sim_id}{_RECORD}"
        temporary = path.with_suffix(f"{_RECORD}.tmp")
        temporary.write_text(json.dumps(asdict(record)))
        temporary.replace(path)

    def forget(self, sim_id: str) -> None:
        """The sim is over and its processes are gone. Its output stays."""
        for suffix in (_RECORD, _LOCK):
            (self._directory / f"{sim_id}{suffix}").unlink(missing_ok=True)

    def clear(self, *, before: float) -> None:
        """Remove the output and the lock of sims that are over, where nothing was written since. [s since the epoch]"""
        for path in self._directory.glob("sim-*"):
            if path.suffix not in (_OUTPUT, _LOCK):
                continue
            try:
                # A sim with a record may still run, or has to be told of.
                is_over = not path.with_suffix(_RECORD).exists() and not self.is_locked(path.stem)
                if is_over and path.stat().st_mtime < before:
                    path.unlink()
            except OSError as error:
                _logger.info("an old file of a sim was not removed", path=str(path), error=str(error))

    @contextmanager
    def locked(self, sim_id: str, intent: Intent) -> Iterator[int]:
        """A descriptor of the sim's lock, to be inherited by its process. Raises AlreadyLocked, OSError."""
        descriptor = os.open(self._lock_path(sim_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _taken(descriptor):
                raise AlreadyLocked(sim_id)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(asdict(intent)).encode(), 0)
            yield descriptor
        finally:
            os.close(descriptor)  # the lock itself lives on with the process that inherited it

    def is_locked(self, sim_id: str) -> bool:
        """Whether a process of the sim exists, or is being started."""
        try:
            descriptor = os.open(self._lock_path(sim_id), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _taken(descriptor)
        finally:
            os.close(descriptor)

    def intent(self, sim_id: str) -> Intent | None:
        """What the sim's lock says of its start; None where there is nothing to be read."""
        try:
            return Intent(**json.loads(self._lock_path(sim_id).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def _lock_path(self, sim_id: str) -> Path:
        return self._directory / f"{sim_id}{_LOCK}"

    def last_output(self, sim_id: str) -> tuple[str, ...]:
        """The end of what the simulator wrote."""
        try:
            with self.output_path(sim_id).open("rb") as out:
                size = out.seek(0, os.SEEK_END)
                start = max(0, size - _TAIL_BYTES)
                out.seek(start)
                return lines_of(out.read(_TAIL_BYTES), whole=start == 0)
        except OSError:
            return ()


def _taken(descriptor: int) -> bool:
    """Whether the lock was free, and is this process's now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
