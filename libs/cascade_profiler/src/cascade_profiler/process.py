"""Running the tools: one process group a command, output into its log, a limit on its time.

Whatever ends the wait (a limit, an interrupt, an error) ends the whole group, because Nsight and vLLM start
processes of their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from cascade_profiler.commands import Command
from cascade_profiler.errors import CommandFailedError
from cascade_profiler.secrets import without_secrets

LOG_TAIL_LINES = 5
"""[lines] of a failed command's log that its error quotes."""

STOP_GRACE_S = 5.0
"""[s] from SIGTERM to SIGKILL."""


def run(command: Command, environ: Mapping[str, str], *, timeout_s: float) -> None:
    """Run a command to its end.

    Raises CommandFailedError, with the end of the log, if it is not found, exits non-zero or exceeds `timeout_s`.
    """
    with running(command, environ) as process:
        try:
            code = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise CommandFailedError(
                f"{command.argv[0]} ran past its limit of {timeout_s:g} s; its log: {command.log}",
                log=command.log,
            ) from error
    check(command, code)


def check(command: Command, code: int) -> None:
    """Raise CommandFailedError if a finished command's exit code is not 0."""
    if code:
        raise CommandFailedError(
            f"{' '.join(command.argv[:3])} exited with {code}; its log ends with:\n{log_tail(command.log)}",
            log=command.log,
        )


@contextmanager
def running(command: Command, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command and hand its process out; its group is gone when the block is left.

    Raises CommandFailedError if the program is not there.
    """
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with command.log.open("ab") as log:
        try:
            process = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**without_secrets(environ, keep=command.keep_secrets), **command.env},
                start_new_session=True,
            )
        except OSError as error:
            raise CommandFailedError(
                f"cannot start {command.argv[0]!r}: {error.strerror}; install it in the image or give its path",
                log=command.log,
            ) from error
        try:
            yield process
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: SIGTERM, a grace period for the process, SIGKILL.

    Also where it has ended by itself: what it started may still hold the GPU, which the next stage needs.
    """
    _signal_group(process, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=STOP_GRACE_S)
    _signal_group(process, signal.SIGKILL)
    process.wait()


def log_tail(log: Path, lines: int = LOG_TAIL_LINES) -> str:
    """Return the last lines of a log, or a note if there is none."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(text.rstrip("\n").split("\n")[-lines:])


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:  # none of it is left
        return
