"""Turns what the log asks for into sims on a backend, and what becomes of them into facts.

It decides from state that it folds itself, and every act is safe to repeat: a sim is taken by a fact that only one
launcher can write, a backend's `start` finds what was started before, and judgements that come too late are set
aside by the fold. So it may be killed at any moment, and started again.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime

import structlog
from cascade_core import subjects
from cascade_core.errors import Unavailable
from cascade_core.ports import Clock
from cascade_core.sims.facts import SimGivenUp, SimReported
from cascade_core.sims.state import Sim
from cascade_core.tasks import TaskSet

from cascade_launcher.backends.protocol import Backend, Ended, Gone, LaunchError, Vital
from cascade_launcher.fleet import FILTERS, Fleet, Over
from cascade_launcher.launching import TRIES, Launching
from cascade_launcher.retry import growing_delays, persistently
from cascade_launcher.term import FactLog, Term, Timing
from cascade_launcher.watching import Watching

_logger = structlog.get_logger(__name__)

GOODBYE_PATIENCE_S = 10.0
"""How long a simulator may take to exit after its final heartbeat."""


class Reactor:
    """One term of leadership: folds the log, launches, watches, stops."""

    def __init__(self, log: FactLog, backend: Backend, clock: Clock, timing: Timing) -> None:
        self._term = Term(
            log=log, backend=backend, clock=clock, timing=timing, fleet=Fleet(), tasks=TaskSet()
        )
        self._stopping: set[str] = set()

    async def run(self) -> None:
        """Lead until cancelled. Raises LogUnavailable when the log cannot be read at the start."""
        term = self._term
        async for page in term.log.pages(FILTERS):
            for record in page:
                term.fleet.apply(record)  # what has ended meanwhile, the first look at the backend finds
        found = frozenset(await self._first_census())
        _logger.info(
            "caught up with the log",
            position=term.fleet.position,
            live_sims=len(term.fleet.sim_ids()),
            found=len(found),
        )
        launching = Launching(term, found=found, stop=self._stop_soon)
        watching = Watching(term, launching, stop=self._stop_soon)
        term.tasks.create(self._follow(launching, watching))
        term.tasks.create(launching.run())
        term.tasks.create(watching.watch_processes())
        term.tasks.create(watching.watch_silence())
        await term.tasks.wait()

    async def give_up_all(self, error: str) -> list[str]:
        """Say of every sim with a process that it is over; returns their ids. For an orderly stop, after `run`.

        Raises Unavailable.
        """
        live = {sim.sim_id: sim for sim in self._term.fleet.sims()}
        given_up: list[str] = []
        for sim_id, vital in (await self._term.backend.census()).items():
            sim = live.get(sim_id)
            if sim is None or isinstance(vital, Ended | Gone):
                continue
            await self._term.log.append(
                SimGivenUp(
                    occurred_at=self._term.now(),
                    run_id=sim.run_id,
                    sim_id=sim_id,
                    error=error,
                    heartbeat_seen_at=await self._last_heartbeat(sim),
                )
            )
            given_up.append(sim_id)
        return given_up

    async def _last_heartbeat(self, sim: Sim) -> datetime | None:
        """The newest heartbeat in the log, which this reader may not have folded yet."""
        seen = [sim.last_heartbeat_at] if sim.last_heartbeat_at is not None else []
        for subject in (
            subjects.beats_of(sim.run_id, sim.sim_id),
            subjects.sim_fact(sim.run_id, sim.sim_id, "reported"),
        ):
            record = await self._term.log.last(subject)
            if record is not None:
                seen.append(record.fact.occurred_at)
        return max(seen, default=None)

    async def _first_census(self) -> Mapping[str, Vital]:
        """What the backend holds; waited for, since acting without it could start a sim twice."""
        for delay_s in growing_delays():
            try:
                return await self._term.backend.census()
            except Unavailable as error:
                _logger.warning("the backend does not answer; nothing is launched", error=str(error))
                await asyncio.sleep(delay_s)
        raise AssertionError("unreachable")

    async def _follow(self, launching: Launching, watching: Watching) -> None:
        fleet = self._term.fleet
        async with self._term.log.follow(FILTERS, after=fleet.position, reader="launcher") as batches:
            async for batch in batches:
                for record in batch:
                    for over in fleet.apply(record):
                        self._on_over(over, launching, watching)
                # A heartbeat, which is nearly every fact, makes nothing due.
                if not all(isinstance(record.fact, SimReported) for record in batch):
                    launching.look_again()

    def _on_over(self, over: Over, launching: Launching, watching: Watching) -> None:
        sim = over.sim
        _logger.info("sim ended", run_id=sim.run_id, sim_id=sim.sim_id, state=sim.state, error=sim.error)
        launching.forget_sim(sim.sim_id)
        watching.forget_sim(sim.sim_id)
        if sim.sim_id not in launching.in_flight:  # else the launch stops it, once it knows what it started
            self._stop_soon(sim.sim_id, patience_s=GOODBYE_PATIENCE_S if over.said_goodbye else 0.0)
        if self._term.fleet.run(sim.run_id) is None:
            launching.forget_run(sim.run_id)
            self._term.tasks.create(self._finish(sim.run_id))

    def _stop_soon(self, sim_id: str, *, patience_s: float = 0.0) -> None:
        if sim_id not in self._stopping:
            self._stopping.add(sim_id)
            self._term.tasks.create(self._stop(sim_id, patience_s=patience_s))

    async def _stop(self, sim_id: str, *, patience_s: float) -> None:
        try:
            for delay_s in growing_delays():
                try:
                    await self._term.backend.stop(sim_id, patience_s=patience_s)
                except Unavailable as error:
                    _logger.warning("sim not stopped yet", sim_id=sim_id, error=str(error))
                    await asyncio.sleep(delay_s)
                else:
                    return
        finally:
            self._stopping.discard(sim_id)

    async def _finish(self, run_id: str) -> None:
        try:
            await persistently(lambda: self._term.backend.finish(run_id), tries=TRIES, what="finish")
        except LaunchError as error:
            _logger.warning(
                "what the run's preparation made was left behind", run_id=run_id, error=str(error)
            )
