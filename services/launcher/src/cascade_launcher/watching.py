"""Noticing what sims do not say themselves: that their process is over, or that they have fallen silent."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import structlog
from cascade_core.errors import LogUnavailable, Unavailable
from cascade_core.facts import fact_type
from cascade_core.metrics import LAUNCHES_FAILED
from cascade_core.sims.facts import SimGivenUp, SimLaunchFailed, SimWentSilent
from cascade_core.sims.state import Sim

from cascade_launcher import silence
from cascade_launcher.backends.protocol import Ended, Gone, Running, Vital, Waiting
from cascade_launcher.endings import ending
from cascade_launcher.launching import Launching
from cascade_launcher.term import Term

_logger = structlog.get_logger(__name__)

SIGHTINGS = 2
"""Looks in a row that must find a simulator ended: its final heartbeat may still be on its way to this reader."""


class Watching:
    """The watch of one term."""

    def __init__(self, term: Term, launching: Launching, *, stop: Callable[[str], None]) -> None:
        """stop: ends a sim that is over, unless that is under way."""
        self._term = term
        self._launching = launching
        self._stop = stop
        self._sightings: dict[str, int] = {}
        self._waiting: dict[str, str] = {}
        self._waited_until: dict[str, datetime] = {}
        self._judged_at: dict[str, int] = {}
        """Position of the last judgement on each sim: no second one before the fold has seen the first."""

    def forget_sim(self, sim_id: str) -> None:
        """The sim is over."""
        self._sightings.pop(sim_id, None)
        self._waiting.pop(sim_id, None)
        self._waited_until.pop(sim_id, None)
        self._judged_at.pop(sim_id, None)

    async def watch_processes(self) -> None:
        """Look at what the backend holds, for ever."""
        while True:
            try:
                await self._look(await self._term.backend.census())
            except Unavailable as error:
                _logger.warning("the backend does not answer", error=str(error))
            await asyncio.sleep(self._term.backend.poll_every_s)

    async def _look(self, census: Mapping[str, Vital]) -> None:
        live = {sim.sim_id: sim for sim in self._term.fleet.sims()}
        for sim_id in census.keys() - live.keys() - self._launching.in_flight:
            self._stop(sim_id)  # it ended while no launcher was looking
        for sim_id, sim in live.items():
            if not self._launching.is_started(sim):
                continue
            match census.get(sim_id, Gone()):
                case Waiting(reason):
                    self._waiting[sim_id] = reason
                    self._sightings.pop(sim_id, None)
                case Running():
                    if self._waiting.pop(sim_id, None) is not None:
                        self._waited_until[sim_id] = self._term.now()
                    self._sightings.pop(sim_id, None)
                case Ended() | Gone():
                    self._sightings[sim_id] = self._sightings.get(sim_id, 0) + 1
                    if self._sightings[sim_id] >= SIGHTINGS:
                        await self._report_over(sim)

    async def _report_over(self, sim: Sim) -> None:
        if self._is_judged(sim.sim_id):
            return
        over = await self._term.backend.alive(sim.sim_id)  # with its last output, which a census leaves out
        if not isinstance(over, Ended | Gone):
            return
        error = ending(over, heard=sim.last_heartbeat_at is not None)
        now = self._term.now()
        fact: SimLaunchFailed | SimGivenUp
        if sim.last_heartbeat_at is None:
            fact = SimLaunchFailed(occurred_at=now, run_id=sim.run_id, sim_id=sim.sim_id, error=error)
        else:
            fact = SimGivenUp(
                occurred_at=now,
                run_id=sim.run_id,
                sim_id=sim.sim_id,
                error=error,
                heartbeat_seen_at=sim.last_heartbeat_at,
            )
        await self._judge(fact)

    async def watch_silence(self) -> None:
        """Judge who is silent, every few seconds, for ever."""
        timing = self._term.timing
        now = self._term.now()
        hearing = silence.Hearing(since=now, checked_at=now)
        while True:
            await asyncio.sleep(timing.check_every_s)
            now = self._term.now()
            hearing = silence.still_hearing(
                hearing,
                now,
                reachable=await self._log_answers(),
                longest_gap=timedelta(seconds=3 * timing.check_every_s + 5),
            )
            sims = [sim for sim in self._term.fleet.sims() if sim.sim_id not in self._launching.in_flight]
            judged: list[SimWentSilent | SimGivenUp | SimLaunchFailed] = [
                *silence.judge(
                    sims,
                    now=now,
                    hearing=hearing,
                    timeout=timedelta(seconds=timing.heartbeat_timeout_s),
                    waiting=self._waiting,
                    waited_until=self._waited_until,
                ),
                *silence.overdue(
                    sims, now=now, waiting=self._waiting, limit=timedelta(seconds=timing.launch_timeout_s)
                ),
            ]
            for fact in judged:
                if not self._is_judged(fact.sim_id):
                    await self._judge(fact)

    def _is_judged(self, sim_id: str) -> bool:
        return self._judged_at.get(sim_id, 0) > self._term.fleet.position

    async def _judge(self, fact: SimWentSilent | SimGivenUp | SimLaunchFailed) -> None:
        _logger.warning(
            fact_type(fact), run_id=fact.run_id, sim_id=fact.sim_id, error=getattr(fact, "error", None)
        )
        try:
            appended = await self._term.log.append(fact)
        except LogUnavailable as error:
            _logger.warning(
                "judgement not stored; it is made again",
                run_id=fact.run_id,
                sim_id=fact.sim_id,
                error=str(error),
            )
            return
        if isinstance(fact, SimLaunchFailed):
            LAUNCHES_FAILED.inc()
        if self._term.fleet.sim(fact.sim_id, fact.run_id) is not None:
            self._judged_at[fact.sim_id] = appended.position

    async def _log_answers(self) -> bool:
        try:
            await self._term.log.last_position()
        except LogUnavailable:
            return False
        return True
