"""What the simulator's output says about its run: complete or not, why not, and which kernels it finished.

Exit code 0 alone proves nothing (DESIGN 8.1). The one place where the worker meets the log's text.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from cascade_worker.steps import FinishedKernel

_CLOCKS = re.compile(r"clock freqs: (?P<core>[0-9.]+):")


class LogReading:
    """Reads a log line by line; one instance per sim."""

    def __init__(self) -> None:
        self._finished = 0
        self._ended = False
        self._why: str | None = None
        self._core_clock_mhz: float | None = None

    def read(self, lines: Sequence[str]) -> None:
        """Take the next lines."""
        for line in lines:
            if line.startswith("gpgpu_silicon_slowdown"):
                self._finished += 1
            elif "*** exit detected ***" in line:
                self._ended = True
            elif (
                "** break due to reaching" in line
                or line.startswith("unsupported binary version")
                or "deadlock detected" in line
            ):
                self._why = line.strip()
            elif clocks := _CLOCKS.search(line):
                self._core_clock_mhz = float(clocks["core"]) / 1e6

    def close(self) -> None:
        """The log is complete."""

    def problem(self, *, exit_code: int, expected_kernels: int | None, stderr_tail: str) -> str | None:
        """Why the run failed, or None."""
        if exit_code != 0:
            why = self._why or stderr_tail.strip() or "it printed no reason"
            return f"the simulator exited with {exit_code}: {why}"
        if self._why is not None:
            return self._why
        if not self._ended:
            return "the log lacks its normal end"
        if expected_kernels is not None and self._finished < expected_kernels:
            return f"{self._finished} of {expected_kernels} kernels"
        return None

    def finished_kernels(self) -> list[FinishedKernel]:
        """The finished kernels, in order of completion."""
        return []

    def core_clock_mhz(self) -> float | None:
        """The core clock that the simulator says it used. [MHz]"""
        return self._core_clock_mhz


def count_kernels(kernels_list: Path) -> int:
    """How many kernels a kernelslist.g asks for."""
    text = kernels_list.read_bytes()
    return sum(line.startswith(b"kernel") for line in text.split(b"\n"))


def read_core_clock_mhz(config: Path) -> float | None:
    """The core clock of a gpgpusim.config. [MHz]"""
    found = re.search(
        r"^-gpgpu_clock_domains\s+([0-9.]+)", config.read_text("utf-8", "replace"), re.MULTILINE
    )
    return float(found[1]) if found else None
