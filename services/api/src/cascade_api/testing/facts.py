"""Facts that other services would have written, for tests to begin with."""

from collections.abc import Sequence
from datetime import UTC, datetime

from cascade_core.facts import AnyFact
from cascade_core.runs.facts import PlannedSim, RunEntry, RunRequested
from cascade_core.traces.facts import (
    KernelLaunch,
    TraceDiscovered,
    TraceObserved,
    TraceReady,
    TraceUploadCompleted,
)
from pydantic import JsonValue


def ready_trace(
    trace_id: str,
    *,
    arch: str = "sm_86",
    kernels: int = 2,
    at: datetime | None = None,
    metadata: dict[str, JsonValue] | None = None,
    sample: bool = False,
) -> list[AnyFact]:
    """The facts that make a trace ready."""
    at = at or datetime.now(UTC)
    launches = [
        KernelLaunch(
            kernel_id=number, name=f"_Z{number}k", grid=(number, 1, 1), block=(32, 1, 1), instructions=100
        )
        for number in range(1, kernels + 1)
    ]
    return [
        TraceDiscovered(trace_id=trace_id, occurred_at=at, sample=sample),
        TraceObserved(
            trace_id=trace_id,
            occurred_at=at,
            kernel_count=kernels,
            size_bytes=1000,
            metadata={"trace_gpu_arch": arch} | (metadata or {}),
        ),
        TraceUploadCompleted(trace_id=trace_id, occurred_at=at),
        TraceReady(
            trace_id=trace_id, occurred_at=at, kernel_count=kernels, size_bytes=1000, kernels=launches
        ),
    ]


def requested_run(
    run_id: str,
    trace_id: str,
    *,
    sims: Sequence[str],
    config: str = "SM86_RTX3070",
    clock_mhz: float = 1132.0,
    at: datetime | None = None,
) -> RunRequested:
    """The fact that creates a run with sims of these ids."""
    return RunRequested(
        run_id=run_id,
        trace_id=trace_id,
        occurred_at=at or datetime.now(UTC),
        entries=[RunEntry(gpu_config=config, count=len(sims))],
        sims=[
            PlannedSim(sim_id=sim, gpu_config=config, replica=number, arch="sm_86", core_clock_mhz=clock_mhz)
            for number, sim in enumerate(sims)
        ],
        kernels_total=2,
    )
