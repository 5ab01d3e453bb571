"""Answers every scenario that the log asks for, exactly once however many instances run.

What is asked and not answered is found in the log itself, so a killed instance loses nothing: another one, or the
same one after its restart, finds the scenario unanswered once the lease on it has run out. The lease spares double
work; the answer's event id and its place as the first of its subject keep a second answer out.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import structlog
from cascade_core import subjects, telemetry
from cascade_core.errors import AppendConflict, Corrupt, Refused, Unavailable
from cascade_core.jetstream.lease import kept, try_acquire
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.metrics import SCENARIO_SECONDS
from cascade_core.record import Recorded
from cascade_core.scenarios.facts import ScenarioCompleted, ScenarioFailed, ScenarioRequested
from cascade_core.tasks import TaskSet
from nats.aio.client import Client

from cascade_requestsim.answering import Base, answer
from cascade_requestsim.base_store import BaseStore

_logger = structlog.get_logger(__name__)

RETRY_EVERY_S = 1.0
"""How often what could not be answered is tried again: its lease is held elsewhere, or a server is away."""
FOLLOW_BATCH = 64
_BUGS = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError, RecursionError)
"""What a mistake in the model would raise. One bad scenario is answered with 500; it must not stop the others."""


class ScenarioReactor:
    """Unanswered scenarios of the log, and the threads that compute them."""

    def __init__(
        self,
        log: JetStreamLog,
        client: Client,
        bases: BaseStore,
        *,
        executor: Executor,
        holder: str,
        threads: int,
        max_age_s: float,
    ) -> None:
        self._log = log
        self._client = client
        self._bases = bases
        self._executor = executor
        self._holder = holder
        self._threads = threads
        self._max_age_s = max_age_s
        self._due: asyncio.Queue[str] = asyncio.Queue()
        self._open: set[str] = set()
        """Scenarios that are queued, under way or waiting for another try."""
        self._later: set[str] = set()
        self.answered = 0
        """Answers that this instance stored; the same of another instance do not count."""

    async def run(self) -> None:
        """Answer for ever."""
        position = await self._patiently_newest()
        together = TaskSet()
        together.create(self._follow(position))
        for _ in range(self._threads):
            together.create(self._work())
        together.create(self._retry())
        await together.wait()

    async def _patiently_newest(self) -> int:
        """The position to follow from, with everything unanswered before it queued."""
        while True:
            try:
                position = await self._log.newest([subjects.ALL_SCENARIO_REQUESTS])
                await self._find_unanswered()
            except Unavailable as error:
                _logger.warning("waiting for the event log", error=str(error))
                await asyncio.sleep(RETRY_EVERY_S)
            else:
                return position

    async def _find_unanswered(self) -> None:
        asked: dict[str, None] = {}
        answered: set[str] = set()
        for subject in await self._log.subjects(subjects.ALL_SCENARIOS):
            named = subjects.scenario_of_subject(subject)
            if named is not None and named[1] == "requested":
                asked[named[0]] = None
            elif named is not None:
                answered.add(named[0])
        for scenario_id in asked:
            if scenario_id not in answered:
                self._queue(scenario_id)

    async def _follow(self, position: int) -> None:
        filters = [subjects.ALL_SCENARIO_REQUESTS]
        async with self._log.follow(
            filters, after=position, batch=FOLLOW_BATCH, reader="requestsim"
        ) as batches:
            async for records in batches:
                for record in records:
                    if isinstance(record.fact, ScenarioRequested):
                        self._queue(record.fact.scenario_id)

    def _queue(self, scenario_id: str) -> None:
        if scenario_id not in self._open:
            self._open.add(scenario_id)
            self._due.put_nowait(scenario_id)

    async def _work(self) -> None:
        while True:
            scenario_id = await self._due.get()
            try:
                done = await self._settled(scenario_id)
            except Unavailable as error:
                _logger.warning("scenario is tried again", scenario_id=scenario_id, error=str(error))
                done = False
            if done:
                self._open.discard(scenario_id)
            else:
                self._later.add(scenario_id)

    async def _settled(self, scenario_id: str) -> bool:
        """Whether the scenario needs no more work here. Raises Unavailable."""
        async with self._leased(scenario_id) as mine:
            if not mine:
                return await self._is_answered(scenario_id)
            if await self._is_answered(scenario_id):
                return True
            record = await self._log.last(subjects.scenario_fact(scenario_id, "requested"))
            if record is None or not isinstance(record.fact, ScenarioRequested):
                return True  # purged meanwhile
            with telemetry.fact_span(
                "cascade.requestsim.answer", record.traceparent, {"scenario_id": scenario_id}
            ):
                await self._answer(record)
            return True

    @asynccontextmanager
    async def _leased(self, scenario_id: str) -> AsyncIterator[bool]:
        lease = await try_acquire(self._client, f"scenario.{scenario_id}", self._holder)
        if lease is None:
            yield False
            return
        async with kept(lease):
            yield True

    async def _is_answered(self, scenario_id: str) -> bool:
        found = await self._log.subjects(subjects.scenario_filter(scenario_id))
        named = [subjects.scenario_of_subject(subject) for subject in found]
        return any(name is not None and name[1] != "requested" for name in named)

    async def _answer(self, record: Recorded[object]) -> None:
        asked = record.fact
        assert isinstance(asked, ScenarioRequested)
        outcome = await self._outcome(asked)
        try:
            stored = await self._log.append(outcome, event_id=f"scenario:{asked.scenario_id}", first=True)
            is_first = not stored.duplicate
        except AppendConflict:
            is_first = False  # the first answer has left the log since
        if is_first:
            self.answered += 1
        else:
            _logger.info("answered elsewhere", scenario_id=asked.scenario_id)

    async def _outcome(self, asked: ScenarioRequested) -> ScenarioCompleted | ScenarioFailed:
        age_s = (_now() - asked.occurred_at).total_seconds()
        if age_s > self._max_age_s:
            detail = (
                f"the scenario waited for {age_s:.0f} s, longer than {self._max_age_s:.0f} s, and was given up; "
                f"base run {asked.run_id}, sim {asked.sim_id}. Send it again."
            )
            return _failed(asked, 504, detail)
        try:
            base = await self._bases.base(asked)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, _completed, base, asked, _now())
        except Refused as refusal:
            return _failed(asked, refusal.status, str(refusal))
        except Corrupt as error:
            _logger.exception("stored data is damaged", scenario_id=asked.scenario_id)
            return _failed(asked, 500, f"stored data is damaged: {error}. Run `cascade doctor`.")
        except _BUGS as error:
            _logger.exception("the request simulator has a bug", scenario_id=asked.scenario_id)
            detail = (
                f"the request simulator failed on this scenario ({type(error).__name__}); please report it"
            )
            return _failed(asked, 500, detail)

    async def _retry(self) -> None:
        while True:
            await asyncio.sleep(RETRY_EVERY_S)
            later, self._later = self._later, set()
            for scenario_id in later:
                self._due.put_nowait(scenario_id)


def _completed(base: Base, asked: ScenarioRequested, now: datetime) -> ScenarioCompleted:
    started = time.thread_time()
    try:
        result = answer(base, asked)
    finally:
        # One that is refused at the step limit has taken its time, too.
        SCENARIO_SECONDS.observe(time.thread_time() - started)
    return ScenarioCompleted(scenario_id=asked.scenario_id, occurred_at=now, result=result)


def _failed(asked: ScenarioRequested, status: int, detail: str) -> ScenarioFailed:
    return ScenarioFailed(scenario_id=asked.scenario_id, occurred_at=_now(), status=status, detail=detail)


def _now() -> datetime:
    return datetime.now(UTC)
