"""Starting what is due: each run is prepared once, each sim taken by a fact that only one launcher can write."""

import asyncio
import uuid
from collections.abc import Callable
from functools import partial

import structlog
from cascade_core import subjects, telemetry
from cascade_core.errors import AppendConflict
from cascade_core.metrics import LAUNCHES_FAILED, LAUNCHES_IN_FLIGHT
from cascade_core.sims.facts import SimLaunched, SimLaunchFailed, SimLaunchStarted
from cascade_core.sims.state import Sim

from cascade_launcher import plan
from cascade_launcher.backends.protocol import Launch, LaunchError
from cascade_launcher.retry import persistently
from cascade_launcher.term import Term

_logger = structlog.get_logger(__name__)

TRIES = 12
"""About two and a half minutes of a bucket or a platform that does not answer."""


class Launching:
    """The launches of one term."""

    def __init__(self, term: Term, *, found: frozenset[str], stop: Callable[[str], None]) -> None:
        """found: sims that the backend held when the term began. stop: ends a sim that is over already."""
        self._term = term
        self._found = found
        self._stop = stop
        self._due = asyncio.Event()
        self._prepared: set[str] = set()
        self._refused: set[str] = set()
        """Runs that could not be prepared, until the log has said so of each of their sims."""
        self._preparing: dict[str, asyncio.Task[None]] = {}
        self._taken: set[str] = set()
        self.in_flight: set[str] = set()
        """Sims whose start is under way; whoever watches leaves them alone."""

    def look_again(self) -> None:
        """Something may have become due."""
        self._due.set()

    def is_started(self, sim: Sim) -> bool:
        """Whether the sim's start is behind it, and its process can be expected to exist."""
        return sim.sim_id not in self.in_flight and not plan.needs_launch(sim, self._found)

    def forget_sim(self, sim_id: str) -> None:
        """The sim is over."""
        self._taken.discard(sim_id)

    def forget_run(self, run_id: str) -> None:
        """Every sim of the run is over; a preparation still under way ends."""
        self._prepared.discard(run_id)
        self._refused.discard(run_id)
        preparing = self._preparing.get(run_id)
        if preparing is not None:
            preparing.cancel()

    async def run(self) -> None:
        """Launch what is due, for ever."""
        fleet, tasks = self._term.fleet, self._term.tasks
        while True:
            self._due.clear()
            for run_id in plan.runs_to_prepare(
                fleet.sims(),
                settled=self._prepared | self._refused,
                preparing=self._preparing,
                found=self._found,
            ):
                preparing = self._preparing[run_id] = tasks.create(self._prepare(run_id))
                # A task that is cancelled before it begins runs none of its own lines, `finally` included.
                preparing.add_done_callback(partial(self._end_preparation, run_id))
            for sim in plan.next_launches(
                fleet.sims(),
                prepared=self._prepared,
                taken=self._taken,
                in_flight=len(self.in_flight),
                found=self._found,
            ):
                self._taken.add(sim.sim_id)
                self.in_flight.add(sim.sim_id)
                LAUNCHES_IN_FLIGHT.set(len(self.in_flight))
                tasks.create(self._launch(sim))
            await self._due.wait()

    async def _prepare(self, run_id: str) -> None:
        live = self._term.fleet.run(run_id)
        assert live is not None
        try:
            with telemetry.fact_span("cascade.launcher.prepare", live.traceparent, {"run_id": run_id}):
                await persistently(
                    lambda: self._term.backend.prepare(live.run), tries=TRIES, what="launcher prepare"
                )
            self._prepared.add(run_id)
        except LaunchError as error:
            _logger.warning("run cannot be prepared", run_id=run_id, error=str(error))
            self._refused.add(run_id)
            await self._fail_unlaunched(run_id, str(error))
        except asyncio.CancelledError:
            if self._term.fleet.run(run_id) is not None:
                raise  # the launcher stops; else the run was cancelled, and only this task ends

    def _end_preparation(self, run_id: str, _: "asyncio.Task[None]") -> None:
        self._preparing.pop(run_id, None)
        self.look_again()

    async def _fail_unlaunched(self, run_id: str, error: str) -> None:
        for sim in list(self._term.fleet.of_run(run_id)):
            mine = sim.sim_id not in self._taken and sim.sim_id not in self._found
            if mine and plan.needs_launch(sim, self._found):
                self._taken.add(sim.sim_id)
                await self._fail(sim, error)

    async def _fail(self, sim: Sim, error: str) -> None:
        LAUNCHES_FAILED.inc()
        _logger.warning("sim cannot be launched", run_id=sim.run_id, sim_id=sim.sim_id, error=error)
        await self._term.append(
            SimLaunchFailed(occurred_at=self._term.now(), run_id=sim.run_id, sim_id=sim.sim_id, error=error)
        )

    async def _launch(self, sim: Sim) -> None:
        live = self._term.fleet.run(sim.run_id)
        started = False
        try:
            if live is None:
                return
            ids = {"run_id": sim.run_id, "sim_id": sim.sim_id}
            with telemetry.fact_span("cascade.launcher.launch", live.traceparent, ids):
                attempt = await self._take(sim)
                if attempt is None or self._is_over(sim):
                    return
                started = True
                await self._start(sim, live.run.trace_id, attempt)
        finally:
            self.in_flight.discard(sim.sim_id)
            LAUNCHES_IN_FLIGHT.set(len(self.in_flight))
            if started and self._is_over(sim):
                self._stop(sim.sim_id)
            self.look_again()

    def _is_over(self, sim: Sim) -> bool:
        return self._term.fleet.sim(sim.sim_id, sim.run_id) is None

    async def _take(self, sim: Sim) -> str | None:
        """The attempt under which this launcher may start the sim; None when another launcher has taken it."""
        if sim.launch_attempt is not None:
            return sim.launch_attempt
        attempt = uuid.uuid4().hex[:12]
        fact = SimLaunchStarted(
            occurred_at=self._term.now(), run_id=sim.run_id, sim_id=sim.sim_id, attempt=attempt
        )
        try:
            await self._term.append(fact, first=True)
        except AppendConflict:
            # Perhaps by this very call: an answer that was lost looks like a refusal the second time.
            taken = await self._term.log.last(subjects.subject_of(fact))
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
            ref = await persistently(lambda: self._term.backend.start(launch), tries=TRIES, what="launch")
        except LaunchError as error:
            await self._fail(sim, str(error))
            return
        _logger.info("sim launched", run_id=sim.run_id, sim_id=sim.sim_id, launcher_ref=ref)
        await self._term.append(
            SimLaunched(occurred_at=self._term.now(), run_id=sim.run_id, sim_id=sim.sim_id, launcher_ref=ref)
        )
