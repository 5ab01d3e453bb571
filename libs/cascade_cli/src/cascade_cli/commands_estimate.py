"""`cascade estimate`: what Accel-Sim would say of a trace, in seconds, with an interval for how wrong it may be."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cascade_estimate import GpuSpec, KernelEstimate


def estimate(
    trace: Annotated[Path, typer.Argument(help="A trace folder, or its kernelslist.g.")],
    config: Annotated[list[str], typer.Option("--config", "-c", help="GPU config by name; may be repeated.")],
    accelsim_dir: Annotated[
        Path | None,
        typer.Option(help="Accel-Sim directory with the configs.", show_default="the bundled ones"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Estimate a trace's kernels on GPU configs. Every number is an estimate; no simulator runs."""
    from cascade_estimate import MODEL_VERSION, EstimateError
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from cascade_cli import bundled
    from cascade_cli.output import fail, print_json, stderr

    directory = accelsim_dir or bundled.CONFIGS
    results: dict[str, list[KernelEstimate]] = {}
    clocks: dict[str, float] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("kernels"),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=stderr, disable=as_json) as progress:
            for name in dict.fromkeys(config):
                spec, clocks[name] = _spec(directory, name)
                results[name] = _estimates(trace, spec, progress, name)
    except (EstimateError, OSError) as error:
        fail(str(error))
    if as_json:
        print_json({"engine": f"cascade-estimate {MODEL_VERSION}", "configs": _as_json(results, clocks)})
    else:
        _show(results, clocks)


def _spec(directory: Path, name: str) -> "tuple[GpuSpec, float]":
    from cascade_accelsim.configs_io import read_configs
    from cascade_estimate import GpuSpec

    from cascade_cli.output import fail

    known = read_configs(directory).by_name()
    if name not in known:
        fail(f"there is no GPU config {name!r} in {directory}", f"choose one of {', '.join(sorted(known))}")
    root = directory / "gpu-simulator"
    text = (root / "gpgpu-sim" / "configs" / "tested-cfgs" / name / "gpgpusim.config").read_text("latin-1")
    trace_config = root / "configs" / "tested-cfgs" / name / "trace.config"
    extra = trace_config.read_text("latin-1") if trace_config.is_file() else ""
    return GpuSpec.from_config(text, extra), known[name].core_clock_mhz


def _estimates(trace: Path, spec: "GpuSpec", progress: Any, name: str) -> "list[KernelEstimate]":
    from cascade_estimate import estimate_trace

    bar = progress.add_task(name, total=None)
    return estimate_trace(trace, spec, lambda at: progress.update(bar, completed=at.done, total=at.total))


def _as_json(results: "dict[str, list[KernelEstimate]]", clocks: dict[str, float]) -> dict[str, Any]:
    return {
        name: {
            "core_clock_mhz": clocks[name],
            "total_cycles": sum(kernel.cycles for kernel in kernels),
            "total_ns": sum(kernel.cycles for kernel in kernels) / clocks[name] * 1000,
            "kernels": [
                {
                    "kernel_name": kernel.header.name,
                    "source": kernel.source,
                    "estimated_cycles": kernel.cycles,
                    "low_cycles": kernel.low,
                    "high_cycles": kernel.high,
                    "estimated_ns": kernel.cycles / clocks[name] * 1000,
                    "bottleneck": kernel.bottleneck,
                    "terms": kernel.terms,
                    "instructions": kernel.instructions,
                    "notes": list(kernel.notes),
                }
                for kernel in kernels
            ],
        }
        for name, kernels in results.items()
    }


def _show(results: "dict[str, list[KernelEstimate]]", clocks: dict[str, float]) -> None:
    from cascade_accelsim.demangle import readable_name
    from rich.table import Table

    from cascade_cli.output import console, duration

    for name, kernels in results.items():
        table = Table(title=f"{name} · estimated, 80 % intervals")
        for heading in ("#", "kernel", "estimated", "interval", "cycles", "bottleneck"):
            table.add_column(heading, justify="left" if heading in ("kernel", "bottleneck") else "right")
        for number, kernel in enumerate(kernels, 1):
            table.add_row(
                str(number),
                readable_name(kernel.header.name),
                duration(kernel.cycles / clocks[name] * 1000),
                f"{duration(kernel.low / clocks[name] * 1000)} to {duration(kernel.high / clocks[name] * 1000)}",
                f"{kernel.cycles:,}",
                kernel.bottleneck,
            )
        console.print(table)
        total = sum(kernel.cycles for kernel in kernels)
        console.print(f"{name}: {duration(total / clocks[name] * 1000)} estimated in all, {total:,} cycles")
        for note in sorted({note for kernel in kernels for note in kernel.notes}):
            console.print(f"  note: {note}", style="yellow")
