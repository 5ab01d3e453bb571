"""What a run found, in the order in which it should be told: first how far the numbers can be trusted. Pure.

spec: agents, Report. The command line and the agents' door print the same report.
"""

import statistics
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Final

from cascade_accelsim.demangle import readable_name
from pydantic import BaseModel, ConfigDict

from cascade_client.failures import FailedSim, failed_sim
from cascade_client.provenance import Statement, TimeWord, numbers_are_of_the_trace, statements_of, time_word
from cascade_client.wire.results import Comparison, ComparisonRow, KernelStat
from cascade_client.wire.runs import RunDetail, RunState, SimState, SimSummary
from cascade_client.wire.traces import TraceDetail

TIE_SHARE: Final = 0.01
"""Configs whose times are within 1 % of each other tie. spec: agents, Report 1"""

MOST_WORST_KERNELS: Final = 5
_OF_THE_STAND_IN: Final = "the numbers come from the stand-in simulator and do not describe the trace"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class ConfigTime(_Part):
    """One config's time: each replica's kernels added up."""

    gpu_config: str
    replicas: int
    """Sims of this config."""
    succeeded: int
    """Those that count: a sim that did not succeed has only the kernels that it finished."""
    median_ns: float | None
    """None where no succeeded replica has times."""
    lowest_ns: float | None
    highest_ns: float | None
    times_fastest: float | None
    """Multiple of the lowest median; None where configs cannot be compared."""
    gpu_tot_sim_cycle: float | None
    """Median of the succeeded replicas. [cycles]"""
    gpu_tot_ipc: float | None
    kernels: int | None
    """Kernels that the total is made of; None where replicas disagree."""


class ConfigError(_Part):
    """One config against the measured times."""

    gpu_config: str
    mape_percent: float | None
    """Mean absolute percentage error; None without a row to take it from."""
    rows: int
    """Rows that have both times."""
    rows_left_out: int
    counterfactual: bool
    """The measured times are another GPU's: this is a difference, no error."""


class WorstKernel(_Part):
    """A kernel that matters most: by its error, or by its share of the time where nothing was measured."""

    kernel_index: int
    name: str
    """Readable."""
    kernel_name: str
    """As the API has it."""
    real_ns: float | None
    sim_ns: dict[str, float | None]
    """The sims' time by config. [ns]"""
    error_percent: dict[str, float]
    """Signed error by config; empty without a measured time, or where there is no accuracy to speak of."""
    share_percent: float | None
    """Share of the sims' time, mean of the configs."""
    slowest_over_fastest: float | None
    """How much its time differs between configs."""


class Report(_Part):
    """A run's report."""

    run_id: str
    trace_id: str
    model: str | None
    state: RunState
    sim_counts: dict[str, int]
    statements: list[Statement]
    """What must be known before any number is read."""
    time_word: TimeWord
    """What the times are, by the engines of the sims that have any."""
    configs: list[ConfigTime]
    """Fastest first; those without a time last."""
    comparable: bool
    not_comparable_because: str | None
    fastest: list[str]
    """The fastest config; several where they tie; none where configs cannot be compared."""
    ties: list[list[str]]
    """Groups of configs within 1 % of each other."""
    has_real_timing: bool
    accuracy: list[ConfigError]
    no_accuracy_because: str | None
    """Why there is none; None where there is."""
    worst_by: str
    """`error` or `share`."""
    worst_kernels: list[WorstKernel]
    failed_sims: list[FailedSim]


