"""What a GPU's name and compute capability say about architecture and simulator configuration. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

_CONFIGS: tuple[tuple[str, str], ...] = (
    # (part of the name that nvidia-smi gives, Accel-Sim's configuration directory), first match wins
    ("H200", "SM90_H200"),
    ("H100", "SM90_H100"),
    ("A100", "SM80_A100"),
    ("RTX 3070", "SM86_RTX3070"),
    ("RTX 2060", "SM75_RTX2060"),
    ("V100", "SM7_QV100"),
)


def gpu_arch(compute_capability: tuple[int, int]) -> str:
    """Return the architecture as traces name it: (9, 0) is `sm_90`."""
    return f"sm_{compute_capability[0]}{compute_capability[1]}"


def sim_config(gpu_name: str) -> str | None:
    """Return the simulator configuration of this GPU, or None if Accel-Sim ships none for it."""
    return next((config for part, config in _CONFIGS if part in gpu_name), None)


def parse_clocks(text: str) -> tuple[float | None, float | None]:
    """Return (median SM clock, median memory clock) from lines of `clocks.sm, clocks.mem`. [MHz]

    Lines that hold no two numbers (`[N/A]`, a cut last line) are passed over; without any, both are None.
    """
    samples = [
        match for line in text.split("\n") if (match := re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", line))
    ]
    return _median([int(m[1]) for m in samples]), _median([int(m[2]) for m in samples])


def parse_gpu(text: str) -> tuple[str, tuple[int, int]] | None:
    """Return (name, compute capability) from a line of `name, compute_cap`, or None if there is none.

    The first GPU wins; names may hold commas.
    """
    match = re.match(r"\s*(.+?)\s*,\s*(\d+)\.(\d+)\s*(?:\n|$)", text)
    return None if match is None else (match[1], (int(match[2]), int(match[3])))


def _median(values: Sequence[int]) -> float | None:
    if not values:
        return None
    middle = median(values)
    return int(middle) if middle == int(middle) else middle
