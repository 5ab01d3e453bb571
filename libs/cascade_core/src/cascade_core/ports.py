"""What services need from the world, in their own words. Real adapters and in-memory ones pass the same suites."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cascade_core.facts import AnyFact
from cascade_core.record import Appended, Recorded


class EventLog(Protocol):
    """The one total order of facts."""

    async def append(
        self, fact: AnyFact, *, event_id: str | None = None, liveness: bool = False, first: bool = False
    ) -> Appended:
        """Store one fact durably, then return its position.

        event_id: deterministic where a retry by anyone must not store it again. Random when left out.
        liveness: a heartbeat that only repeats the sim's state; kept apart so that it can be purged.
        first: demand to be the first fact of its subject. Give an `event_id` as well, or a repeat after a lost answer
            conflicts with the fact that it repeats.
        Raises LogUnavailable (503), AppendConflict (only with `first`).
        """
        ...

    async def append_all(
        self,
        facts: Sequence[tuple[AnyFact, str | None]],
        *,
        traceparents: Sequence[str | None] | None = None,
    ) -> list[Appended]:
        """Store `(fact, event_id)` pairs in this order, pipelined.

        traceparents: each fact's W3C trace context, where the facts come from different requests; the context of the
            work under way where it is left out.
        Raises LogUnavailable with any part of them stored. Append the whole list again with the same ids: what is
        missing is then stored, possibly behind later ones. A fact that says that others are stored goes into a list
        of its own, after them.
        """
        ...

    def follow(
        self, filters: Sequence[str], *, after: int = 0, batch: int = 512, reader: str | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[list[Recorded[AnyFact]]]]:
        """Every fact that matches, in stream order, from `after` on and for ever, in batches as they come.

        reader: the name under which the metrics show how far this reader is; not shown where it is left out.
        The iterator survives lost connections by itself; it never skips and never repeats a position.
        """
        ...

    async def read(self, filters: Sequence[str], *, after: int = 0) -> list[Recorded[AnyFact]]:
        """What matches and is stored now. For small sets: one sim, one scenario."""
        ...

    def pages(self, filters: Sequence[str], *, after: int = 0) -> AsyncIterator[list[Recorded[AnyFact]]]:
        """What `read` returns, page by page, so that a long log need not be in memory at once."""
        ...

    async def newest(self, filters: Sequence[str]) -> int:
        """The newest position that matches any of `filters` now; 0 where nothing does."""
        ...

    async def at(self, position: int) -> Recorded[AnyFact] | None:
        """The fact at `position`; None where it was purged."""
        ...

    async def last(self, subject: str) -> Recorded[AnyFact] | None:
        """The newest fact of exactly this subject."""
        ...

    async def last_position(self) -> int:
        """The newest position of the whole log; 0 when it is empty."""
        ...

    async def subjects(self, subject_filter: str) -> Mapping[str, int]:
        """Subjects that match and hold facts now, with their number of facts."""
        ...

    async def purge(self, subject: str, *, keep: int = 0) -> None:
        """Drop a subject's facts except the newest `keep`. Only for what retention allows."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing."""

    key: str
    size: int
    etag: str
    modified_at: datetime | None = None


class Bucket(Protocol):
    """One S3 bucket."""

    def objects(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        """Every object under `prefix`, page by page."""
        ...

    async def directories(self, prefix: str) -> list[str]:
        """The names directly under `prefix` (which ends in `/`) that hold objects, without slashes."""
        ...

    async def level(self, prefix: str) -> tuple[list[ObjectInfo], list[str]]:
        """One level of the tree: the objects directly under `prefix`, and the names of the folders there."""
        ...

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        """The object's bytes from `start` up to, not including, `end`. Raises NotFound, BucketUnavailable."""
        ...

    def stream(self, key: str, *, start: int = 0, chunk: int = 1 << 18) -> AsyncIterator[bytes]:
        """The object's bytes in pieces. Raises NotFound, BucketUnavailable."""
        ...

    async def head(self, key: str) -> ObjectInfo | None:
        """What is known of one object; None where there is none."""
        ...

    async def put(self, key: str, body: bytes, *, content_type: str | None = None) -> ObjectInfo:
        """Store an object whole. Raises BucketUnavailable."""
        ...

    async def put_stream(
        self, key: str, body: AsyncIterator[bytes], *, content_type: str | None = None
    ) -> ObjectInfo:
        """Store an object in parts without holding it in memory. Nothing is visible until it is whole."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that are gone already do not matter."""
        ...


class Clock(Protocol):
    """The time, as an argument to whoever decides by it."""

    def now(self) -> datetime:
        """UTC, aware."""
        ...
