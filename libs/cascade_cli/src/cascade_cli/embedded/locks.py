"""File locks that live exactly as long as the processes that hold them.

A lock is an flock on an open file. A child that inherits the file keeps the lock for itself and its own children, so a
free lock proves that the last of them has gone, whatever happened to their parent and to their process ids.
"""

import fcntl
import os
import time
from pathlib import Path


class HeldLock:
    """A lock that this process took. Closing it here leaves it with the children that inherited `fd`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def note_holder(self, pid: int) -> None:
        """Write down who holds the lock, for the message that the next one gets."""
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, f"{pid}\n".encode("ascii"), 0)

    def close(self) -> None:
        """Let go of it in this process."""
        os.close(self.fd)


def try_lock(path: Path) -> HeldLock | None:
    """Take the lock at `path` (the file is created), or None when somebody holds it. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return HeldLock(fd)


def wait_for_lock(path: Path, *, timeout_s: float) -> HeldLock | None:
    """Like `try_lock`, but give the holder `timeout_s` to go away. Blocks; polls every 10 ms."""
    deadline = time.monotonic() + timeout_s
    while True:
        lock = try_lock(path)
        if lock is not None or time.monotonic() >= deadline:
            return lock
        time.sleep(0.01)


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock at `path`."""
    lock = try_lock(path)
    if lock is None:
        return False
    lock.close()
    return True


def holder(path: Path) -> str:
    """The process id that the holder wrote down, or `unknown`."""
    try:
        return path.read_text("ascii").strip() or "unknown"
    except (OSError, UnicodeDecodeError):
        return "unknown"
