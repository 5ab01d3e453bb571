"""Becomes an embedded server, after making sure that the server cannot outlive the process that wanted it.

Run by path (`python -I -S guard.py <json> <command...>`), never imported by the product: it may hold nothing but the
standard library and starts in about 15 ms. The process id stays the same across the exec, so that whoever started
the guard holds the server's own id.

A script of its own instead of `preexec_fn`: that one runs Python between fork and exec of a process with threads, and
Linux clears the death signal when the user id changes, so the order below matters.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1
_CAP_DAC_READ_SEARCH = 2
_WATCH_INTERVAL_S = 0.25  # only where the kernel has no parent-death signal


def main() -> None:
    """Drop rights, arrange for death with the parent, become the command."""
    options = json.loads(sys.argv[1])
    command = sys.argv[2:]
    parent_pid: int = options["parent_pid"]
    death_signal: int = options["death_signal"]
    if options["uid"] is not None:
        _drop_rights(options["uid"], options["gid"], keep_file_access=options["keep_file_access"])
    if sys.platform == "linux" and not options["watch"]:
        _libc_call("prctl", _PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    else:
        _fork_watcher(parent_pid, death_signal)
    if os.getppid() != parent_pid:  # it died before the kernel was told
        os._exit(1)
    os.execv(command[0], command)  # noqa: S606 - becoming the server is the point


def _drop_rights(uid: int, gid: int, *, keep_file_access: bool) -> None:
    """Stop being root for good. `keep_file_access` leaves the one right to walk directories closed to others.

    Postgres refuses root, but its files may lie below a home directory that only root may enter.
    """
    if keep_file_access:
        _libc_call("prctl", _PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if not keep_file_access:
        return
    for capability in (_CAP_DAC_READ_SEARCH, _CAP_DAC_OVERRIDE):  # the lesser right first; containers drop it
        with contextlib.suppress(OSError):
            _keep_only(capability)
            return


def _keep_only(capability: int) -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    mask = 1 << capability
    sets = (ctypes.c_uint32 * 6)(
        mask, mask, mask, 0, 0, 0
    )  # effective, permitted, inheritable; low then high word
    _libc_call("capset", ctypes.byref(header), ctypes.byref(sets))
    _libc_call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0)


def _libc_call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _fork_watcher(parent_pid: int, death_signal: int) -> None:
    """Leave a small child behind that ends the server when `parent_pid` is gone, and itself with the server."""
    server_pid = os.getpid()
    if os.fork() != 0:
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(3, 256)  # the server's lock must not live on in here
    while os.getppid() == server_pid and _is_alive(parent_pid):
        time.sleep(_WATCH_INTERVAL_S)
    if os.getppid() == server_pid:
        os.kill(server_pid, death_signal)
    os._exit(0)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    main()
