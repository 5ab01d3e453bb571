"""What a report, or the statements above other numbers, need from the app, asked for step by step.

A generator yields what it needs next and is sent the answer, or thrown the call's error. Each client drives it in its
own way, so the order of the calls stands here once.
"""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from cascade_client import calls
from cascade_client.calls import Call
from cascade_client.errors import NotFound
from cascade_client.failures import explains, has_cause
from cascade_client.progress import TERMINAL_SIM_STATES
from cascade_client.provenance import Statement, statements_of
from cascade_client.report import Report, build_report
from cascade_client.wire.results import Comparison, KernelStat
from cascade_client.wire.runs import RunDetail, SimState
from cascade_client.wire.traces import TraceDetail

MOST_SEARCHED_LOGS: Final = 8
"""Whole logs that one report reads for causes; beyond that the sims' own errors must do."""
MOST_FOUND_LINES: Final = 5
MOST_READS: Final = 20
FRESH_S: Final = 5.0
"""A run that ended less than this ago may still have its last kernels on the way. [s]"""
_PAUSE_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class SearchLog:
    """Read a sim's whole log; the answer is its last lines that name a cause."""

    sim_id: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait; the answer is None. [s]"""

    seconds: float


Step: TypeAlias = Call[Any] | SearchLog | Pause


def gather_report(run_id: str, now: datetime) -> Generator[Step, Any, Report]:
    """The report of a run. Raises what the calls raise."""
    run, kernels = yield from _settled(run_id, now)
    trace = yield from _trace(run)
    comparison: Comparison = yield calls.get_comparison(run_id)
    found: dict[str, tuple[str, ...]] = {}
    for sim in run.sims:
        unexplained = sim.state in (SimState.FAILED, SimState.LOST) and not has_cause(sim)
        if unexplained and len(found) < MOST_SEARCHED_LOGS:
            found[sim.id] = tuple((yield SearchLog(sim.id)))
    return build_report(run, trace=trace, kernels=kernels, comparison=comparison, log_findings=found)


def gather_statements(run: RunDetail, sim_id: str | None) -> Generator[Step, Any, list[Statement]]:
    """What must be said before the run's numbers, or before those of one of its sims. Raises what the calls raise."""
    trace = yield from _trace(run)
    kernels: list[KernelStat] = []
    if any(sim.kernels_done for sim in run.sims):
        kernels = yield calls.list_kernels(run.id)
    if sim_id is not None:
        run = run.model_copy(update={"sims": [sim for sim in run.sims if sim.id == sim_id]})
        kernels = [kernel for kernel in kernels if kernel.sim_id == sim_id]
    return statements_of(run, trace=trace, kernels=kernels)


def _trace(run: RunDetail) -> Generator[Step, Any, TraceDetail | None]:
    try:
        trace: TraceDetail = yield calls.get_trace(run.trace_id)
    except NotFound:
        return None  # removed since; the run keeps what it needs of it
    return trace


def _settled(run_id: str, now: datetime) -> Generator[Step, Any, tuple[RunDetail, list[KernelStat]]]:
    """The run and its kernels, read at one point.

    A run counts as ended as soon as its simulators say so; the end of their logs may be read a moment later. So a
    run that ended just now is read until two readings agree and no sim that succeeded lacks kernels. Of a replayed log
    nobody knows how many it holds.
    """
    run: RunDetail = yield calls.get_run(run_id)
    for _ in range(MOST_READS):
        kernels: list[KernelStat] = yield calls.list_kernels(run_id)
        if not _is_fresh(run, now):
            break
        yield Pause(_PAUSE_S)
        again: RunDetail = yield calls.get_run(run_id)
        same = _done(again) == _done(run) == len(kernels)
        run = again
        if same and not _lacks_kernels(run):
            break
    return run, kernels


def _is_fresh(run: RunDetail, now: datetime) -> bool:
    if any(sim.state not in TERMINAL_SIM_STATES for sim in run.sims):
        return False  # the report of an unfinished run is a moment's view anyway
    ends = [sim.finished_at for sim in run.sims if sim.finished_at is not None]
    return bool(ends) and max(ends) > now - timedelta(seconds=FRESH_S)


def _lacks_kernels(run: RunDetail) -> bool:
    return any(
        sim.state is SimState.SUCCEEDED and sim.engine != "replay" and sim.kernels_done < sim.kernels_total
        for sim in run.sims
    )


def _done(run: RunDetail) -> int:
    return sum(sim.kernels_done for sim in run.sims)


class LogSearch:
    """Keeps the last lines of a log that name a cause."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def take(self, line: str) -> None:
        """Look at one line."""
        if explains(line):
            self.found = [*self.found, line][-MOST_FOUND_LINES:]
