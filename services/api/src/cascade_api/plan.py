"""Decides whether a run may be created, and plans its sims. Pure: ids come in as arguments."""

from collections.abc import Iterator, Mapping, Sequence

from cascade_core.errors import Refused
from cascade_core.runs.facts import PlannedSim, RunEntry
from cascade_core.traces.state import Trace, TraceState

from cascade_api.wire.traces import GpuConfig


def plan_sims(
    trace: Trace,
    entries: Sequence[RunEntry],
    configs: Mapping[str, GpuConfig],
    sim_ids: Iterator[str],
) -> list[PlannedSim]:
    """The sims that `entries` ask for, entry by entry. A replica counts within its entry. spec: types, SimSummary

    Raises Refused: 409 where the trace cannot run, 422 where a config does not fit. spec: runs
    """
    if trace.state is not TraceState.READY:
        raise Refused(f"trace {trace.trace_id} is {trace.state}, not ready", status=409)
    if trace.sample:
        raise Refused(
            f"trace {trace.trace_id} is a sample without instruction traces, so it can't be simulated again",
            status=409,
        )
    for entry in entries:
        config = configs.get(entry.gpu_config)
        if config is None:
            raise Refused(f"unknown gpu_config {entry.gpu_config!r}")
        if config.arch != trace.gpu_arch:
            raise Refused(f"{config.name} is {config.arch} but trace {trace.trace_id} is {trace.gpu_arch}")
    return _fan_out(entries, configs, sim_ids)


def _fan_out(
    entries: Sequence[RunEntry], configs: Mapping[str, GpuConfig], sim_ids: Iterator[str]
) -> list[PlannedSim]:
    return [
        PlannedSim(
            sim_id=next(sim_ids),
            gpu_config=entry.gpu_config,
            replica=replica,
            arch=configs[entry.gpu_config].arch,
            core_clock_mhz=configs[entry.gpu_config].core_clock_mhz,
        )
        for entry in entries
        for replica in range(entry.count)
    ]
