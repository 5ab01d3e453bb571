"""Accuracy, interval coverage and speed against kernels whose simulated cycles are known.

The data is a folder with `cycles.csv` (one row per kernel and config), `sequences.csv` (kernels run one
after the other) and `traces/<arch>/<kernel_id>.traceg.xz`; its configs lie in `cfgs/` or in a `tested-cfgs`
folder beside it.
"""

from __future__ import annotations

import csv
import resource
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log
from pathlib import Path

from cascade_estimate.bench_logs import LoggedKernel, logged_kernels
from cascade_estimate.config import GpuSpec
from cascade_estimate.errors import EstimateError
from cascade_estimate.estimate import MODEL_VERSION, estimate_kernel, l2_after
from cascade_estimate.intervals import HIGH_QUANTILE, LOW_QUANTILE
from cascade_estimate.l2state import WarmL2
from cascade_estimate.statistics import mean, quantile, rank_correlation, tied_order
from cascade_estimate.trace import read_trace

_BIG_TRACE_BYTES = 1_000_000
_APART = 0.05
_TIED = (
    0.001  # relative difference of cycles up to which two configs have no order that an estimate could meet
)
_LEAST_CONFIGS = 3  # kernels on fewer configs say little about the order of configs


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One kernel on one config: simulated and estimated core cycles, launch latency included in both."""

    kernel: str
    family: str
    config: str
    simulated: int
    estimated: int
    low: int
    high: int
    launch: int
    scale: float
    bottleneck: str
    trace_bytes: int
    warp_instructions: int
    simulator_cpu_s: float
    estimate_cpu_s: float
    core_mhz: float

    @property
    def error(self) -> float:
        """Relative error of all cycles."""
        return self.estimated / self.simulated - 1.0

    @property
    def net_simulated(self) -> int:
        """Simulated cycles without launch latency, at least 1."""
        return max(self.simulated - self.launch, 1)

    @property
    def net_estimated(self) -> int:
        """Estimated cycles without launch latency, at least 1."""
        return max(self.estimated - self.launch, 1)

    @property
    def net_error(self) -> float:
        """Relative error with the launch latency taken out of both sides."""
        return self.net_estimated / self.net_simulated - 1.0

    @property
    def surprise(self) -> float:
        """Logarithmic net error in units of the expected size of the error."""
        return log(self.net_simulated / self.net_estimated) / self.scale


@dataclass(frozen=True, slots=True)
class SequenceRow:
    """One kernel of a sequence, which finds in L2 what the kernels before it left."""

    sequence: str
    position: int
    kernel: str
    simulated: int
    cold: int
    estimated: int


@dataclass(frozen=True, slots=True)
class Bench:
    """All measured rows."""

    rows: tuple[BenchRow, ...]
    sequences: tuple[SequenceRow, ...]
    logged: tuple[LoggedKernel, ...]
    peak_rss_bytes: int


def bench_estimate(
    data_dir: str | Path, progress: Callable[[int, int], None] | None = None
) -> dict[str, object]:
    """Measure the estimate on `data_dir`; plain JSON values, the layout of `summary`.

    Raises:
        EstimateError: the data folder lacks a file that its tables name.
    """
    return summary(measure(Path(data_dir), progress))


def measure(data_dir: Path, progress: Callable[[int, int], None] | None = None) -> Bench:
    """Estimate every row of the data."""
    specs: dict[str, GpuSpec] = {}
    table = _table(data_dir / "cycles.csv")
    rows: list[BenchRow] = []
    for number, row in enumerate(table, 1):
        spec = specs.get(row["config"]) or specs.setdefault(row["config"], _spec(data_dir, row["config"]))
        before = time.process_time()
        trace = read_trace(data_dir / "traces" / row["arch"] / f"{row['kernel_id']}.traceg.xz")
        estimate = estimate_kernel(trace, spec)
        spent = time.process_time() - before
        rows.append(
            BenchRow(
                kernel=row["kernel_id"],
                family=row["family"],
                config=row["config"],
                simulated=int(row["gpu_sim_cycle"]),
                estimated=estimate.cycles,
                low=estimate.low,
                high=estimate.high,
                launch=int(row["launch_latency"]),
                scale=estimate.terms["error_scale"],
                bottleneck=estimate.bottleneck,
                trace_bytes=int(row["trace_bytes"]),
                warp_instructions=int(row["warp_insts"]),
                simulator_cpu_s=float(row["sim_user_s"]),
                estimate_cpu_s=spent,
                core_mhz=spec.core_mhz,
            )
        )
        if progress is not None:
            progress(number, len(table))
    peak = _peak_rss_bytes()  # of the estimate alone: parsing whole logs takes more
    logged = logged_kernels(data_dir.parent / "accelsim", specs)
    return Bench(tuple(rows), tuple(_sequences(data_dir)), tuple(logged), peak)


def summary(bench: Bench) -> dict[str, object]:
    """Figures as plain JSON values.

    Keys: `model_version`, `overall`, `families`, `configs` (each with MAPE, median, worst and rank
    correlation), `config_rank_correlation`, `intervals`, `speed`, `sequences`, `other_logs`, `bars`, `rows`.
    """
    rows = bench.rows
    speed = _speed(rows, bench.peak_rss_bytes)
    order = config_rank_correlation(rows)
    coverage = left_out_coverage(rows)
    overall = _accuracy(rows)
    return {
        "model_version": MODEL_VERSION,
        "overall": overall,
        "families": {name: _accuracy(part) for name, part in _grouped(rows, lambda row: row.family)},
        "configs": {name: _accuracy(part) for name, part in _grouped(rows, lambda row: row.config)},
        "config_rank_correlation": order,
        "intervals": {
            "target": [0.75, 0.85],
            "left_out_coverage": coverage,
            "shipped_coverage": mean([float(row.low <= row.simulated <= row.high) for row in rows]),
            "median_relative_width": quantile([(row.high - row.low) / row.estimated for row in rows], 0.5),
            "quantiles": [
                quantile([row.surprise for row in rows], 0.1),
                quantile([row.surprise for row in rows], 0.9),
            ],
            "quantiles_shipped": [LOW_QUANTILE, HIGH_QUANTILE],
            "families": {
                name: _family_coverage(rows, name) for name, _ in _grouped(rows, lambda row: row.family)
            },
        },
        "speed": speed,
        "sequences": [
            {
                "sequence": row.sequence,
                "position": row.position,
                "kernel": row.kernel,
                "simulated": row.simulated,
                "cold": row.cold,
                "estimated": row.estimated,
                "error": row.estimated / row.simulated - 1.0,
            }
            for row in bench.sequences
        ],
        "other_logs": {
            "kernels": float(len(bench.logged)),
            "mape": mean([abs(kernel.error) for kernel in bench.logged]),
            "net_mape": mean([abs(kernel.net_error) for kernel in bench.logged]),
            "coverage": mean(
                [float(kernel.low <= kernel.simulated <= kernel.high) for kernel in bench.logged]
            ),
        },
        "bars": {
            "mape_15": overall["mape"] <= 0.15,
            "net_mape_25": overall["net_mape"] <= 0.25,
            "config_rank_correlation_95": (order["cycles"] or 0.0) >= 0.95,
            "config_rank_correlation_95_by_time": (order["time"] or 0.0) >= 0.95,
            "coverage_75_85": 0.75 <= coverage <= 0.85,
            "cpu_ratio_1000": speed["cpu_ratio_above_1mb"] >= 1000.0,
            "memory_256_mb": bench.peak_rss_bytes <= 256 << 20,
        },
        "rows": [
            {
                "kernel": row.kernel,
                "family": row.family,
                "config": row.config,
                "simulated": row.simulated,
                "estimated": row.estimated,
                "low": row.low,
                "high": row.high,
                "launch": row.launch,
                "bottleneck": row.bottleneck,
            }
            for row in rows
        ],
    }


def config_rank_correlation(rows: Iterable[BenchRow]) -> dict[str, float | None]:
    """Do the estimates order the configs as the simulator does? Mean over the kernels on three configs or
    more.

    `cycles` and `time` are Spearman's coefficient of a kernel's configs by cycles and by cycles over the
    core clock. `cycles_near_ties` is `cycles` where configs whose simulated cycles are within a thousandth carry
    no order. `pairs_apart` takes only pairs of configs whose simulated cycles differ by a twentieth or
    more: right minus wrong order over all such pairs.
    """
    by_cycles: list[float] = []
    near_ties: list[float] = []
    by_time: list[float] = []
    right = wrong = 0
    for _, part in _grouped(rows, lambda row: row.kernel):
        for index, one in enumerate(part):
            for other in part[index + 1 :]:
                if abs(one.simulated - other.simulated) >= _APART * max(one.simulated, other.simulated):
                    sign = (one.simulated - other.simulated) * (one.estimated - other.estimated)
                    right += sign > 0
                    wrong += sign < 0
        if len(part) >= _LEAST_CONFIGS:
            simulated, estimated = [row.simulated for row in part], [row.estimated for row in part]
            value = rank_correlation(simulated, estimated)
            relaxed = rank_correlation(tied_order(simulated, estimated, _TIED), estimated)
            timed = rank_correlation(
                [row.simulated / row.core_mhz for row in part], [row.estimated / row.core_mhz for row in part]
            )
            by_cycles += [value] if value is not None else []
            near_ties += [relaxed] if value is not None and relaxed is not None else []
            by_time += [timed] if timed is not None else []
    return {
        "cycles": mean(by_cycles) if by_cycles else None,
        "cycles_near_ties": mean(near_ties) if near_ties else None,
        "time": mean(by_time) if by_time else None,
        "pairs_apart": (right - wrong) / (right + wrong) if right + wrong else None,
        "kernels": float(len(by_cycles)),
    }


def left_out_coverage(rows: tuple[BenchRow, ...]) -> float:
    """Share of rows inside an interval whose quantiles were taken from all other families."""
    weights = [
        (_family_coverage(rows, name), len(part)) for name, part in _grouped(rows, lambda row: row.family)
    ]
    return sum(share * count for share, count in weights) / len(rows) if rows else 0.0


def _family_coverage(rows: tuple[BenchRow, ...], family: str) -> float:
    others = [row.surprise for row in rows if row.family != family]
    low, high = quantile(others, 0.1), quantile(others, 0.9)
    return mean([float(low <= row.surprise <= high) for row in rows if row.family == family])


def _accuracy(rows: Iterable[BenchRow]) -> dict[str, float]:
    rows = list(rows)
    errors = [abs(row.error) for row in rows]
    net = [abs(row.net_error) for row in rows]
    correlation = rank_correlation([row.net_simulated for row in rows], [row.net_estimated for row in rows])
    return {
        "rows": float(len(rows)),
        "mape": mean(errors),
        "median": quantile(errors, 0.5),
        "worst": max(errors),
        "net_mape": mean(net),
        "net_median": quantile(net, 0.5),
        "net_worst": max(net),
        "net_bias": mean([row.net_error for row in rows]),
        "rank_correlation": 1.0 if correlation is None else correlation,
    }


def _speed(rows: tuple[BenchRow, ...], peak_rss_bytes: int) -> dict[str, float]:
    big = [row for row in rows if row.trace_bytes > _BIG_TRACE_BYTES]
    own, theirs = sum(row.estimate_cpu_s for row in big), sum(row.simulator_cpu_s for row in big)
    total = sum(row.estimate_cpu_s for row in rows)
    return {
        "warp_instructions_per_cpu_s": sum(row.warp_instructions for row in rows) / total if total else 0.0,
        "simulator_warp_instructions_per_cpu_s": sum(row.warp_instructions for row in rows)
        / sum(row.simulator_cpu_s for row in rows),
        "rows_above_1mb": float(len(big)),
        "cpu_ratio_above_1mb": theirs / own if own else 0.0,
        "cpu_ratio_above_1mb_median": quantile(
            [row.simulator_cpu_s / row.estimate_cpu_s for row in big], 0.5
        ),
        "peak_rss_mb": peak_rss_bytes / (1 << 20),
    }


def _grouped(rows: Iterable[BenchRow], key: Callable[[BenchRow], str]) -> list[tuple[str, list[BenchRow]]]:
    groups: dict[str, list[BenchRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return sorted(groups.items())


def _sequences(data_dir: Path) -> Iterable[SequenceRow]:
    path = data_dir / "sequences.csv"
    if not path.is_file():
        return
    specs: dict[str, GpuSpec] = {}
    warm = WarmL2()
    for row in _table(path):
        if row["position"] == "1":
            warm = WarmL2()
        spec = specs.get(row["config"]) or specs.setdefault(row["config"], _spec(data_dir, row["config"]))
        trace = read_trace(data_dir / "traces" / row["arch"] / f"{row['kernel_id']}.traceg.xz")
        estimate = estimate_kernel(trace, spec, warm)
        warm = l2_after(trace, warm)
        yield SequenceRow(
            row["seq_id"],
            int(row["position"]),
            row["kernel_id"],
            int(row["gpu_sim_cycle"]),
            int(row["cold_gpu_sim_cycle"]),
            estimate.cycles,
        )


def _table(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise EstimateError(f"{path}: the table of simulated cycles is missing")
    with path.open(newline="", encoding="utf-8") as table:
        return list(csv.DictReader(table))


def _spec(data_dir: Path, config: str) -> GpuSpec:
    for folder in (data_dir / "cfgs", data_dir.parent / "accelsim" / "tested-cfgs"):
        if (folder / config / "gpgpusim.config").is_file():
            texts = [
                (folder / config / name).read_text(encoding="utf-8", errors="replace")
                for name in ("gpgpusim.config", "trace.config")
            ]
            return GpuSpec.from_config(*texts)
    raise EstimateError(f"{config}: no gpgpusim.config in cfgs/ or ../accelsim/tested-cfgs of {data_dir}")


def _peak_rss_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
