"""`cascade bench`: every figure with its limit, as text or as one JSON object."""

from pathlib import Path
from typing import Annotated

import typer

bench = typer.Typer(
    help="Measure Cascade on this machine, each figure beside its limit.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@bench.command()
def pipeline(
    lines: Annotated[int, typer.Option(help="Log lines to send in all.", min=200)] = 1_000_000,
    sims: Annotated[int, typer.Option(help="Sims that send them.", min=1, max=4096)] = 32,
    as_json: AsJson = False,
) -> None:
    """Log lines a second, from HTTP to the read model."""
    import asyncio

    from cascade_cli.bench.pipeline import bench_pipeline

    asyncio.run(bench_pipeline(lines=lines, sims=sims)).show(as_json=as_json)


@bench.command()
def sims(
    count: Annotated[int, typer.Option("--sims", "-n", help="Live sims.", min=1, max=4096)] = 1000,
    seconds: Annotated[float, typer.Option(help="How long.", min=5)] = 30.0,
    as_json: AsJson = False,
) -> None:
    """N live sims at their real pace: heartbeat and line-to-browser latency."""
    import asyncio

    from cascade_cli.bench.sims import bench_sims

    asyncio.run(bench_sims(count=count, seconds=seconds)).show(as_json=as_json)


@bench.command()
def rebuild(
    facts: Annotated[int, typer.Option(help="Facts in the log.", min=1000)] = 100_000, as_json: AsJson = False
) -> None:
    """Facts a second when the read models are rebuilt."""
    from cascade_cli.bench.rebuild import run

    run(facts).show(as_json=as_json)


@bench.command()
def parse(
    file: Annotated[Path, typer.Argument(help="An Accel-Sim log, .gz accepted.")], as_json: AsJson = False
) -> None:
    """MB of log a CPU-second, with all keys of every kernel."""
    from cascade_accelsim.log.bench import bench_parse

    from cascade_cli.bench.result import BenchResult, machine
    from cascade_cli.output import fail

    try:
        found = bench_parse(file)
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}", "name an Accel-Sim log")
    BenchResult(
        bench="parse",
        figure=found.mb_per_cpu_s,
        unit="MB/CPU-s",
        limit=found.bytes / found.read_cpu_s / 1e6 if found.read_cpu_s else 0.0,
        limit_what="a bare read (for .gz, unpacking) of the same file",
        cpu_s=found.cpu_s,
        wall_s=found.wall_s,
        peak_rss_bytes=found.peak_rss_bytes,
        detail={
            "bytes": found.bytes,
            "lines": found.lines,
            "kernels": found.kernels,
            "keys": found.keys,
            "machine": machine(),
        },
    ).show(as_json=as_json)


@bench.command()
def scheduler(
    requests: Annotated[int, typer.Option(help="Requests of 512/128 tokens.", min=1, max=1_000_000)] = 10_000,
    rate: Annotated[float, typer.Option(help="Arrivals a second; 0 for all at once.", min=0)] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Requests a CPU-second of the serving scheduler, full answer included."""
    from cascade_requestsim.bench import bench_scheduler

    from cascade_cli.bench.result import BenchResult, machine

    found = bench_scheduler(requests, rate)
    BenchResult(
        bench="scheduler",
        figure=found.requests_per_cpu_s,
        unit="requests/CPU-s",
        limit=found.limit_requests_per_cpu_s,
        limit_what=found.limit,
        cpu_s=found.cpu_s,
        wall_s=found.wall_s,
        peak_rss_bytes=found.peak_rss_bytes,
        detail={
            "requests": found.requests,
            "rate_rps": found.rate_rps,
            "steps": found.steps,
            "schedule_cpu_s": found.schedule_cpu_s,
            "output_tokens": found.output_tokens_total,
            "response_bytes": found.response_bytes,
            "machine": machine(),
        },
    ).show(as_json=as_json)


@bench.command()
def estimate(
    data: Annotated[
        Path, typer.Argument(help="Ground truth: cycles.csv, sequences.csv, cfgs/, traces/.")
    ] = Path("../shared/estimate"),
    as_json: AsJson = False,
) -> None:
    """How wrong the analytical estimate is, and how fast, on kernels with known cycles."""
    from cascade_estimate import EstimateError

    from cascade_cli.bench.estimate import measure
    from cascade_cli.output import fail

    try:
        result = measure(data, quiet=as_json)
    except (EstimateError, OSError) as error:
        fail(str(error), "name a folder with cycles.csv")
    result.show(as_json=as_json)
