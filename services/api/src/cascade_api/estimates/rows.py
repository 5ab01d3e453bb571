"""What the estimate route answers: each kernel estimated or simulated, and totals that sharpen. Pure."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal

from pydantic import BaseModel, Field


class EstimatedKernel(BaseModel):
    """One kernel as the model sees it. Stored by trace, config and model."""

    kernel_name: str
    cycles: int
    low_cycles: int
    high_cycles: int
    bottleneck: str
    notes: list[str] = Field(default_factory=list)


class EstimateRow(BaseModel):
    """One kernel on one config."""

    kernel_index: int
    kernel_name: str
    source: Literal["estimated", "simulated"] = Field(
        description="`simulated` once a sim of this run has finished the kernel with a simulator; a replayed log "
        "does not count, since it describes another program."
    )
    cycles: float = Field(description="Core cycles, launch latency included.")
    low_cycles: float = Field(description="Lower end of the 80 % interval; equals `cycles` where simulated.")
    high_cycles: float = Field(description="Upper end of the 80 % interval; equals `cycles` where simulated.")
    time_ns: float
    low_ns: float
    high_ns: float
    bottleneck: str | None = Field(description="What bounds the kernel in the model, in words.")


class ConfigEstimate(BaseModel):
    """One config of the run."""

    gpu_config: str
    state: Literal["ready", "computing", "failed"]
    detail: str | None = Field(default=None, description="Why there is no estimate, with the next step.")
    simulated_kernels: int = 0
    estimated_kernels: int = 0
    total_ns: float | None = Field(default=None, description="Sum over all kernels, simulated where known.")
    total_low_ns: float | None = Field(
        default=None, description="Sum of the lower ends: all kernels wrong the same way, so wider than 80 %."
    )
    total_high_ns: float | None = None
    rows: list[EstimateRow] = Field(default_factory=list)


class RunEstimate(BaseModel):
    """Answer of `GET /api/runs/{run_id}/estimate`."""

    run_id: str
    trace_id: str
    engine: str = Field(description="Model and version that made the estimated numbers.")
    configs: list[ConfigEstimate]


def sharpened(
    gpu_config: str,
    kernels: Sequence[EstimatedKernel],
    clock_mhz: float,
    simulated: Mapping[int, Sequence[float]],
) -> ConfigEstimate:
    """Estimates with the kernels that were simulated put in their place.

    simulated: cycles of each finished kernel position, one value a replica.
    """
    rows = [_row(index, kernel, clock_mhz, simulated.get(index, ())) for index, kernel in enumerate(kernels)]
    done = sum(1 for row in rows if row.source == "simulated")
    return ConfigEstimate(
        gpu_config=gpu_config,
        state="ready",
        simulated_kernels=done,
        estimated_kernels=len(rows) - done,
        total_ns=sum(row.time_ns for row in rows),
        total_low_ns=sum(row.low_ns for row in rows),
        total_high_ns=sum(row.high_ns for row in rows),
        rows=rows,
    )


def _row(index: int, kernel: EstimatedKernel, clock_mhz: float, known: Sequence[float]) -> EstimateRow:
    cycles = median(known) if known else float(kernel.cycles)
    low = cycles if known else float(kernel.low_cycles)
    high = cycles if known else float(kernel.high_cycles)
    return EstimateRow(
        kernel_index=index,
        kernel_name=kernel.kernel_name,
        source="simulated" if known else "estimated",
        cycles=cycles,
        low_cycles=low,
        high_cycles=high,
        time_ns=cycles / clock_mhz * 1000,
        low_ns=low / clock_mhz * 1000,
        high_ns=high / clock_mhz * 1000,
        bottleneck=kernel.bottleneck,
    )
