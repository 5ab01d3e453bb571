"""A report as Markdown, and numbers as people read them. Pure."""

from collections.abc import Sequence
from typing import Final

from cascade_client.failures import FailedSim
from cascade_client.provenance import TimeWord
from cascade_client.report import ConfigError, ConfigTime, Report, WorstKernel

MISSING: Final = "–"
_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def duration(ns: float | None) -> str:
    """A time in the largest unit that keeps the number above 1. [ns]"""
    if ns is None:
        return MISSING
    for scale, unit in _UNITS:
        if abs(ns) >= scale:
            return f"{ns / scale:.3g} {unit}" if abs(ns) / scale < 999.5 else f"{ns / scale:.0f} {unit}"
    return f"{ns:.3g} ns"


def number(value: float | None, *, digits: int = 0) -> str:
    """A number with thousands separated."""
    return MISSING if value is None else f"{value:,.{digits}f}"


def percent(value: float | None, *, signed: bool = False) -> str:
    """A percentage with one digit behind the point."""
    return MISSING if value is None else f"{value:{'+' if signed else ''}.1f} %"


def headline(report: Report) -> str:
    """The first line: run, trace, state and sims."""
    counts = ", ".join(f"{count} {state}" for state, count in report.sim_counts.items()) or "no sims"
    model = f" ({report.model})" if report.model else ""
    return f"Run {report.run_id} of trace {report.trace_id}{model}: {report.state.value}, {counts}"


def ranking(report: Report) -> str:
    """Who is fastest, in one sentence, or why that cannot be said."""
    if not report.comparable:
        return f"The configs cannot be compared from this run: {report.not_comparable_because}."
    others = [config for config in report.configs if config.gpu_config not in report.fastest]
    multiples = ", ".join(
        f"{config.gpu_config} takes {config.times_fastest:.2f}× as long"
        for config in others
        if config.times_fastest is not None
    )
    if len(report.fastest) > 1:
        first = f"{_listed(report.fastest)} tie (within 1 %)"
    else:
        first = f"{report.fastest[0]} is the fastest"
    further = [group for group in report.ties if group != report.fastest]
    ties = "".join(f" {_listed(group)} tie." for group in further)
    return f"{first}{f'; {multiples}' if multiples else ''}.{ties}"


def markdown(report: Report) -> str:
    """The whole report."""
    parts = [f"**{headline(report)}**"]
    parts += [f"> **{statement.kind}**: {statement.text}" for statement in report.statements]
    parts.append(f"## {time_title(report)}")
    parts.append(_table(time_headings(report), [time_row(config) for config in report.configs]))
    parts.append(ranking(report))
    parts.append("## Accuracy against real hardware")
    parts.append("\n".join(f"- {accuracy_line(error)}" for error in report.accuracy) or no_accuracy(report))
    parts.append(f"## {worst_title(report)}")
    parts.append(
        "\n".join(f"- {worst_line(kernel, report)}" for kernel in report.worst_kernels)
        or "No kernel finished."
    )
    parts.append("## Sims that did not succeed")
    parts.append("\n".join(failed_lines(report.failed_sims)) or "None.")
    return "\n\n".join(parts) + "\n"


def time_title(report: Report) -> str:
    """The heading of the times, by what they are."""
    return kind_of_time(report.time_word).capitalize()


def no_accuracy(report: Report) -> str:
    """What stands in place of the accuracy where there is none."""
    reason = report.no_accuracy_because or "nothing was compared"
    return f"{reason[0].upper()}{reason[1:]}, so this report covers {kind_of_time(report.time_word)} only."


def time_headings(report: Report) -> tuple[str, ...]:
    """The headings over `time_row`."""
    return (
        "config", "succeeded", f"median, {report.time_word}", "lowest", "highest", "× fastest", "cycles", "IPC",
        "kernels",
    )  # fmt: skip


def kind_of_time(word: TimeWord) -> str:
    """What times are called in a heading."""
    return "time of mixed origin" if word == "mixed" else f"{word} time"


def time_row(config: ConfigTime) -> tuple[str, ...]:
    """The cells of a config's row."""
    spread = config.succeeded > 1
    return (
        config.gpu_config,
        f"{config.succeeded} of {config.replicas}",
        duration(config.median_ns),
        duration(config.lowest_ns) if spread else MISSING,
        duration(config.highest_ns) if spread else MISSING,
        f"{config.times_fastest:.2f}" if config.times_fastest is not None else MISSING,
        number(config.gpu_tot_sim_cycle),
        number(config.gpu_tot_ipc, digits=2),
        number(config.kernels),
    )


def accuracy_line(error: ConfigError) -> str:
    """A config's error against the measured times, in a sentence."""
    if error.mape_percent is None:
        return f"{error.gpu_config}: no kernel has both a measured time and one of a sim"
    left_out = f"; {error.rows_left_out} rows lack one of the two" if error.rows_left_out else ""
    if error.counterfactual:
        return (
            f"{error.gpu_config}: differs by {error.mape_percent:.1f} % on average over {error.rows} rows from the GPU "
            f"that was measured, which is another one{left_out}"
        )
    return f"{error.gpu_config}: MAPE {error.mape_percent:.1f} % over {error.rows} rows{left_out}"


def worst_title(report: Report) -> str:
    """What the worst kernels are ranked by."""
    if report.worst_by != "error":
        return f"Kernels with the largest share of {kind_of_time(report.time_word)}"
    if report.accuracy and all(error.counterfactual for error in report.accuracy):
        return "Kernels that differ most from the GPU that was measured, which is another one"
    return "Kernels with the largest error"


def worst_line(kernel: WorstKernel, report: Report) -> str:
    """One of the worst kernels in a line."""
    times = ", ".join(
        f"{config} {duration(time)}"
        + (
            f" ({percent(kernel.error_percent[config], signed=True)})"
            if config in kernel.error_percent
            else ""
        )
        for config, time in kernel.sim_ns.items()
    )
    origin = "sims of mixed origin" if report.time_word == "mixed" else report.time_word
    parts = [f"`{kernel.name}` (index {kernel.kernel_index}): {origin} {times}"]
    if kernel.real_ns is not None:
        parts.append(f"measured {duration(kernel.real_ns)}")
    if kernel.share_percent is not None:
        parts.append(f"{percent(kernel.share_percent)} of the time")
    if kernel.slowest_over_fastest is not None:
        parts.append(f"{kernel.slowest_over_fastest:.2f}× between configs")
    return "; ".join(parts)


def failed_lines(sims: Sequence[FailedSim]) -> list[str]:
    """The sims that did not succeed with what is known of each."""
    lines = []
    for sim in sims:
        exit_code = f", exit code {sim.exit_code}" if sim.exit_code is not None else ""
        by_signal = f" ({sim.signal})" if sim.signal else ""
        lines.append(
            f"- {sim.sim_id}, {sim.gpu_config} replica {sim.replica}: {sim.state.value}{exit_code}{by_signal}, "
            f"{sim.kernels_done} of {sim.kernels_total} kernels"
            + (f", last kernel `{sim.last_kernel}`" if sim.last_kernel else "")
        )
        if sim.error:
            lines.append(f"  - error: {sim.error}")
        lines += [f"  - log: `{line.strip()}`" for line in sim.cause_lines]
        if not sim.error and not sim.cause_lines and sim.state.value != "cancelled":
            lines.append("  - the log does not show a cause")
    return lines


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
