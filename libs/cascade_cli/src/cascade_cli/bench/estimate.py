"""`cascade bench estimate`: speed and error of the analytical estimate, beside a bare unpacking of the same traces."""

import lzma
import time
from pathlib import Path
from typing import Any

from cascade_estimate import bench_estimate
from rich.progress import Progress

from cascade_cli.bench.result import BenchResult, machine
from cascade_cli.output import stderr


def measure(data: Path, *, quiet: bool) -> BenchResult:
    """Estimate every kernel with known cycles. Raises EstimateError, OSError."""
    started, started_cpu = time.monotonic(), time.process_time()
    with Progress(console=stderr, disable=quiet) as progress:
        bar = progress.add_task("kernels", total=None)
        found: dict[str, Any] = bench_estimate(
            data, lambda done, total: progress.update(bar, completed=done, total=total)
        )
    cpu_s, wall_s = time.process_time() - started_cpu, time.monotonic() - started
    rows = found.pop("rows")
    found.pop("sequences", None)
    speed = found["speed"]
    return BenchResult(
        bench="estimate",
        figure=speed["warp_instructions_per_cpu_s"],
        unit="warp instructions/CPU-s",
        limit=speed["warp_instructions_per_cpu_s"] * cpu_s / _unpack_cpu_s(data, rows),
        limit_what="a bare unpacking of the same traces, as often as they were read",
        cpu_s=cpu_s,
        wall_s=wall_s,
        peak_rss_bytes=int(speed["peak_rss_mb"] * (1 << 20)),
        detail={
            "mape_percent": round(100 * found["overall"]["mape"], 2),
            "net_mape_percent": round(100 * found["overall"]["net_mape"], 2),
            **found,
            "machine": machine(),
        },
    )


def _unpack_cpu_s(data: Path, rows: list[dict[str, Any]]) -> float:
    """CPU seconds to unpack each row's trace once."""
    cost: dict[str, float] = {}
    for path in (data / "traces").rglob("*.xz"):
        started = time.process_time()
        with lzma.open(path) as source:
            while source.read(1 << 20):
                pass
        cost[path.name.split(".traceg", 1)[0]] = time.process_time() - started
    return sum(cost.get(row["kernel"], 0.0) for row in rows) or 1e-9
