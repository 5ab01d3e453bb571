"""Plays a sample's recorded results again for every run that asks for it.

spec: request-simulation. Instruction traces are not bundled, so a `fresh` base run of a sample simulates nothing: its
kernels, progress and step timing are those that were recorded, told again under the new run's ids, marked `replay`.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import structlog
from cascade_core import subjects
from cascade_core.errors import AppendConflict, LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.kernels.facts import KernelFinished
from cascade_core.runs.facts import RunRequested
from cascade_core.sims.facts import (
    SimLaunched,
    SimLaunchFailed,
    SimLaunchStarted,
    SimLogArchived,
    SimOutcome,
    SimProgressed,
    SimReported,
    SimStepTimelineStored,
)
from cascade_core.sims.transitions import SimState

from cascade_cli.sample_facts import Told

_logger = structlog.get_logger(__name__)

ATTEMPT = "replay"
RETRY_S = 0.5


class Replayer:
    """Follows the runs. Keeps nothing of its own: what was played is in the log."""

    def __init__(self, log: JetStreamLog) -> None:
        self._log = log
        self._recorded: dict[tuple[str, str], tuple[str, str]] = {}
        """(trace id, config) -> (run id, sim id) of the sample's own run."""

    async def run(self) -> None:
        """Play for ever."""
        async with self._log.follow([subjects.ALL_RUNS], reader="samples") as batches:
            async for records in batches:
                for record in records:
                    fact = record.fact
                    if isinstance(fact, RunRequested) and fact.sample:
                        for planned in fact.sims:
                            self._recorded[fact.trace_id, planned.gpu_config] = (fact.run_id, planned.sim_id)
                    elif isinstance(fact, RunRequested) and fact.replay:
                        await self._patiently(fact)

    async def _patiently(self, asked: RunRequested) -> None:
        while True:
            try:
                await self._play(asked)
            except LogUnavailable as error:
                _logger.warning("replay is tried again", run_id=asked.run_id, error=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _play(self, asked: RunRequested) -> None:
        for planned in asked.sims:
            ended = await self._log.last(subjects.sim_fact(asked.run_id, planned.sim_id, "reported"))
            if (
                ended is not None
                and isinstance(ended.fact, SimReported)
                and ended.fact.state is not SimState.RUNNING
            ):
                continue
            source = self._recorded.get((asked.trace_id, planned.gpu_config))
            if not await self._taken(asked.run_id, planned.sim_id):
                continue
            if source is None:
                await self._refused(asked, planned.sim_id, planned.gpu_config)
                continue
            await self._log.append_all(opening(asked.run_id, planned.sim_id, _now()))
            recorded = [record.fact for record in await self._log.read(_results_of(*source))]
            await self._log.append_all(results(asked.run_id, planned.sim_id, recorded, _now()))
            _logger.info("recorded results replayed", run_id=asked.run_id, sim_id=planned.sim_id)

    async def _taken(self, run_id: str, sim_id: str) -> bool:
        """Take the sim before a launcher does; False where somebody else has it."""
        started = SimLaunchStarted(run_id=run_id, sim_id=sim_id, occurred_at=_now(), attempt=ATTEMPT)
        try:
            await self._log.append(started, event_id=f"replay:{sim_id}:taken", first=True)
        except AppendConflict:
            taken = await self._log.last(subjects.sim_fact(run_id, sim_id, "launch-started"))
            return (
                taken is not None
                and isinstance(taken.fact, SimLaunchStarted)
                and taken.fact.attempt == ATTEMPT
            )
        return True

    async def _refused(self, asked: RunRequested, sim_id: str, gpu_config: str) -> None:
        error = f"sample {asked.trace_id} has no recorded results for {gpu_config}"
        fact = SimLaunchFailed(run_id=asked.run_id, sim_id=sim_id, occurred_at=_now(), error=error)
        await self._log.append(fact, event_id=f"replay:{sim_id}:refused")


def opening(run_id: str, sim_id: str, now: datetime) -> list[Told]:
    """The sim runs: told before the recorded results are read, so that nobody judges it in the meantime."""
    ids = {"run_id": run_id, "sim_id": sim_id}
    facts: list[AnyFact] = [
        SimLaunched(**ids, occurred_at=now, launcher_ref=ATTEMPT),
        SimReported(**ids, occurred_at=now, state=SimState.RUNNING, engine="replay", attempt=ATTEMPT),
    ]
    return _told(sim_id, "opening", facts)


def results(run_id: str, sim_id: str, recorded: Sequence[AnyFact], now: datetime) -> list[Told]:
    """The recorded kernels, progress and step timing under the new sim's ids, and its end. Pure."""
    ids = {"run_id": run_id, "sim_id": sim_id, "occurred_at": now}
    kernels = [fact for fact in recorded if isinstance(fact, KernelFinished)]
    progress = [fact for fact in recorded if isinstance(fact, SimProgressed)][-1:]
    timing = [fact for fact in recorded if isinstance(fact, SimStepTimelineStored)][-1:]
    notes = [fact for fact in recorded if isinstance(fact, SimLogArchived)][-1:]
    outcome = SimOutcome(
        state=SimState.SUCCEEDED,
        exit_code=0,
        attempt=ATTEMPT,
        engine="replay",
        started_at=now,
        finished_at=now,
    )
    ended = SimReported(
        run_id=run_id,
        sim_id=sim_id,
        occurred_at=now,
        state=SimState.SUCCEEDED,
        exit_code=0,
        engine="replay",
        attempt=ATTEMPT,
    )
    facts: list[AnyFact] = [
        *[fact.model_copy(update=ids) for fact in kernels],
        *[fact.model_copy(update=ids) for fact in progress],
        *[fact.model_copy(update=ids) for fact in timing],
        # The replay has no log of its own; the sample's note says where the results come from.
        *[fact.model_copy(update=ids | {"last_heartbeat_at": now, "outcome": outcome}) for fact in notes],
        ended,
    ]
    return _told(sim_id, "results", facts)


def _results_of(run_id: str, sim_id: str) -> list[str]:
    return [
        subjects.kernels_of(run_id, sim_id),
        subjects.sim_fact(run_id, sim_id, "progressed"),
        subjects.sim_fact(run_id, sim_id, "step-timeline-stored"),
        subjects.sim_fact(run_id, sim_id, "log-archived"),
    ]


def _told(sim_id: str, part: str, facts: Sequence[AnyFact]) -> list[Told]:
    return [(fact, f"replay:{sim_id}:{part}:{number}") for number, fact in enumerate(facts)]


def _now() -> datetime:
    return datetime.now(UTC)
