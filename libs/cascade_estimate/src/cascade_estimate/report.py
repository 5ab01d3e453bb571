"""Writes docs/estimate-accuracy.md and its scatter plot from a measurement.

`python -m cascade_estimate.report <data folder> <docs folder>` measures and writes both. The text around the
figures is `report.md` beside this module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from cascade_estimate.bench import Bench, BenchRow, SequenceRow, measure, summary
from cascade_estimate.bench_logs import LoggedKernel
from cascade_estimate.errors import EstimateError
from cascade_estimate.scatter import scatter_svg
from cascade_estimate.statistics import mean

PAGE = "estimate-accuracy.md"
PLOT = "estimate-accuracy.svg"


def write_report(bench: Bench, docs: Path) -> None:
    """Write page and plot into `docs`."""
    docs.mkdir(parents=True, exist_ok=True)
    (docs / PAGE).write_text(report(bench), encoding="utf-8")
    (docs / PLOT).write_text(scatter_svg(bench.rows), encoding="utf-8")


def report(bench: Bench) -> str:
    """The page."""
    figures = [
        _bars(bench),
        f"![Estimated over simulated cycles without launch latency, one dot a kernel and config]({PLOT})",
        "## By family\n\n" + _accuracy_table(bench.rows, lambda row: row.family, "family"),
        "## By config\n\n" + _accuracy_table(bench.rows, lambda row: row.config, "config"),
        _sequences(bench.sequences),
        _logged(bench.logged),
    ]
    frame = Path(__file__).with_name("report.md").read_text(encoding="utf-8")
    return frame.replace("<!-- figures -->", "\n\n".join(part.strip("\n") for part in figures))


def _bars(bench: Bench) -> str:
    figures = summary(bench)
    overall, order = _floats(figures["overall"]), _floats(figures["config_rank_correlation"])
    intervals, speed = _floats(figures["intervals"]), _floats(figures["speed"])
    rows = [
        ("mean absolute error of all cycles", "15 %", _percent(overall["mape"]), overall["mape"] <= 0.15),
        (
            "the same without launch latency",
            "25 %",
            _percent(overall["net_mape"]),
            overall["net_mape"] <= 0.25,
        ),
        ("order of configs by time (Spearman)", "0.95", f"{order['time']:.3f}", order["time"] >= 0.95),
        ("order of configs by cycles (Spearman)", "0.95", f"{order['cycles']:.3f}", order["cycles"] >= 0.95),
        (
            "80 % intervals cover, families left out",
            "75 to 85 %",
            _percent(intervals["left_out_coverage"]),
            0.75 <= intervals["left_out_coverage"] <= 0.85,
        ),
        (
            "less CPU than Accel-Sim, traces above 1 MB",
            "1000 times",
            f"{speed['cpu_ratio_above_1mb']:.0f} times",
            speed["cpu_ratio_above_1mb"] >= 1000,
        ),
        ("peak memory", "256 MB", f"{speed['peak_rss_mb']:.0f} MB", speed["peak_rss_mb"] <= 256),
    ]
    lines = ["| measure | bar | found | met |", "|---|---|---|---|"]
    lines += [f"| {name} | {bar} | {found} | {'yes' if met else 'no'} |" for name, bar, found, met in rows]
    text = (
        f"{len(bench.rows)} rows; model version {figures['model_version']}. Median error "
        f"{_percent(overall['median'])}, worst {_percent(overall['worst'])}; without launch latency "
        f"{_percent(overall['net_median'])} and {_percent(overall['net_worst'])}, mean signed error "
        f"{_percent(overall['net_bias'])}. Order of configs over {order['kernels']:.0f} kernels on three configs or "
        f"more; by cycles it is {order['cycles_near_ties']:.3f} where configs whose simulated cycles are within a "
        f"thousandth carry no order. Where they are a twentieth or more apart, right minus wrong order is "
        f"{order['pairs_apart']:.2f}. Intervals as shipped cover {_percent(intervals['shipped_coverage'])}, median "
        f"width {_percent(intervals['median_relative_width'])} of the cycles.\n\n"
        f"Speed: {speed['warp_instructions_per_cpu_s'] / 1e6:.1f} million warp instructions a CPU-second, Accel-Sim "
        f"{speed['simulator_warp_instructions_per_cpu_s']:.0f}, reading included; the ratio is over the sum of all "
        f"{speed['rows_above_1mb']:.0f} rows above 1 MB, its median {speed['cpu_ratio_above_1mb_median']:.0f}. About a "
        f"third of the time is decompression. CPU times were taken on a machine that did other work too."
    )
    return "## Bars\n\n" + "\n".join(lines) + "\n\n" + text


def _accuracy_table(rows: Iterable[BenchRow], key: Callable[[BenchRow], str], title: str) -> str:
    groups: dict[str, list[BenchRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    lines = [
        f"| {title} | rows | MAPE | worst | MAPE net | worst net | signed net | in the interval |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, part in sorted(groups.items()):
        errors, net = [abs(row.error) for row in part], [abs(row.net_error) for row in part]
        inside = mean([float(row.low <= row.simulated <= row.high) for row in part])
        cells = (
            mean(errors),
            max(errors),
            mean(net),
            max(net),
            mean([row.net_error for row in part]),
            inside,
        )
        lines.append(f"| {name} | {len(part)} | " + " | ".join(_percent(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _sequences(rows: Iterable[SequenceRow]) -> str:
    lines = [
        "## Kernels after each other",
        "",
        "L2 keeps what the kernel before it touched. `cold` is the same kernel alone.",
        "",
        "| sequence | kernel | cold | simulated | estimated | error |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        error = row.estimated / row.simulated - 1.0
        name = f"{row.sequence} {row.position}"
        lines.append(
            f"| {name} | {row.kernel} | {row.cold} | {row.simulated} | {row.estimated} | {_percent(error)} |"
        )
    return "\n".join(lines)


def _logged(kernels: Iterable[LoggedKernel]) -> str:
    groups: dict[str, list[LoggedKernel]] = {}
    for kernel in kernels:
        groups.setdefault(kernel.log, []).append(kernel)
    lines = [
        "## Other logs",
        "",
        "Whole runs of the simulator on other traces, which were looked at only after the model stood.",
        "",
        "| log | kernels | MAPE | MAPE net | worst net | in the interval |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    everything = [kernel for part in groups.values() for kernel in part]
    for name, part in [*groups.items(), ("all", everything)]:
        net = [abs(kernel.net_error) for kernel in part]
        inside = mean([float(kernel.low <= kernel.simulated <= kernel.high) for kernel in part])
        cells = (mean([abs(kernel.error) for kernel in part]), mean(net), max(net, default=0.0), inside)
        lines.append(f"| {name} | {len(part)} | " + " | ".join(_percent(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f} %"


def _floats(value: object) -> dict[str, float]:
    assert isinstance(value, dict)
    return {str(key): float(item) for key, item in value.items() if isinstance(item, (int, float))}


def _main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m cascade_estimate.report <data folder> <docs folder>\n")
        return 2
    try:
        write_report(measure(Path(arguments[0])), Path(arguments[1]))
    except EstimateError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
