"""Bodies of the instant estimate."""

from typing import Literal

from pydantic import Field

from cascade_client.wire.base import Body


class EstimateRow(Body):
    """One kernel on one config."""

    kernel_index: int = Field(description="Position in the trace, from 0.")
    kernel_name: str = Field(description="Mangled kernel name.")
    source: Literal["estimated", "simulated"] = Field(
        description="`simulated` once a simulator finished the kernel in this run."
    )
    cycles: float = Field(description="Core cycles, launch latency included. [cycles]")
    low_cycles: float = Field(description="Lower end of the 80 % interval. [cycles]")
    high_cycles: float = Field(description="Upper end of the 80 % interval. [cycles]")
    time_ns: float = Field(description="The cycles over the core clock. [ns]")
    low_ns: float = Field(description="Lower end of the 80 % interval. [ns]")
    high_ns: float = Field(description="Upper end of the 80 % interval. [ns]")
    bottleneck: str | None = Field(description="What bounds the kernel in the model, in words.")


class ConfigEstimate(Body):
    """One config of the run."""

    gpu_config: str = Field(description="The config.")
    state: Literal["ready", "computing", "failed"] = Field(description="Ask again while `computing`.")
    detail: str | None = Field(default=None, description="Why there is no estimate, with the next step.")
    simulated_kernels: int = Field(default=0, description="Rows that a simulator made.")
    estimated_kernels: int = Field(default=0, description="Rows that the model made.")
    total_ns: float | None = Field(default=None, description="Sum over all kernels. [ns]")
    total_low_ns: float | None = Field(default=None, description="Sum of the lower ends. [ns]")
    total_high_ns: float | None = Field(default=None, description="Sum of the upper ends. [ns]")
    rows: list[EstimateRow] = Field(default_factory=list, description="One row a kernel.")


class RunEstimate(Body):
    """Every kernel on every config of a run, estimated or simulated."""

    run_id: str = Field(description="The run.")
    trace_id: str = Field(description="Its trace.")
    engine: str = Field(description="Model and version that made the estimated numbers.")
    configs: list[ConfigEstimate] = Field(description="One entry a config.")
