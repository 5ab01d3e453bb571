"""Estimates beside what a simulator has already said: rows and totals that sharpen as kernels finish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from cascade_estimate.estimate import MODEL_VERSION, KernelEstimate


@dataclass(frozen=True, slots=True)
class KernelFigure:
    """Cycles of one kernel and where they come from.

    Attributes:
        index: position in the kernel list, from 0.
        name: the kernel's name.
        cycles: core cycles, launch latency included.
        low, high: the interval of an estimate; both equal to `cycles` for a simulated kernel.
        source: who says so.
        bottleneck: in the estimate's words, for a simulated kernel too.
    """

    index: int
    name: str
    cycles: int
    low: int
    high: int
    source: Literal["estimated", "simulated"]
    bottleneck: str


@dataclass(frozen=True, slots=True)
class RunFigures:
    """All kernels of a run on one config, and their sum.

    The total's interval adds the kernels' intervals as if they erred together, which is cautious: kernels of
    one kind do. It narrows to nothing as the last kernel is simulated.
    """

    kernels: tuple[KernelFigure, ...]
    cycles: int
    low: int
    high: int
    simulated: int

    @property
    def source(self) -> Literal["estimated", "simulated"]:
        """Simulated only when every kernel is."""
        return "simulated" if self.simulated == len(self.kernels) else "estimated"


def sharpened(estimates: Sequence[KernelEstimate], simulated_cycles: Mapping[int, int]) -> RunFigures:
    """Replace estimates by simulated cycles where they exist.

    Args:
        estimates: of all kernels in launch order.
        simulated_cycles: gpu_sim_cycle of finished kernels by index from 0; others are ignored.
    """
    kernels: list[KernelFigure] = []
    for index, estimate in enumerate(estimates):
        name, bottleneck = estimate.header.name, estimate.bottleneck
        cycles = simulated_cycles.get(index)
        if cycles is None:
            figure = KernelFigure(
                index, name, estimate.cycles, estimate.low, estimate.high, "estimated", bottleneck
            )
        else:
            figure = KernelFigure(index, name, cycles, cycles, cycles, "simulated", bottleneck)
        kernels.append(figure)
    return RunFigures(
        kernels=tuple(kernels),
        cycles=sum(figure.cycles for figure in kernels),
        low=sum(figure.low for figure in kernels),
        high=sum(figure.high for figure in kernels),
        simulated=sum(figure.source == "simulated" for figure in kernels),
    )


def cache_key(*, trace_sha256: str, config_sha256: str) -> str:
    """Key under which a trace's estimates on a config may be kept: both contents and the model's version."""
    return sha256(f"{MODEL_VERSION}\n{trace_sha256}\n{config_sha256}".encode()).hexdigest()
