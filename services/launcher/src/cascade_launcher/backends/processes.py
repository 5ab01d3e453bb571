"""Processes as the local backend needs them: who is alive, who belongs to a sim, and ending them all.

A pid alone names nobody, since pids are used again. So a process is named by its pid and when it started, and
a sim's processes also by the attempt id in their environment, which children inherit wherever they put
themselves.
"""

import asyncio
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_HAS_PROC = (_PROC / "self" / "stat").exists()
_ENDED_STATES = frozenset("ZXx")
_ATTEMPT = b"CASCADE_ATTEMPT="
_BEGINS_WITHIN_S = 0.25
"""How long a process may take from leaving its parent's program to beginning its own: 12 ms were seen on busy cores."""
_BEGINNING_LOOK_EVERY_S = 0.001


@dataclass(frozen=True, slots=True)
class Leader:
    """The process that was started for a sim; it leads the process group of the same number."""

    pid: int
    started: str
    """When, in the system's own terms; the same text again means the same process."""
    attempt: str
    """`CASCADE_ATTEMPT` in the environment of each of the sim's processes."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One running process of a survey."""

    pid: int
    group: int
    attempt: str | None


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    group: int
    started: str


class Survey:
    """Looks through all processes of the machine, for all who ask at the same time at once."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._began_at = float("-inf")
        self._seen: tuple[Seen, ...] = ()

    async def members(self, leader: Leader) -> set[int]:
        """Every running process of the sim: those of its group, and those that left it but carry its
        attempt."""
        if not _HAS_PROC:
            return {leader.pid} if group_exists(leader) else set()
        seen = await self.everything()
        group_is_ours = _group_is_ours(leader)
        return {
            process.pid
            for process in seen
            if (group_is_ours and process.group == leader.pid) or process.attempt == leader.attempt
        }

    async def of_attempt(self, attempt: str) -> list[int]:
        """Running processes that carry the attempt, leaders of a group first; none where there is no /proc."""
        if not _HAS_PROC:
            return []
        found = [process for process in await self.everything() if process.attempt == attempt]
        return [process.pid for process in sorted(found, key=lambda p: (p.group != p.pid, p.pid))]

    async def everything(self) -> tuple[Seen, ...]:
        """Every running process, as seen at some moment after this call began."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        async with self._lock:
            if self._began_at <= asked_at:
                self._began_at = loop.time()
                self._seen = await asyncio.to_thread(_look_around)
            return self._seen


def first_seen(pid: int) -> str:
    """When a child that was not reaped yet started, ended or not."""
    stat = _stat(pid) if _HAS_PROC else None
    return stat.started if stat is not None else (started_at(pid) or "unknown")


def started_at(pid: int) -> str | None:
    """When the process of this number started; None where there is none, or only its zombie."""
    if _HAS_PROC:
        stat = _stat(pid)
        return None if stat is None or stat.state in _ENDED_STATES else stat.started
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return None if not shown or shown.startswith("Z") else shown.partition(" ")[2].strip()


def is_running(leader: Leader) -> bool:
    """Whether the leader itself still runs."""
    return started_at(leader.pid) == leader.started


def group_exists(leader: Leader) -> bool:
    """Whether anything still runs in the sim's process group."""
    if not _group_is_ours(leader):
        return False
    try:
        os.killpg(leader.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return _HAS_PROC  # macOS answers so for a group of zombies
    # Zombies count for the call above, and an init that does not reap keeps them for ever.
    return not _HAS_PROC or any(process.group == leader.pid for process in _look_around(environments=False))


def signal_group(leader: Leader, number: signal.Signals) -> None:
    """Signal the sim's process group."""
    if _group_is_ours(leader):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.pid, number)


def kill(pids: set[int]) -> None:
    """SIGKILL to each; those that are gone do not matter."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _group_is_ours(leader: Leader) -> bool:
    # The kernel gives a number away again only once no group bears it. So a leader that is gone leaves its
    # number to its own group; another process under the number means that the group is gone.
    if _HAS_PROC:
        stat = _stat(leader.pid)
        return stat is None or stat.started == leader.started
    return started_at(leader.pid) in (None, leader.started)


def _look_around(*, environments: bool = True) -> tuple[Seen, ...]:
    seen: list[Seen] = []
    for entry in os.listdir(_PROC):  # noqa: PTH208 -- a thousand Path objects a look would be built in vain
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        stat = _stat(int(entry))
        if stat is None or stat.state in _ENDED_STATES:
            continue
        attempt = _attempt_of(int(entry)) if environments and stat.group != 0 else None  # 0: the kernel's own
        seen.append(Seen(int(entry), stat.group, attempt))
    return tuple(seen)


def _attempt_of(pid: int) -> str | None:
    try:
        variables = _environment(pid).split(b"\0")
    except OSError:
        return None
    for variable in variables:
        if variable.startswith(_ATTEMPT):
            return variable[len(_ATTEMPT) :].decode("utf-8", "replace")
    return None


def _environment(pid: int) -> bytes:
    """Waited for where the process is about to begin its program: until then it shows no environment, and no arguments.

    Else a process that a sim started as it was ended would be taken for a stranger's, and live on. Raises OSError.
    """
    until = time.monotonic() + _BEGINS_WITHIN_S
    while not (environment := _read(f"/proc/{pid}/environ")):
        stat = _stat(pid)
        ended = stat is None or stat.state in _ENDED_STATES
        if ended or _read(f"/proc/{pid}/cmdline") or time.monotonic() >= until:
            # Once more: what shows arguments shows its environment too, and may have begun between the two looks.
            return _read(f"/proc/{pid}/environ")
        time.sleep(_BEGINNING_LOOK_EVERY_S)
    return environment


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 -- as above
        return file.read()


def _stat(pid: int) -> _Stat | None:
    try:
        raw = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name in brackets may hold anything, blanks and brackets included: proc(5), /proc/pid/stat.
    fields = raw[raw.rfind(b")") + 2 :].split()
    return _Stat(state=fields[0].decode(), group=int(fields[2]), started=f"{_BOOT}/{int(fields[19])}")


def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return "boot"


_BOOT = _boot_id()
"""Start times count from boot, so they may repeat after one."""
