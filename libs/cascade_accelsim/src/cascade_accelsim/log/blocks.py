"""What a log is read into: one `KernelBlock` a finished kernel, and the `Progress` of the whole run."""

import math
from dataclasses import dataclass
from typing import TypeAlias

Stats: TypeAlias = dict[str, float | str]
"""Every pair of one block. Finite numbers are floats, everything else is the text as printed: strict JSON always."""


@dataclass(frozen=True, slots=True)
class KernelBlock:
    """One statistics block, printed each time a kernel finishes (or a limit cuts one off)."""

    index: int
    """0-based order of completion within the log, without gaps."""
    kernel_name: str
    """As printed. With concurrent kernels all names that started since the previous block, or nothing at all."""
    kernel_launch_uid: int | None
    """As printed; None when the line names none or several."""
    finished_uid: int | None
    """The kernel that finished: from `Destroy streams for kernel N`, else the only uid of the block."""
    finished_name: str | None
    """That kernel's name, from its launch line."""
    gpu_sim_cycle: int | None
    """Core cycles since the previous block. [cycle]"""
    gpu_sim_insn: int | None
    """Thread instructions since the previous block. [instruction]"""
    gpu_ipc: float | None
    since_last_completion: bool
    """Kernels overlapped: `gpu_sim_cycle` is the time since the last completion and not this kernel's duration."""
    partial: bool
    """A limit cut this kernel off. Only `parse_log` sets it: while reading on, see `Progress.partial_kernel`."""
    complete: bool
    """The block was printed to its end, so that `stats` holds everything."""
    stats: Stats


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the run stands after the lines read so far. Totals are those of the last finished block that had them."""

    kernels_done: int = 0
    """Blocks finished so far, a partial one included."""
    partial_kernel: int | None = None
    """Index of the block that a limit cut off: it looks like any other, the break line comes after it."""
    current_kernel: str | None = None
    """The name on the last `launching kernel name:` line."""
    gpu_tot_sim_cycle: float | None = None
    gpu_tot_sim_insn: float | None = None
    gpu_tot_ipc: float | None = None
    sim_rate_ips: float | None = None
    """Simulated thread instructions a second of wall time: the inst/sec line, not the cycle/sec one. [1/s]"""
    core_clock_hz: float | None = None
    """The clock the run really used, from its `clock freqs` line. [Hz]"""
    engine: str | None = None
    """Value of an `engine = ...` line: who wrote this log, when it was not Accel-Sim."""
    saw_exit: bool = False
    break_line: str | None = None
    """The line that says a cycle, instruction or block limit was reached."""
    fault_line: str | None = None
    """The last line on which the simulator itself reports an error."""
    last_line: str | None = None
    """The last line with text on it, cut to `MAX_LINE_CHARS`."""
    lines: int = 0
    """Lines read so far."""

    @property
    def kernels_finished(self) -> int:
        """Blocks of kernels that ran to their end. A limit's partial block is not one."""
        return self.kernels_done - (self.partial_kernel is not None)


def sim_time_ns(gpu_sim_cycle: int | None, core_clock_mhz: float) -> float | None:
    """Simulated time of a kernel: cycles / MHz * 1000. [ns]

    None without cycles or without a usable clock (0 when the config is gone).
    spec: reading-results, simulated time per kernel.
    """
    if gpu_sim_cycle is None or not (core_clock_mhz > 0 and math.isfinite(core_clock_mhz)):
        return None
    return gpu_sim_cycle / core_clock_mhz * 1000
