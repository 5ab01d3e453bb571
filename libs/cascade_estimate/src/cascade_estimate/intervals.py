"""Error bars: an interval that covers the simulator's cycles four times out of five.

The estimate's error grows with how much of the kernel's time hangs on contention, which the model only
averages: requests of many cores that meet in one line, and load on the crossbar, L2 and DRAM. The widths
below were measured, leaving whole kernel families out (docs/estimate-accuracy.md); they are in the logarithm
of the cycles without launch latency.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

# Quantiles 0.1 and 0.9 of log(simulated / estimated) / difficulty over the measured kernels.
LOW_QUANTILE = -0.61
HIGH_QUANTILE = 1.47
_BASE = 0.01
_LOADED = 0.2
_MEETING = 0.4
_EXTRAPOLATED = 0.05


@dataclass(frozen=True, slots=True)
class Difficulty:
    """What makes an estimate uncertain, each from 0 to 1.

    Attributes:
        loaded: busy time of the most loaded part of the memory system over the kernel's time.
        meeting: share of the L2 accesses in which more cores meet than an MSHR entry merges.
        extrapolated: share of the core's instructions that were not executed by the model.
    """

    loaded: float
    meeting: float
    extrapolated: float

    @property
    def scale(self) -> float:
        """Expected size of the logarithmic error."""
        return (
            _BASE
            + _LOADED * min(self.loaded, 1.0)
            + _MEETING * self.meeting
            + _EXTRAPOLATED * self.extrapolated
        )


def interval(net_cycles: float, difficulty: Difficulty) -> tuple[float, float]:
    """Low and high end around `net_cycles` (without launch latency)."""
    scale = difficulty.scale
    return net_cycles * exp(LOW_QUANTILE * scale), net_cycles * exp(HIGH_QUANTILE * scale)
