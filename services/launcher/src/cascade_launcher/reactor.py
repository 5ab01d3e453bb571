"""Turns what the log asks for into sims on a backend, and what becomes of them into facts.

It decides from state that it folds itself, and every act is safe to repeat: a sim is taken by a fact that
only one launcher can write, a backend's `start` finds what was started before, and judgements that come too
late are set aside by the fold. So it may be killed at any moment, and started again.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import structlog
from cascade_core import subjects, telemetry
from cascade_core.errors import AppendConflict, LogUnavailable, Unavailable
from cascade_core.facts import AnyFact, fact_type
from cascade_core.ports import Clock, EventLog
from cascade_core.record import Recorded
from cascade_core.sims.facts import SimGivenUp, SimLaunched, SimLaunchFailed, SimLaunchStarted, SimWentSilent
from cascade_core.sims.state import Sim

from cascade_launcher import plan, silence
from cascade_launcher.backends.protocol import (
    Backend,
    Ended,
    Gone,
    Launch,
    LaunchError,
    Running,
    Vital,
    Waiting,
)
from cascade_launcher.endings import ending
from cascade_launcher.fleet import FILTERS, Fleet, Over
from cascade_launcher.retry import growing_delays, persistently
from cascade_launcher.task_set import TaskSet

_logger = structlog.get_logger(__name__)

GOODBYE_PATIENCE_S = 10.0
"""How long a simulator may take to exit after its final heartbeat."""
PREPARE_RETRIES = 12
"""About four minutes of an unreachable bucket or platform, with the delays below."""
START_RETRIES = 8
SIGHTINGS = 2
"""Looks in a row that must find a simulator ended: its final heartbeat may still be on its way to this
reader."""


class FactLog(EventLog, Protocol):
    """The event log, with paged reading of what is stored now."""

    def pages(self, filters: Sequence[str], *, after: int = 0) -> AsyncIterator[list[Recorded[AnyFact]]]:
        """What matches and is stored now, page by page."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The waits of the reactor."""

    heartbeat_timeout_s: float = 60.0
    launch_timeout_s: float = 3600.0
    check_every_s: float = silence.CHECK_EVERY_S


