"""Real time against simulated time, kernel by kernel. Pure."""

from collections.abc import Mapping, Sequence
from statistics import median

from cascade_core.runs.facts import RunEntry
from cascade_core.traces.facts import RealKernel

from cascade_api.read_models.queries import KernelTime
from cascade_api.wire.results import Comparison, ComparisonRow


def comparison(
    entries: Sequence[RunEntry],
    config_of_sim: Mapping[str, str],
    times: Sequence[KernelTime],
    real: Sequence[RealKernel] | None,
) -> Comparison:
    """One row per kernel position. spec: reading-results, real against simulated.

    times: by kernel, then by sim in run order. A config without a finite time at a position has None there: a sim
    that simulated nothing contributes no zero to a median.
    """
    configs = list(dict.fromkeys(entry.gpu_config for entry in entries))
    values: dict[int, dict[str, list[float]]] = {}
    names: dict[int, str] = {}
    for time in times:
        names.setdefault(time.kernel_index, time.kernel_name)
        row = values.setdefault(time.kernel_index, {})
        if time.sim_time_ns is not None:
            row.setdefault(config_of_sim[time.sim_id], []).append(time.sim_time_ns)
    measured = sorted(real or (), key=lambda kernel: kernel.kernel_id)
    count = max(len(measured), max(values, default=-1) + 1)
    return Comparison(
        has_real_timing=real is not None,
        configs=configs,
        rows=[
            ComparisonRow(
                kernel_index=index,
                kernel_name=measured[index].kernel_name if index < len(measured) else names.get(index, ""),
                real_ns=measured[index].duration_ns if index < len(measured) else None,
                sim_ns={config: _median(values.get(index, {}).get(config)) for config in configs},
            )
            for index in range(count)
        ],
    )


def _median(values: list[float] | None) -> float | None:
    return median(values) if values else None
