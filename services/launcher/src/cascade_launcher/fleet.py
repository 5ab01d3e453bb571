"""The sims that are not over yet, folded from the log. What has ended is forgotten, so memory follows the
load."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from cascade_core import subjects
from cascade_core.facts import AnyFact
from cascade_core.record import Recorded
from cascade_core.runs.facts import RunCancelRequested, RunRequested
from cascade_core.runs.state import Run, run_of
from cascade_core.sims.facts import (
    SimGivenUp,
    SimLaunched,
    SimLaunchFailed,
    SimLaunchStarted,
    SimReported,
    SimWentSilent,
)
from cascade_core.sims.state import Sim, apply, sims_of

_Relevant: TypeAlias = (
    SimLaunchStarted | SimLaunched | SimLaunchFailed | SimWentSilent | SimGivenUp | SimReported
)
_SIM_FACTS = ("launch-started", "launched", "launch-failed", "went-silent", "given-up", "reported")

FILTERS: tuple[str, ...] = (
    subjects.ALL_RUNS,
    subjects.ALL_BEATS,
    *(subjects.sim_fact("*", "*", name) for name in _SIM_FACTS),
)
"""Only what moves a sim's state: progress, outputs and step timing would cost memory and tell nothing."""


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run with sims that are not over yet."""

    run: Run
    traceparent: str | None
    """Trace context of the request, so that launches join its trace."""


@dataclass(frozen=True, slots=True)
class Over:
    """A sim that has just ended."""

    sim: Sim
    said_goodbye: bool
    """Whether its own final heartbeat ended it, so that its simulator is about to exit by itself."""


class Fleet:
    """Every live sim and its run, as of `position`."""

    def __init__(self) -> None:
        self.position = 0
        self._runs: dict[str, LiveRun] = {}
        self._sims: dict[str, dict[str, Sim]] = {}

    def apply(self, record: Recorded[AnyFact]) -> list[Over]:
        """Fold one record; returns the sims that it ended."""
        self.position = record.position
        match record.fact:
            case RunRequested() as fact:
                self._add(fact, record.traceparent)
                return []
            case RunCancelRequested() as fact:
                return [
                    ended
                    for sim in list(self.of_run(fact.run_id))
                    if (ended := self._fold(sim, fact)) is not None
                ]
            case (
                SimLaunchStarted()
                | SimLaunched()
                | SimLaunchFailed()
                | SimWentSilent()
                | SimGivenUp()
                | SimReported() as fact
            ):
                known = self._sims.get(fact.run_id, {}).get(fact.sim_id)
                ended = self._fold(known, fact) if known is not None else None
                return [ended] if ended is not None else []
            case _:
                return []

    def _add(self, fact: RunRequested, traceparent: str | None) -> None:
        # A bundled sample shows recorded results, and a replay tells them again; nothing of either is launched.
        if fact.sample or fact.replay or fact.run_id in self._runs or not fact.sims:
            return
        self._runs[fact.run_id] = LiveRun(run_of(fact), traceparent)
        self._sims[fact.run_id] = {sim.sim_id: sim for sim in sims_of(fact)}

    def _fold(self, sim: Sim, fact: _Relevant | RunCancelRequested) -> Over | None:
        changed = apply(sim, fact)
        of_run = self._sims[sim.run_id]
        if not changed.is_terminal:
            of_run[sim.sim_id] = changed
            return None
        del of_run[sim.sim_id]
        if not of_run:
            del self._sims[sim.run_id]
            del self._runs[sim.run_id]
        return Over(changed, said_goodbye=isinstance(fact, SimReported))

    def sims(self) -> Iterator[Sim]:
        """Every live sim, oldest run first, in the order of its run's plan."""
        for of_run in self._sims.values():
            yield from of_run.values()

    def sim(self, sim_id: str, run_id: str) -> Sim | None:
        """One live sim; None once it is over, or for one that was never asked for."""
        return self._sims.get(run_id, {}).get(sim_id)

    def sim_ids(self) -> set[str]:
        """The ids of every live sim."""
        return {sim.sim_id for sim in self.sims()}

    def run(self, run_id: str) -> LiveRun | None:
        """A run with live sims."""
        return self._runs.get(run_id)

    def of_run(self, run_id: str) -> Iterator[Sim]:
        """The run's live sims."""
        yield from self._sims.get(run_id, {}).values()
