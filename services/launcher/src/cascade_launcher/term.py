"""What the parts of the reactor share during one term of leadership."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog
from cascade_core.errors import LogUnavailable
from cascade_core.facts import AnyFact, fact_type
from cascade_core.ports import Clock, EventLog
from cascade_core.record import Recorded
from cascade_core.tasks import TaskSet

from cascade_launcher import silence
from cascade_launcher.backends.protocol import Backend
from cascade_launcher.fleet import Fleet
from cascade_launcher.retry import growing_delays

_logger = structlog.get_logger(__name__)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """The world as one leader sees it."""

    log: FactLog
    backend: Backend
    clock: Clock
    timing: Timing
    fleet: Fleet
    tasks: TaskSet

    def now(self) -> datetime:
        """UTC, aware."""
        return self.clock.now()

    async def append(self, fact: AnyFact, *, first: bool = False) -> int:
        """Store a fact, however long the log takes to come back. The same event id each time: stored once.

        Raises AppendConflict (only with `first`).
        """
        event_id = uuid.uuid4().hex
        for delay_s in growing_delays():
            try:
                return (await self.log.append(fact, event_id=event_id, first=first)).position
            except LogUnavailable as error:
                _logger.warning("fact not stored yet", fact=fact_type(fact), error=str(error))
                await asyncio.sleep(delay_s)
        raise AssertionError("unreachable")
