"""Kernels that a sim finished. Written by the parser."""

from typing import Literal

from pydantic import Field

from cascade_core.sims.facts import SimFact


class KernelFinished(SimFact):
    """One per-kernel statistics block of the simulator's output."""

    type: Literal["kernel.finished"] = "kernel.finished"
    index: int = Field(ge=0)
    """Order of completion within the sim, from zero."""
    kernel_name: str
    """As the log has it."""
    kernel_launch_uid: int | None = None
    gpu_sim_cycle: int | None = None
    gpu_sim_insn: int | None = None
    gpu_ipc: float | None = None
    """None where the log holds no finite number."""
    stats: dict[str, float | str] = Field(default_factory=dict)
    """Every `key = value` line of the block."""
    since_last_completion: bool = False
    """True where kernels overlapped: the cycles count from the previous completion and are no duration."""
