"""The event log in memory, for tests of reactors without a server. Passes the same contract suite as the real one."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from cascade_core import facts, subjects, telemetry
from cascade_core.errors import AppendConflict, LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.record import Appended, Recorded

PAGE = 256


class MemoryLog:
    """Implements `ports.EventLog`. Facts pass through the codec, so what could not be stored is refused here too.

    `trouble`, where it is set, is asked before every append: it may raise, as an unreachable server does.
    `lose_acks` appends answer LogUnavailable although they were stored.
    """

    def __init__(self) -> None:
        self.lose_acks = 0
        self.trouble: Callable[[AnyFact], None] | None = None
        self._stored: dict[int, tuple[str, bytes, str, str | None]] = {}
        self._positions: dict[str, int] = {}
        self._next = 1
        self._grown = asyncio.Event()
        self._random_ids = itertools.count(1)

    def forget_event_ids(self) -> None:
        """What the server does when its duplicate window has passed."""
        self._positions.clear()

    @property
    def facts(self) -> list[AnyFact]:
        """Everything that is stored, in order."""
        return [self._record(position).fact for position in self._stored]

    async def append(
        self, fact: AnyFact, *, event_id: str | None = None, liveness: bool = False, first: bool = False
    ) -> Appended:
        """See `ports.EventLog.append`."""
        return await self._append(
            fact, event_id, telemetry.current_traceparent(), liveness=liveness, first=first
        )

    async def _append(
        self,
        fact: AnyFact,
        event_id: str | None,
        traceparent: str | None,
        *,
        liveness: bool = False,
        first: bool = False,
    ) -> Appended:
        await asyncio.sleep(0)
        subject, body = subjects.subject_of(fact, liveness=liveness), facts.encode(fact)
        if self.trouble is not None:
            self.trouble(fact)
        event_id = event_id or f"random-{next(self._random_ids)}"
        if event_id in self._positions:
            return self._answer(Appended(self._positions[event_id], duplicate=True))
        if first and any(stored == subject for stored, *_ in self._stored.values()):
            raise AppendConflict(f"{subject} was written first by somebody else")
        position = self._next
        self._next += 1
        self._stored[position] = (subject, body, event_id, traceparent)
        self._positions[event_id] = position
        self._grown.set()
        return self._answer(Appended(position))

    async def append_all(
        self,
        facts_: Sequence[tuple[AnyFact, str | None]],
        *,
        traceparents: Sequence[str | None] | None = None,
    ) -> list[Appended]:
        """See `ports.EventLog.append_all`."""
        if traceparents is None:
            traceparents = [telemetry.current_traceparent()] * len(facts_)
        return [
            await self._append(fact, event_id, traceparent)
            for (fact, event_id), traceparent in zip(facts_, traceparents, strict=True)
        ]

    @asynccontextmanager
    async def follow(
        self, filters: Sequence[str], *, after: int = 0, batch: int = 512, reader: str | None = None
    ) -> AsyncIterator[AsyncIterator[list[Recorded[AnyFact]]]]:
        """See `ports.EventLog.follow`."""
        del reader  # shows no metrics
        yield self._following(filters, after, batch)

    async def _following(
        self, filters: Sequence[str], after: int, batch: int
    ) -> AsyncIterator[list[Recorded[AnyFact]]]:
        while True:
            found = self._matching(filters, after)[:batch]
            if found:
                yield [self._record(position) for position in found]
                after = found[-1]
            else:
                self._grown.clear()
                await self._grown.wait()

    async def read(self, filters: Sequence[str], *, after: int = 0) -> list[Recorded[AnyFact]]:
        """See `ports.EventLog.read`."""
        await asyncio.sleep(0)
        return [self._record(position) for position in self._matching(filters, after)]

    async def pages(
        self, filters: Sequence[str], *, after: int = 0
    ) -> AsyncIterator[list[Recorded[AnyFact]]]:
        """See `ports.EventLog.pages`."""
        positions = self._matching(filters, after)
        for start in range(0, len(positions), PAGE):
            page = [self._record(p) for p in positions[start : start + PAGE] if p in self._stored]
            if page:
                yield page
            await asyncio.sleep(0)

    async def newest(self, filters: Sequence[str]) -> int:
        """See `ports.EventLog.newest`."""
        return max(self._matching(filters, 0), default=0)

    async def at(self, position: int) -> Recorded[AnyFact] | None:
        """See `ports.EventLog.at`."""
        await asyncio.sleep(0)
        return self._record(position) if position in self._stored else None

    async def last(self, subject: str) -> Recorded[AnyFact] | None:
        """See `ports.EventLog.last`."""
        position = await self.newest([subject])
        return self._record(position) if position else None

    async def last_position(self) -> int:
        """See `ports.EventLog.last_position`."""
        return self._next - 1

    async def subjects(self, subject_filter: str) -> Mapping[str, int]:
        """See `ports.EventLog.subjects`."""
        return Counter(
            subject for subject, *_ in self._stored.values() if subjects.matches(subject_filter, subject)
        )

    async def purge(self, subject: str, *, keep: int = 0) -> None:
        """See `ports.EventLog.purge`."""
        positions = self._matching([subject], 0)
        for position in positions[: len(positions) - keep]:
            del self._stored[position]

    def _answer(self, appended: Appended) -> Appended:
        if self.lose_acks > 0:
            self.lose_acks -= 1
            raise LogUnavailable("the answer was lost")
        return appended

    def _matching(self, filters: Sequence[str], after: int) -> list[int]:
        return [
            position
            for position, (subject, *_) in self._stored.items()
            if position > after and any(subjects.matches(one, subject) for one in filters)
        ]

    def _record(self, position: int) -> Recorded[AnyFact]:
        _, body, event_id, traceparent = self._stored[position]
        return Recorded(
            position=position, fact=facts.decode(body), event_id=event_id, traceparent=traceparent
        )
