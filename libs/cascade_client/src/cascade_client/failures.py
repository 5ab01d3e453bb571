"""Why a sim did not succeed, as far as its output tells. Pure."""

import re
import signal
from collections.abc import Iterable
from typing import Final

from pydantic import BaseModel, ConfigDict

from cascade_client.wire.runs import SimState, SimSummary

_CAUSE: Final = re.compile(
    r"error|abort|assert|fault|exception|unsupported|killed|no such file", re.IGNORECASE
)
"""spec: agents, Procedure 6; with the words that Accel-Sim and shells use besides."""
_NOT_A_CAUSE: Final = re.compile(r"=\s*0(\.0+)?\s*$|^\s*-\w")
"""Counters such as `error_count = 0` and echoed option lines name no cause."""
MOST_CAUSE_LINES: Final = 5


class FailedSim(BaseModel):
    """A sim that did not succeed."""

    model_config = ConfigDict(frozen=True)

    sim_id: str
    gpu_config: str
    replica: int
    state: SimState
    error: str | None
    exit_code: int | None
    signal: str | None
    """The signal that the exit code stands for, such as `SIGABRT`."""
    cause_lines: list[str]
    """Lines of its output that name a cause; empty where none does."""
    last_kernel: str | None
    kernels_done: int
    kernels_total: int


def failed_sim(sim: SimSummary, *, last_kernel: str | None, log_lines: Iterable[str] = ()) -> FailedSim:
    """What is known of a sim that did not succeed. `log_lines` were found in its whole log."""
    lines = [line for line in sim.log_tail if explains(line)] or list(log_lines)
    return FailedSim(
        sim_id=sim.id,
        gpu_config=sim.gpu_config,
        replica=sim.replica,
        state=sim.state,
        error=sim.error,
        exit_code=sim.exit_code,
        signal=signal_of(sim.exit_code),
        cause_lines=lines[-MOST_CAUSE_LINES:],
        last_kernel=last_kernel,
        kernels_done=sim.kernels_done,
        kernels_total=sim.kernels_total,
    )


def explains(line: str) -> bool:
    """Whether a line of output may name a cause."""
    return _CAUSE.search(line) is not None and _NOT_A_CAUSE.search(line) is None


def has_cause(sim: SimSummary) -> bool:
    """Whether the sim's own summary says why it ended."""
    return any(map(explains, sim.log_tail))


def signal_of(exit_code: int | None) -> str | None:
    """The signal behind an exit code: 134 and -6 are SIGABRT. None where there is none."""
    if exit_code is None:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128
    try:
        return signal.Signals(number).name if 0 < number < 65 else None
    except ValueError:
        return None