class Reactor:
    """One term of leadership: folds the log, launches, watches, stops."""

    def __init__(self, log: FactLog, backend: Backend, clock: Clock, timing: Timing) -> None:
        self._log = log
        self._backend = backend
        self._clock = clock
        self._timing = timing
        self._fleet = Fleet()
        self._tasks: TaskSet
        self._wake = asyncio.Event()
        self._prepared: set[str] = set()
        self._preparing: dict[str, asyncio.Task[None]] = {}
        self._taken: set[str] = set()
        self._in_flight: set[str] = set()
        self._stopping: set[str] = set()
        self._finishing: set[str] = set()
        self._found: frozenset[str] = frozenset()
        """Sims that the backend held when this term began."""
        self._sightings: dict[str, int] = {}
        self._waiting: dict[str, str] = {}
        self._judged_at: dict[str, int] = {}
        """Position of the last judgement on each sim: no second one before the fold has seen the first."""

    async def run(self) -> None:
        """Lead until cancelled. Raises LogUnavailable when the log cannot be read at the start."""
        async for page in self._log.pages(FILTERS):
            for record in page:
                self._fleet.apply(record)
        self._found = frozenset(await self._first_census())
        _logger.info(
            "caught up with the log",
            position=self._fleet.position,
            live_sims=len(self._fleet.sim_ids()),
            found=len(self._found),
        )
        self._tasks = TaskSet()
        self._tasks.create(self._follow())
        self._tasks.create(self._launch_what_is_due())
        self._tasks.create(self._watch())
        self._tasks.create(self._judge_silence())
        await self._tasks.wait()

    async def _first_census(self) -> Mapping[str, Vital]:
        """What the backend holds; waited for, since acting without it could start a sim twice."""
        for delay_s in growing_delays():
            try:
                return await self._backend.census()
            except Unavailable as error:
                _logger.warning("the backend does not answer; nothing is launched", error=str(error))
                await asyncio.sleep(delay_s)
        raise AssertionError("unreachable")

    async def give_up_all(self, error: str) -> list[str]:
        """Say of every sim with a process that it is over; returns their ids. For an orderly stop, after
        `run`."""
        given_up: list[str] = []
        for sim_id, vital in (await self._backend.census()).items():
            sim = next((sim for sim in self._fleet.sims() if sim.sim_id == sim_id), None)
            if sim is None or isinstance(vital, Ended | Gone):
                continue
            await self._log.append(
                SimGivenUp(
                    occurred_at=self._clock.now(),
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
            record = await self._log.last(subject)
            if record is not None:
                seen.append(record.fact.occurred_at)
        return max(seen, default=None)

    # ---- reading

    async def _follow(self) -> None:
        async with self._log.follow(FILTERS, after=self._fleet.position) as batches:
            async for batch in batches:
                for record in batch:
                    for ended in self._fleet.apply(record):
                        self._on_ended(ended)
                self._wake.set()

    def _on_ended(self, over: Over) -> None:
        sim = over.sim
        _logger.info("sim ended", run_id=sim.run_id, sim_id=sim.sim_id, state=sim.state, error=sim.error)
        if (
            sim.sim_id not in self._in_flight
        ):  # else the launch itself stops it, once it knows what it started
            self._stop_soon(sim.sim_id, patience_s=GOODBYE_PATIENCE_S if over.said_goodbye else 0.0)
        self._forget(sim.sim_id)
        if self._fleet.run(sim.run_id) is None:
            self._prepared.discard(sim.run_id)
            preparing = self._preparing.get(sim.run_id)
            if preparing is not None:
                preparing.cancel()
            self._tasks.create(self._finish(sim.run_id))

    def _forget(self, sim_id: str) -> None:
        self._taken.discard(sim_id)
        self._sightings.pop(sim_id, None)
        self._waiting.pop(sim_id, None)
        self._judged_at.pop(sim_id, None)

    # ---- launching

    async def _launch_what_is_due(self) -> None:
        while True:
            self._wake.clear()
            for run_id in plan.runs_to_prepare(
                self._fleet.sims(), settled=self._prepared, preparing=self._preparing, found=self._found
            ):
                self._preparing[run_id] = self._tasks.create(self._prepare(run_id))
            for sim in plan.next_launches(
                self._fleet.sims(),
                prepared=self._prepared,
                taken=self._taken,
                in_flight=len(self._in_flight),
                found=self._found,
            ):
                self._taken.add(sim.sim_id)
                self._in_flight.add(sim.sim_id)
                self._tasks.create(self._launch(sim))
            await self._wake.wait()

    async def _prepare(self, run_id: str) -> None:
        live = self._fleet.run(run_id)
        assert live is not None
        try:
            with (
                telemetry.continued(live.traceparent),
                telemetry.tracer.start_as_current_span("cascade.launcher.prepare"),
            ):
                await persistently(
                    lambda: self._backend.prepare(live.run), tries=PREPARE_RETRIES, what="launcher prepare"
                )
            self._prepared.add(run_id)
        except LaunchError as error:
            _logger.warning("run cannot be prepared", run_id=run_id, error=str(error))
            await self._fail_unlaunched(run_id, str(error))
        except asyncio.CancelledError:
            if self._fleet.run(run_id) is not None:
                raise  # the launcher stops; else the run was cancelled, and only this task ends
        finally:
            self._preparing.pop(run_id, None)
            self._wake.set()

    async def _fail_unlaunched(self, run_id: str, error: str) -> None:
        for sim in list(self._fleet.of_run(run_id)):
            unlaunched = sim.sim_id not in self._taken and sim.sim_id not in self._found
            if unlaunched and plan.needs_launch(sim, self._found):
                self._taken.add(sim.sim_id)
                await self._fail_launch(sim, error)

    async def _fail_launch(self, sim: Sim, error: str) -> None:
        _logger.warning("sim cannot be launched", run_id=sim.run_id, sim_id=sim.sim_id, error=error)
        await self._append(
            SimLaunchFailed(occurred_at=self._clock.now(), run_id=sim.run_id, sim_id=sim.sim_id, error=error)
        )

    async def _launch(self, sim: Sim) -> None:
        live = self._fleet.run(sim.run_id)
        started = False
        try:
            if live is None:
                return
            with (
                telemetry.continued(live.traceparent),
                telemetry.tracer.start_as_current_span("cascade.launcher.launch"),
            ):
                attempt = await self._take(sim)
                if attempt is None or self._fleet.sim(sim.sim_id, sim.run_id) is None:
                    return
                started = True
                await self._start(sim, live.run.trace_id, attempt)
        finally:
            self._in_flight.discard(sim.sim_id)
            if started and self._fleet.sim(sim.sim_id, sim.run_id) is None:
                self._stop_soon(sim.sim_id, patience_s=0.0)
            self._wake.set()

    async def _take(self, sim: Sim) -> str | None:
        """The attempt under which this launcher may start the sim; None when another launcher has taken
        it."""
        if sim.launch_attempt is not None:
            return sim.launch_attempt
        attempt = uuid.uuid4().hex[:12]
        try:
            await self._append(
                SimLaunchStarted(
                    occurred_at=self._clock.now(), run_id=sim.run_id, sim_id=sim.sim_id, attempt=attempt
                ),
                first=True,
            )
        except AppendConflict:
            # Perhaps by this very call: an answer that was lost looks like a refusal the second time.
            taken = await self._log.last(subjects.sim_fact(sim.run_id, sim.sim_id, "launch-started"))
            if taken is None or not isinstance(taken.fact, SimLaunchStarted) or taken.fact.attempt != attempt:
                self._taken.discard(sim.sim_id)
                return None
        return attempt

    async def _start(self, sim: Sim, trace_id: str, attempt: str) -> None:
        launch = Launch(
            sim_id=sim.sim_id,
            run_id=sim.run_id,
            trace_id=trace_id,
            gpu_config=sim.gpu_config,
            replica=sim.replica,
            attempt=attempt,
        )
        try:
            ref = await persistently(lambda: self._backend.start(launch), tries=START_RETRIES, what="launch")
        except LaunchError as error:
            await self._fail_launch(sim, str(error))
            return
        _logger.info("sim launched", run_id=sim.run_id, sim_id=sim.sim_id, launcher_ref=ref)
        await self._append(
            SimLaunched(occurred_at=self._clock.now(), run_id=sim.run_id, sim_id=sim.sim_id, launcher_ref=ref)
        )

    # ---- watching

    async def _watch(self) -> None:
        while True:
            try:
                await self._look(await self._backend.census())
            except Unavailable as error:
                _logger.warning("the backend does not answer", error=str(error))
            await asyncio.sleep(self._backend.poll_every_s)

    async def _look(self, census: Mapping[str, Vital]) -> None:
        live = {sim.sim_id: sim for sim in self._fleet.sims()}
        for sim_id in census.keys() - live.keys() - self._in_flight - self._stopping:
            self._stop_soon(sim_id, patience_s=0.0)  # it ended while no launcher was looking
        for sim_id, sim in live.items():
            if sim_id in self._in_flight or plan.needs_launch(sim, self._found):
                continue
            match census.get(sim_id, Gone()):
                case Waiting(reason):
                    self._waiting[sim_id] = reason
                    self._sightings.pop(sim_id, None)
                case Running():
                    self._waiting.pop(sim_id, None)
                    self._sightings.pop(sim_id, None)
                case Ended() | Gone():
                    self._sightings[sim_id] = self._sightings.get(sim_id, 0) + 1
                    if self._sightings[sim_id] >= SIGHTINGS:
                        await self._report_over(sim)

    async def _report_over(self, sim: Sim) -> None:
        if self._judged_at.get(sim.sim_id, 0) > self._fleet.position:
            return
        over = await self._backend.alive(sim.sim_id)  # with its last output, which a census leaves out
        if not isinstance(over, Ended | Gone):
            return
        error = ending(over, heard=sim.last_heartbeat_at is not None)
        now = self._clock.now()
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

    async def _judge_silence(self) -> None:
        timing = self._timing
        now = self._clock.now()
        hearing = silence.Hearing(since=now, checked_at=now)
        while True:
            await asyncio.sleep(timing.check_every_s)
            now = self._clock.now()
            hearing = silence.still_hearing(
                hearing,
                now,
                reachable=await self._log_answers(),
                longest_gap=timedelta(seconds=3 * timing.check_every_s + 5),
            )
            judged: list[SimWentSilent | SimGivenUp | SimLaunchFailed] = []
            sims = [sim for sim in self._fleet.sims() if sim.sim_id not in self._in_flight]
            judged += silence.judge(
                sims,
                now=now,
                hearing=hearing,
                timeout=timedelta(seconds=timing.heartbeat_timeout_s),
                waiting=self._waiting,
            )
            judged += silence.overdue(
                sims, now=now, waiting=self._waiting, limit=timedelta(seconds=timing.launch_timeout_s)
            )
            for fact in judged:
                if self._judged_at.get(fact.sim_id, 0) <= self._fleet.position:
                    await self._judge(fact)

    async def _judge(self, fact: SimWentSilent | SimGivenUp | SimLaunchFailed) -> None:
        _logger.warning(
            fact_type(fact), run_id=fact.run_id, sim_id=fact.sim_id, error=getattr(fact, "error", None)
        )
        try:
            appended = await self._log.append(fact)
        except LogUnavailable as error:
            _logger.warning("judgement not stored; it is made again", sim_id=fact.sim_id, error=str(error))
            return
        if self._fleet.sim(fact.sim_id, fact.run_id) is not None:
            self._judged_at[fact.sim_id] = appended.position

    async def _log_answers(self) -> bool:
        try:
            await self._log.last_position()
        except LogUnavailable:
            return False
        return True

    # ---- stopping

    def _stop_soon(self, sim_id: str, *, patience_s: float) -> None:
        if sim_id not in self._stopping:
            self._stopping.add(sim_id)
            self._tasks.create(self._stop(sim_id, patience_s=patience_s))

    async def _stop(self, sim_id: str, *, patience_s: float) -> None:
        try:
            for delay_s in growing_delays():
                try:
                    await self._backend.stop(sim_id, patience_s=patience_s)
                except Unavailable as error:
                    _logger.warning("sim not stopped yet", sim_id=sim_id, error=str(error))
                    await asyncio.sleep(delay_s)
                else:
                    return
        finally:
            self._stopping.discard(sim_id)

    async def _finish(self, run_id: str) -> None:
        try:
            await persistently(lambda: self._backend.finish(run_id), tries=START_RETRIES, what="finish")
        except LaunchError as error:
            _logger.warning(
                "what the run's preparation made was left behind", run_id=run_id, error=str(error)
            )

    # ---- writing

    async def _append(self, fact: AnyFact, *, first: bool = False) -> int:
        """Store a fact, however long the log takes to come back. The same event id each time: stored once."""
        event_id = uuid.uuid4().hex
        for delay_s in growing_delays():
            try:
                return (await self._log.append(fact, event_id=event_id, first=first)).position
            except LogUnavailable as error:
                _logger.warning("fact not stored yet", fact=fact_type(fact), error=str(error))
                await asyncio.sleep(delay_s)
        raise AssertionError("unreachable")
