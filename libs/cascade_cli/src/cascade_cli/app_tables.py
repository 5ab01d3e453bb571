"""The app's lists as tables. Cells are plain text: names from traces and logs may hold anything."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from cascade_accelsim.demangle import readable_name
from cascade_client.provenance import Statement, TimeWord
from cascade_client.report import Report
from cascade_client.report_text import (
    MISSING,
    accuracy_line,
    duration,
    failed_lines,
    headline,
    kind_of_time,
    no_accuracy,
    number,
    ranking,
    time_headings,
    time_row,
    time_title,
    worst_line,
    worst_title,
)
from cascade_client.wire.results import Comparison
from cascade_client.wire.runs import RunDetail, RunSummary, SimSummary
from cascade_client.wire.traces import GpuConfig, TraceDetail, TraceSummary
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from cascade_cli.output import PIPED_WIDTH

STATE_STYLES = {
    "ready": "green", "succeeded": "green", "failed": "red", "lost": "yellow", "partial": "yellow",
    "cancelled": "yellow", "running": "cyan", "active": "cyan", "launching": "cyan", "processing": "cyan",
    "uploading": "cyan",
}  # fmt: skip
MOST_LISTED_KERNELS = 40
WIDEST_WHOLE_ID = 40
"""A trace may be named by hundreds of characters; this many stay in one line of a narrow screen."""


def traces_table(traces: Iterable[TraceSummary]) -> Table:
    """Traces, one a row."""
    table = _table("trace", "state", "model", "arch", ">kernels", ">size", "timing", "arrived", "origin")
    for trace in traces:
        timing = [
            name
            for name, there in (("real", trace.has_real_timing), ("steps", trace.has_step_timeline))
            if there
        ]
        _row(
            table, trace.id, _state(trace.state), trace.model or MISSING, trace.trace_gpu_arch,
            number(trace.kernel_count), size(trace.bytes), ", ".join(timing) or MISSING, when(trace.created_at),
            "sample" if trace.sample else MISSING,
        )  # fmt: skip
    return table


def trace_tables(trace: TraceDetail) -> list[Table | str]:
    """One trace and its kernels."""
    kernels = _table(">id", "kernel", ">grid", ">block", ">instructions")
    for kernel in trace.kernels[:MOST_LISTED_KERNELS]:
        _row(
            kernels, str(kernel.kernel_id), readable_name(kernel.name), _dims(kernel.grid), _dims(kernel.block),
            number(kernel.instructions),
        )  # fmt: skip
    parts: list[Table | str] = [traces_table([trace])]
    if trace.error:
        parts.append(f"error: {trace.error}")
    if trace.kernels:
        parts.append(kernels)
    if len(trace.kernels) > MOST_LISTED_KERNELS:
        parts.append(f"{len(trace.kernels) - MOST_LISTED_KERNELS} more kernels; --json gives all")
    return parts


def configs_table(configs: Iterable[GpuConfig]) -> Table:
    """GPU configs, one a row."""
    table = _table("config", "arch", ">core clock, MHz")
    for config in configs:
        _row(table, config.name, config.arch, f"{config.core_clock_mhz:g}")
    return table


def runs_table(runs: Iterable[RunSummary]) -> Table:
    """Runs, one a row."""
    table = _table("run", "state", "trace", "configs", "sims", "created", "engine", "origin")
    for run in runs:
        configs = ", ".join(
            f"{entry.gpu_config} × {entry.count}" if entry.count > 1 else entry.gpu_config
            for entry in run.entries
        )
        counts = ", ".join(f"{count} {state}" for state, count in run.sim_counts.items())
        origin = "sample" if run.sample else "replay of a sample" if run.replay else MISSING
        engines = ", ".join(run.engines) or MISSING
        _row(
            table,
            run.id,
            _state(run.state),
            run.trace_id,
            configs,
            counts,
            when(run.created_at),
            engines,
            origin,
        )
    return table


def sims_table(run: RunDetail) -> Table:
    """A run's sims, one a row."""
    table = _table(
        "sim",
        "config",
        ">replica",
        "state",
        "engine",
        ">kernels",
        ">cycles",
        ">IPC",
        ">sim rate, inst/s",
        "error",
    )
    for sim in run.sims:
        _row(
            table, sim.id, sim.gpu_config, str(sim.replica), _state(sim.state), sim.engine or MISSING, _progress(sim),
            number(sim.latest.gpu_tot_sim_cycle), number(sim.latest.gpu_tot_ipc, digits=2),
            number(sim.latest.sim_rate_ips), sim.error or "",
        )  # fmt: skip
    return table


