"""What the simulator's output says about its run: complete or not, why not, and which kernels it finished.

Exit code 0 alone proves nothing (DESIGN 8.1). The rules themselves live in `cascade_accelsim`, which the
app's parser uses too; this is the one place where the worker meets the log's text.
"""

from collections.abc import Sequence
from pathlib import Path

from cascade_accelsim.configs import core_clock_mhz, parse_options
from cascade_accelsim.log import KernelBlock, LogParser
from cascade_accelsim.traces import parse_kernels_list
from cascade_accelsim.verdict import judge

from cascade_worker.steps import FinishedKernel


class LogReading:
    """Reads a log chunk by chunk; one instance per sim. Keeps a few words per kernel, none of its
    statistics."""

    def __init__(self) -> None:
        self._parser = LogParser(with_stats=False)
        self._kernels: list[FinishedKernel] = []

    def read(self, lines: Sequence[str]) -> None:
        """Take the next lines."""
        self._kernels += map(_finished, self._parser.feed(lines))

    def close(self) -> None:
        """The log has ended."""
        self._kernels += map(_finished, self._parser.finish())

    def problem(self, *, exit_code: int, expected_kernels: int | None, stderr_tail: str) -> str | None:
        """Why the run was no success, in one line, or None. Call after `close`.

        expected_kernels: kernel lines of the trace's list; None when the log was not made from it.
        """
        return judge(
            self._parser.progress, exit_code=exit_code, expected_kernels=expected_kernels, stderr=stderr_tail
        ).reason

    def finished_kernels(self) -> list[FinishedKernel]:
        """The finished kernels, in order of completion."""
        return list(self._kernels)

    def core_clock_mhz(self) -> float | None:
        """The core clock that the simulator says it used. [MHz]"""
        hertz = self._parser.progress.core_clock_hz
        return None if hertz is None else hertz / 1e6


def count_kernels(kernels_list: Path) -> int:
    """How many kernels a kernelslist.g asks for."""
    return parse_kernels_list(kernels_list.read_text(encoding="utf-8", errors="replace")).kernel_count


def read_core_clock_mhz(config: Path) -> float | None:
    """The core clock of a gpgpusim.config, or None where it states none. [MHz]"""
    return core_clock_mhz(parse_options(config.read_text(encoding="latin-1")))


def _finished(block: KernelBlock) -> FinishedKernel:
    named = block.kernel_launch_uid is not None and bool(block.kernel_name)
    return FinishedKernel(
        uid=block.finished_uid,
        name=block.kernel_name if named else block.finished_name or "",
        # With overlapping kernels the cycles say when the kernel ended, not how long it took.
        cycles=None if block.since_last_completion else block.gpu_sim_cycle,
    )
