"""EventLog on a JetStream stream."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import api
from nats.js.errors import APIError, NotFoundError

from cascade_core import facts, subjects, telemetry
from cascade_core.errors import AppendConflict, LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.jetstream.claim_check import CLAIM_HEADER, Claims, fits_message
from cascade_core.jetstream.codec import headers_of, recorded
from cascade_core.jetstream.follow import follow
from cascade_core.jetstream.follow import stored as read_stored
from cascade_core.jetstream.stream_subjects import subjects_in
from cascade_core.metrics import APPENDS_REFUSED, FACTS_APPENDED
from cascade_core.record import Appended, Recorded

APPEND_TIMEOUT_S = 5.0
READ_BATCH = 256
_WRONG_LAST_SEQUENCE = (10071, 10164)
PIPELINE = 256
"""Appends under way at once in `append_all`."""


class JetStreamLog:
    """The event log of one connection. Cheap: it holds no state but the connection."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._js = client.jetstream(timeout=APPEND_TIMEOUT_S, publish_async_max_pending=4 * PIPELINE)
        self._claims = Claims(client)

    async def append(
        self, fact: AnyFact, *, event_id: str | None = None, liveness: bool = False, first: bool = False
    ) -> Appended:
        """Store one fact durably. See `ports.EventLog.append`."""
        with _refusals_counted():
            appended = await self._append(fact, event_id=event_id, liveness=liveness, first=first)
        if not appended.duplicate:
            FACTS_APPENDED.labels(facts.fact_type(fact)).inc()
        return appended

    async def _append(self, fact: AnyFact, *, event_id: str | None, liveness: bool, first: bool) -> Appended:
        subject = subjects.subject_of(fact, liveness=liveness)
        body, headers = await self._message(subject, fact, event_id, telemetry.current_traceparent())
        if first:
            headers["Nats-Expected-Last-Subject-Sequence"] = "0"
        self._check_connected()
        try:
            ack = await self._js.publish(subject, body, headers=headers)
        except APIError as error:
            await self._drop_claims([headers])
            refusal = _translated(error, subject)
            if isinstance(refusal, AppendConflict) and event_id is not None:
                # The server looks at the demand before the id, so a writer whose answer was lost conflicts with itself.
                stored = await self.last(subject)
                if stored is not None and stored.event_id == event_id:
                    return Appended(stored.position, duplicate=True)
            raise refusal from error
        except (NatsError, TimeoutError, OSError) as error:
            raise LogUnavailable(
                f"the event log did not take a fact in {APPEND_TIMEOUT_S:.0f} s: {error}"
            ) from error
        if ack.duplicate:
            await self._drop_claims([headers])
        return Appended(ack.seq, bool(ack.duplicate))

    async def append_all(
        self,
        facts_: Sequence[tuple[AnyFact, str | None]],
        *,
        traceparents: Sequence[str | None] | None = None,
    ) -> list[Appended]:
        """Store facts in this order, pipelined. See `ports.EventLog.append_all`."""
        if traceparents is None:
            traceparents = [telemetry.current_traceparent()] * len(facts_)
        with _refusals_counted():
            appended = await self._append_all(facts_, traceparents)
        for (fact, _), stored in zip(facts_, appended, strict=True):
            if not stored.duplicate:
                FACTS_APPENDED.labels(facts.fact_type(fact)).inc()
        return appended

    async def _append_all(
        self, facts_: Sequence[tuple[AnyFact, str | None]], traceparents: Sequence[str | None]
    ) -> list[Appended]:
        appended: list[Appended] = []
        traced = list(zip(facts_, traceparents, strict=True))
        for start in range(0, len(facts_), PIPELINE):
            futures: list[asyncio.Future[api.PubAck]] = []
            repeated: list[dict[str, str]] = []
            try:
                for (fact, event_id), traceparent in traced[start : start + PIPELINE]:
                    subject = subjects.subject_of(fact)
                    body, headers = await self._message(subject, fact, event_id, traceparent)
                    self._check_connected()
                    future = await self._js.publish_async(
                        subject, body, headers=headers, wait_stall=APPEND_TIMEOUT_S
                    )
                    futures.append(future)
                    repeated.append(headers)
                async with asyncio.timeout(APPEND_TIMEOUT_S):
                    acks = [await future for future in futures]
            except APIError as error:
                raise _translated(error, "append_all") from error
            except (NatsError, TimeoutError, OSError) as error:
                raise LogUnavailable(f"the event log did not take a batch of facts: {error}") from error
            finally:
                _settle(futures)
            await self._drop_claims(
                [headers for ack, headers in zip(acks, repeated, strict=True) if ack.duplicate]
            )
            appended += [Appended(ack.seq, bool(ack.duplicate)) for ack in acks]
        return appended

    @asynccontextmanager
    async def follow(
        self, filters: Sequence[str], *, after: int = 0, batch: int = 512, reader: str | None = None
    ) -> AsyncIterator[AsyncIterator[list[Recorded[AnyFact]]]]:
        """See `ports.EventLog.follow`."""
        following = follow(self._client, self._claims, filters, after=after, batch=batch, reader=reader)
        async with aclosing(following) as batches:
            yield batches

    async def read(self, filters: Sequence[str], *, after: int = 0) -> list[Recorded[AnyFact]]:
        """What matches and is stored now, in stream order."""
        pages = [page async for page in self.pages(filters, after=after)]
        return [record for page in pages for record in page]

    async def pages(
        self, filters: Sequence[str], *, after: int = 0
    ) -> AsyncIterator[list[Recorded[AnyFact]]]:
        """What matches and is stored now, page by page, so that a long log need not be in memory at once."""
        self._check_connected()
        reading = read_stored(self._client, self._claims, filters, after=after, batch=READ_BATCH)
        async with aclosing(reading) as batches:
            async for batch in batches:
                yield batch

    async def newest(self, filters: Sequence[str]) -> int:
        """The newest position that matches any of `filters` now; 0 where nothing does."""
        newest = 0
        for subject_filter in filters:
            try:
                msg = await self._js.get_last_msg(subjects.STREAM, subject_filter, direct=True)
                newest = max(newest, msg.seq or 0)
            except NotFoundError:
                continue
            except (NatsError, TimeoutError, OSError) as error:
                raise LogUnavailable(f"the event log does not answer: {error}") from error
        return newest

    async def last(self, subject: str) -> Recorded[AnyFact] | None:
        """The newest fact of exactly this subject."""
        return await self._stored(None, subject)

    async def at(self, position: int) -> Recorded[AnyFact] | None:
        """The fact at `position`; None where it was purged."""
        return await self._stored(position, None)

    async def _stored(self, position: int | None, subject: str | None) -> Recorded[AnyFact] | None:
        self._check_connected()
        try:
            msg = await self._js.get_msg(subjects.STREAM, position, subject, direct=True)
        except NotFoundError:
            return None
        except (NatsError, TimeoutError, OSError) as error:
            raise LogUnavailable(f"the event log does not answer: {error}") from error
        headers, found_at = msg.headers or {}, msg.seq or 0
        body = msg.data or b""
        if (claim := headers.get(CLAIM_HEADER)) is not None:
            claimed = await self._claims.of_fact(claim, found_at)
            if claimed is None:
                return None  # purged since it was found
            body = claimed
        return recorded(body, headers, found_at)

    async def last_position(self) -> int:
        """The newest position of the whole log."""
        self._check_connected()
        try:
            info = await self._js.stream_info(subjects.STREAM)
        except (NatsError, TimeoutError, OSError) as error:
            raise LogUnavailable(f"the event log does not answer: {error}") from error
        return int(info.state.last_seq)

    async def subjects(self, subject_filter: str) -> Mapping[str, int]:
        """Subjects that match and hold facts now, with their number of facts."""
        self._check_connected()
        return await subjects_in(self._client, subjects.STREAM, subject_filter)

    async def purge(self, subject: str, *, keep: int = 0) -> None:
        """Drop a subject's facts, except the newest `keep`; with `keep` 0 their claims as well."""
        self._check_connected()
        claims = await self._claims.of_subject(subject) if keep == 0 else []
        try:
            await self._js.purge_stream(subjects.STREAM, subject=subject, keep=keep or None)
        except (NatsError, TimeoutError, OSError) as error:
            raise LogUnavailable(f"the event log did not purge {subject}: {error}") from error
        for claim in claims:
            await self._claims.drop(claim)

    async def _drop_claims(self, unstored: list[dict[str, str]]) -> None:
        # What was stored for a message that the log had already, or refused, is referred to by nothing.
        for headers in unstored:
            if CLAIM_HEADER in headers:
                with suppress(LogUnavailable):
                    await self._claims.drop(headers[CLAIM_HEADER])

    async def _message(
        self, subject: str, fact: AnyFact, event_id: str | None, traceparent: str | None
    ) -> tuple[bytes, dict[str, str]]:
        body = facts.encode(fact)
        headers = headers_of(event_id or uuid.uuid4().hex, traceparent)
        if not fits_message(len(body), self._client.max_payload):
            self._check_connected()
            headers[CLAIM_HEADER] = await self._claims.put(subject, body)
            body = b""
        return body, headers

    def _check_connected(self) -> None:
        # The client would buffer and time out; saying so at once lets the gateway answer 503 at once.
        if not self._client.is_connected:
            raise LogUnavailable(
                "the event log is not reachable right now; the same call may succeed in a moment"
            )


@contextmanager
def _refusals_counted() -> Iterator[None]:
    try:
        yield
    except LogUnavailable:
        APPENDS_REFUSED.inc()
        raise


def _settle(futures: "list[asyncio.Future[api.PubAck]]") -> None:
    """Give back what unanswered appends hold (the client counts them), and take note of every error."""
    for future in futures:
        if not future.cancel() and not future.cancelled():
            future.exception()


def _translated(error: APIError, subject: str) -> AppendConflict | LogUnavailable:
    if error.err_code in _WRONG_LAST_SEQUENCE:
        return AppendConflict(f"{subject} was written first by somebody else")
    return LogUnavailable(f"the event log refused a fact: {error.description}")