def comparison_table(comparison: Comparison, word: TimeWord) -> Table:
    """Kernel by kernel, real time against the sims'.

    word: what the sims' times are.
    """
    table = _table(
        ">#",
        "kernel",
        *([">real"] if comparison.has_real_timing else []),
        *(f">{c}" for c in comparison.configs),
        title=kind_of_time(word).capitalize(),
    )
    for row in comparison.rows:
        real = [duration(row.real_ns)] if comparison.has_real_timing else []
        simulated = [duration(row.sim_ns.get(config)) for config in comparison.configs]
        _row(table, str(row.kernel_index), readable_name(row.kernel_name), *real, *simulated)
    return table


def show_statements(statements: Iterable[Statement], console: Console) -> None:
    """What must be known before any number is read."""
    for statement in statements:
        console.print(Text(f"! {statement.text}", style="yellow"))


def show_report(report: Report, console: Console) -> None:
    """The whole report, in the order of its importance."""
    console.print(Text(headline(report), style="bold"))
    show_statements(report.statements, console)
    first, *others = time_headings(report)
    table = _table(first, *(f">{heading}" for heading in others), title=time_title(report))
    for config in report.configs:
        _row(table, *time_row(config))
    console.print(table)
    console.print(Text(ranking(report)))
    _section(
        console,
        "Accuracy against real hardware",
        [accuracy_line(e) for e in report.accuracy] or [no_accuracy(report)],
    )
    worst = [worst_line(kernel, report).replace("`", "") for kernel in report.worst_kernels]
    _section(console, worst_title(report), worst or ["No kernel finished."])
    _section(console, "Sims that did not succeed", failed_lines(report.failed_sims) or ["None."])


def when(moment: datetime) -> str:
    """A moment in local time."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def size(size_bytes: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def _section(console: Console, title: str, lines: Sequence[str]) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    for line in lines:
        console.print(Text(line if line.startswith(("- ", "  ")) else f"- {line}"))


def _progress(sim: SimSummary) -> str:
    return f"{sim.kernels_done} of {sim.kernels_total}"


def _dims(dims: tuple[int, int, int]) -> str:
    return " × ".join(map(str, dims))


def _state(state: str) -> Text:
    return Text(state, style=STATE_STYLES.get(state, ""))


class _Fitted(Table):
    """A table that gives up its lines where it is wider than the screen, and breaks what people copy last.

    The first column holds an id.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.update(width=PIPED_WIDTH)
        if self.__rich_measure__(console, wide).maximum > options.max_width:
            self.box, self.pad_edge, self.collapse_padding = None, False, True
            first = self.columns[0]
            longest = max((Measurement.get(console, wide, cell).maximum for cell in first.cells), default=0)
            first.min_width = min(longest, WIDEST_WHOLE_ID)
        yield from super().__rich_console__(console, options)


def _table(*headings: str, title: str | None = None) -> Table:
    """A table; headings that begin with `>` are of numbers."""
    table = _Fitted(title=title, title_justify="left")
    for heading in headings:
        is_number = heading.startswith(">")
        table.add_column(
            Text(heading.removeprefix(">")), justify="right" if is_number else "left", overflow="fold"
        )
    return table


def _row(table: Table, *cells: str | Text) -> None:
    table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))