def build_report(
    run: RunDetail,
    *,
    kernels: Sequence[KernelStat],
    comparison: Comparison,
    trace: TraceDetail | None = None,
    log_findings: Mapping[str, Sequence[str]] | None = None,
) -> Report:
    """The report of a run as the API gave it.

    trace: None where it was removed since. log_findings: by sim id, lines of whole logs that name a cause.
    """
    by_sim: dict[str, list[KernelStat]] = {sim.id: [] for sim in run.sims}
    for kernel in kernels:
        by_sim.setdefault(kernel.sim_id, []).append(kernel)
    names = {kernel.kernel_name for kernel in kernels}
    statements = statements_of(run, trace=trace, kernels=kernels)
    times = [_config_time(name, run.sims, by_sim) for name in _configs(run)]
    of_the_trace = numbers_are_of_the_trace(run, trace, names)
    reason = _not_comparable(run, times, by_sim, of_the_trace=of_the_trace)
    times = _ordered(times, comparable=reason is None)
    ties = _tie_groups(times) if reason is None else []
    unjudged = _not_judged(comparison, of_the_trace=of_the_trace)
    return Report(
        run_id=run.id,
        trace_id=run.trace_id,
        model=run.trace.model,
        state=run.state,
        sim_counts={state.value: count for state, count in run.sim_counts.items()},
        statements=statements,
        time_word=time_word(run.sims),
        configs=times,
        comparable=reason is None,
        not_comparable_because=reason,
        fastest=ties[0] if ties else [],
        ties=[group for group in ties if len(group) > 1],
        has_real_timing=comparison.has_real_timing,
        accuracy=[_config_error(name, run, comparison) for name in comparison.configs]
        if unjudged is None
        else [],
        no_accuracy_because=unjudged,
        worst_by="error" if unjudged is None else "share",
        worst_kernels=_worst_kernels(comparison, run, by_error=unjudged is None),
        failed_sims=[
            failed_sim(
                sim,
                last_kernel=_last_kernel(sim, by_sim[sim.id]),
                log_lines=(log_findings or {}).get(sim.id, ()),
            )
            for sim in run.sims
            if sim.state in (SimState.FAILED, SimState.LOST, SimState.CANCELLED)
        ],
    )


def _configs(run: RunDetail) -> list[str]:
    return list(dict.fromkeys(entry.gpu_config for entry in run.entries))


def _config_time(
    name: str, sims: Sequence[SimSummary], by_sim: Mapping[str, Sequence[KernelStat]]
) -> ConfigTime:
    replicas = [sim for sim in sims if sim.gpu_config == name]
    done = [sim for sim in replicas if sim.state is SimState.SUCCEEDED]
    totals = [total for sim in done if (total := _total_ns(by_sim[sim.id])) is not None]
    counts = {len(by_sim[sim.id]) for sim in done}
    return ConfigTime(
        gpu_config=name,
        replicas=len(replicas),
        succeeded=len(done),
        median_ns=_median(totals),
        lowest_ns=min(totals, default=None),
        highest_ns=max(totals, default=None),
        times_fastest=None,
        gpu_tot_sim_cycle=_median([sim.latest.gpu_tot_sim_cycle for sim in done]),
        gpu_tot_ipc=_median([sim.latest.gpu_tot_ipc for sim in done]),
        kernels=counts.pop() if len(counts) == 1 else None,
    )


def _total_ns(kernels: Sequence[KernelStat]) -> float | None:
    """Sum of the known times; None without any: nothing finished is not a time of zero."""
    known = [kernel.sim_time_ns for kernel in kernels if kernel.sim_time_ns is not None]
    return fsum(known) if known else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _not_comparable(
    run: RunDetail,
    times: Sequence[ConfigTime],
    by_sim: Mapping[str, Sequence[KernelStat]],
    *,
    of_the_trace: bool,
) -> str | None:
    """Why configs must not be ranked; None where they may."""
    if not of_the_trace:
        return _OF_THE_STAND_IN
    timed = [config for config in times if config.median_ns is not None]
    if len(timed) < 2:
        return "fewer than two configs have a time"
    counts = {config.kernels for config in timed}
    if len(counts) > 1 or None in counts:
        return "the sims finished different numbers of kernels"
    done = [sim for sim in run.sims if sim.state is SimState.SUCCEEDED]
    if any(kernel.sim_time_ns is None for sim in done for kernel in by_sim[sim.id]):
        return "some kernels have no time, so the totals are incomplete"
    if len({sim.engine for sim in done}) > 1:
        return "the sims' numbers were not all made in the same way"
    return None


def _not_judged(comparison: Comparison, *, of_the_trace: bool) -> str | None:
    """Why no time may be held against a measured one; None where it may."""
    if not comparison.has_real_timing:
        return "the trace has no real timing"
    return None if of_the_trace else _OF_THE_STAND_IN


