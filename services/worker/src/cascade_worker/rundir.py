"""The run directory: made fresh, filled with the config's files, compared with itself after the run.

Some configs name their auxiliary files by relative path, so the simulator runs among copies of everything
that lies beside them (spec: simulator, The built-in worker).
"""

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

LOG_NAME = "accelsim.log"
"""The worker's own log of the simulator's stdout."""

STDERR_NAME = "accelsim.stderr.log"
"""What the simulator wrote to stderr; removed when it wrote nothing."""

RESERVED_NAMES = frozenset({LOG_NAME, f"{LOG_NAME}.gz"})
"""Names that the worker's own log takes; a simulator's file of that name does not travel."""


def make_run_dir(run_dir: Path, *, config_dirs: Sequence[Path]) -> dict[str, str]:
    """Empty `run_dir`, copy every file of `config_dirs` into it (a later one wins) and return name -> digest.

    Raises OSError, with the path in it, when the disk refuses.
    """
    if run_dir.is_symlink():
        run_dir.unlink()
    elif run_dir.exists():
        shutil.rmtree(run_dir)
    run_dir.mkdir(parents=True)
    for directory in config_dirs:
        copy_files(directory, run_dir)
    return {name: digest(run_dir / name) for name in regular_files(run_dir)}


def hold(run_dir: Path) -> int:
    """Mark the directory as in use until the descriptor is closed, at the latest when this process ends."""
    descriptor = os.open(run_dir, os.O_RDONLY | os.O_CLOEXEC)
    # Where the file system knows no locks, whoever asks takes the directory for held.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def clear_neighbours(run_dir: Path, *, before: float) -> None:
    """Remove the run directories beside `run_dir` in which no file came or went since `before` and no worker works.

    before: [s since the epoch] What cannot be removed stays.
    """
    with os.scandir(run_dir.parent) as entries:
        old = [
            Path(entry.path)
            for entry in entries
            if entry.name != run_dir.name and _is_older_directory(entry, before=before)
        ]
    for directory in old:
        if not _is_held(directory):
            shutil.rmtree(directory, ignore_errors=True)


def copy_files(source: Path, target: Path, *, leave_out: frozenset[str] = frozenset()) -> None:
    """Copy every file directly in `source` (through symlinks, without subdirectories) into `target`."""
    for entry in sorted(source.iterdir()):
        if entry.name not in leave_out and entry.is_file():
            shutil.copyfile(entry, target / entry.name)


def regular_files(directory: Path) -> list[str]:
    """Names of the regular files directly in `directory`, in name order: no symlinks, directories or
    sockets. Raises OSError where the directory cannot be read."""
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if _is_regular(entry))


def changed_files(run_dir: Path, *, before: Mapping[str, str]) -> list[str]:
    """Names of the files that were created, or whose content changed, since `before` was taken; in name
    order. One that cannot be read counts as changed: whoever uploads it says why it does not travel."""
    return [
        name
        for name in regular_files(run_dir)
        if name not in RESERVED_NAMES and (name not in before or _differs(run_dir / name, before[name]))
    ]


def _is_older_directory(entry: "os.DirEntry[str]", *, before: float) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mtime < before
    except OSError:
        return False  # another worker removed it


def _is_held(directory: Path) -> bool:
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True  # gone, or not ours
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_regular(entry: "os.DirEntry[str]") -> bool:
    try:
        return stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False  # it was removed since the directory was read


def _differs(path: Path, known: str) -> bool:
    try:
        return digest(path) != known
    except OSError:
        return True


def digest(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
