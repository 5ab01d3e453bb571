"""Accel-Sim as a child process: its files, its command line, its process group and its end.

Stdout and stderr go straight into files, so that the simulator never waits for the worker, and a fork of it
that outlives it holds no pipe open.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cascade_worker.rundir import LOG_NAME, STDERR_NAME

_SECRETS: Final = frozenset(
    {
        "CASCADE_TOKEN",
        "CASCADE_S3_ACCESS_KEY",
        "CASCADE_S3_SECRET_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
    }
)

# Run by a bare interpreter that then becomes the simulator. It asks the kernel to end the simulator with the
# worker (PR_SET_PDEATHSIG = 1), which not even `kill -9` of the worker can prevent; doing that in a forked
# copy of this process, which has threads, could deadlock. Python ignores two signals that a simulator must
# see.
_GUARD: Final = """
import ctypes, os, signal, sys
prctl = getattr(ctypes.CDLL(None), "prctl", None)
if prctl is not None:
    prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        os._exit(137)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"cannot run {sys.argv[2]}: {error.strerror}", file=sys.stderr)
    sys.exit(126)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccelSimFiles:
    """Where one config's parts lie below an Accel-Sim checkout (spec: simulator, What the image needs)."""

    binary: Path
    gpgpusim_config: Path
    trace_config: Path

    @classmethod
    def below(cls, accelsim_dir: Path, gpu_config: str) -> "AccelSimFiles":
        """The paths for `gpu_config`; nothing is checked."""
        gpu_simulator = accelsim_dir.absolute() / "gpu-simulator"
        return cls(
            binary=gpu_simulator / "bin" / "release" / "accel-sim.out",
            gpgpusim_config=gpu_simulator
            / "gpgpu-sim"
            / "configs"
            / "tested-cfgs"
            / gpu_config
            / "gpgpusim.config",
            trace_config=gpu_simulator / "configs" / "tested-cfgs" / gpu_config / "trace.config",
        )

    @property
    def config_dirs(self) -> tuple[Path, Path]:
        """The two directories whose files belong into the run directory."""
        return self.gpgpusim_config.parent, self.trace_config.parent


def command_line(binary: Path, kernels_list: Path) -> list[str]:
    """Accel-Sim's real arguments; the configs are read from the run directory."""
    return [
        str(binary), "-trace", str(kernels_list), "-config", "gpgpusim.config", "-config", "trace.config",
    ]  # fmt: skip


async def run_simulator(
    command: Sequence[str], *, run_dir: Path, environ: Mapping[str, str], grace_s: float
) -> int:
    """Run `command` in `run_dir` until it ends; return its exit code as a shell shows it (128 + signal).

    Appends stdout to accelsim.log and stderr to accelsim.stderr.log. A cancelled call ends the whole process
    group: SIGTERM, `grace_s` seconds, SIGKILL. Nothing of the group is left running when the call returns.
    [s]
    """
    stderr_path = run_dir / STDERR_NAME
    with (run_dir / LOG_NAME).open("ab") as stdout, stderr_path.open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=run_dir,
            env={name: value for name, value in environ.items() if name not in _SECRETS},
            process_group=0,
        )  # fmt: skip
    try:
        code = await process.wait()
    finally:
        await asyncio.shield(_end_group(process, grace_s=grace_s))
    if stderr_path.stat().st_size == 0:
        stderr_path.unlink()
    return code if code >= 0 else 128 - code


async def _end_group(process: asyncio.subprocess.Process, *, grace_s: float) -> None:
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await process.wait()
    # Also after a normal end: what the simulator forked (`xz`, `cat`) must not outlive it.
    _signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    # PermissionError is what macOS answers for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