def _ordered(times: Sequence[ConfigTime], *, comparable: bool) -> list[ConfigTime]:
    if not comparable:
        return list(times)
    timed = sorted(
        (config for config in times if config.median_ns is not None),
        key=lambda config: config.median_ns or 0.0,
    )
    fastest = timed[0].median_ns or 0.0
    multiples = [
        config.model_copy(update={"times_fastest": (config.median_ns or 0.0) / fastest if fastest else None})
        for config in timed
    ]
    return [*multiples, *(config for config in times if config.median_ns is None)]


def _tie_groups(times: Sequence[ConfigTime]) -> list[list[str]]:
    """Configs, fastest first, in groups that lie within 1 % of their group's fastest."""
    groups: list[list[str]] = []
    start = 0.0
    for config in times:
        if config.median_ns is None:
            continue
        if groups and config.median_ns <= start * (1 + TIE_SHARE):
            groups[-1].append(config.gpu_config)
        else:
            groups.append([config.gpu_config])
            start = config.median_ns
    return groups


def _config_error(name: str, run: RunDetail, comparison: Comparison) -> ConfigError:
    errors = [error for row in comparison.rows if (error := _error_percent(row, name)) is not None]
    captured_on = run.trace.real_gpu_config
    return ConfigError(
        gpu_config=name,
        # spec: agents, Report 2
        mape_percent=fsum(map(abs, errors)) / len(errors) if errors else None,
        rows=len(errors),
        rows_left_out=len(comparison.rows) - len(errors),
        counterfactual=captured_on is not None and captured_on != name,
    )


def _error_percent(row: ComparisonRow, config: str) -> float | None:
    simulated = row.sim_ns.get(config)
    if simulated is None or not row.real_ns or row.real_ns < 0:
        return None
    return (simulated - row.real_ns) / row.real_ns * 100


def _worst_kernels(comparison: Comparison, run: RunDetail, *, by_error: bool) -> list[WorstKernel]:
    totals = {
        name: fsum(time for row in comparison.rows if (time := row.sim_ns.get(name)) is not None)
        for name in comparison.configs
    }
    found = [_weighed(row, comparison.configs, totals, judged=by_error) for row in comparison.rows]
    if by_error:
        captured_on = run.trace.real_gpu_config
        # An error is one only against the GPU that was measured; without that knowledge every config counts.
        judged = [captured_on] if captured_on in comparison.configs else comparison.configs
        errors = {
            kernel.kernel_index: max(
                (abs(kernel.error_percent[name]) for name in judged if name in kernel.error_percent),
                default=None,
            )
            for kernel in found
        }
        ranked = [kernel for kernel in found if errors[kernel.kernel_index] is not None]
        ranked.sort(key=lambda kernel: -(errors[kernel.kernel_index] or 0.0))
    else:
        ranked = [kernel for kernel in found if kernel.share_percent is not None]
        ranked.sort(key=lambda kernel: -(kernel.share_percent or 0.0))
    return ranked[:MOST_WORST_KERNELS]


def _weighed(
    row: ComparisonRow, configs: Sequence[str], totals: Mapping[str, float], *, judged: bool
) -> WorstKernel:
    errors = {name: error for name in configs if (error := _error_percent(row, name)) is not None}
    times = [(name, time) for name in configs if (time := row.sim_ns.get(name)) is not None]
    shares = [time / totals[name] * 100 for name, time in times if totals[name] > 0]
    known = [time for _, time in times]
    return WorstKernel(
        kernel_index=row.kernel_index,
        name=readable_name(row.kernel_name),
        kernel_name=row.kernel_name,
        real_ns=row.real_ns,
        sim_ns={name: row.sim_ns.get(name) for name in configs},
        error_percent=errors if judged else {},
        share_percent=fsum(shares) / len(shares) if shares else None,
        slowest_over_fastest=max(known) / min(known) if len(known) > 1 and min(known) > 0 else None,
    )


def _last_kernel(sim: SimSummary, kernels: Sequence[KernelStat]) -> str | None:
    name = sim.current_kernel or (kernels[-1].kernel_name if kernels else None)
    return readable_name(name) if name else None
