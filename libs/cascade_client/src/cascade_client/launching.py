"""When somebody must be asked before sims start. Pure; the command line and the agents' door share it.

spec: agents, Procedure 3 and Rules.
"""

from collections.abc import Sequence
from typing import Final

from cascade_client.wire.runs import RunEntry

MOST_UNASKED_SIMS: Final = 4
"""More sims than this in one run need a yes to the entries: each costs machine time, and money on a cloud."""


def total_sims(entries: Sequence[RunEntry]) -> int:
    """Sims that the entries become."""
    return sum(entry.count for entry in entries)


def described(entries: Sequence[RunEntry]) -> str:
    """The entries in words."""
    return ", ".join(f"{entry.gpu_config} × {entry.count}" for entry in entries)
