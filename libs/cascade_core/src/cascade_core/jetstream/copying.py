"""Facts as they are stored, to carry them to another server: nothing is decoded, so nothing can be changed.

A claimed payload travels inside its fact and is claimed again where it arrives. Positions are not kept: they only
order facts, and the order stays.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.jetstream.claim_check import CLAIM_HEADER, Claims, fits_message
from cascade_core.jetstream.codec import EVENT_ID_HEADER, TRACE_HEADER, VERSION_HEADER, delivery_of
from cascade_core.jetstream.pull import ConsumerLost, Pull

PAGE = 256
PUBLISH_TIMEOUT_S = 30.0
_KEPT_HEADERS = (EVENT_ID_HEADER, VERSION_HEADER, TRACE_HEADER)
_TROUBLE = (ConsumerLost, NatsError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class StoredFact:
    """One message of the stream."""

    position: int
    subject: str
    headers: dict[str, str]
    body: bytes


async def stored_facts(client: Client, *, after: int = 0) -> AsyncGenerator[list[StoredFact], None]:
    """Everything that is stored behind `after`, page by page, and what is stored while it is read.

    A log that is archived and purged meanwhile is read whole or its archiving is read as well: the fact that says so
    is older than the purge. Raises LogUnavailable, Corrupt.
    """
    claims = Claims(client)
    position = after
    try:
        while True:
            pull = Pull(client, PAGE)
            found = 0
            try:
                await pull.open([subjects.ALL], position)
                while messages := await pull.stored():
                    page = []
                    for msg in messages:
                        headers = dict(msg.headers or {})
                        claim = headers.get(CLAIM_HEADER)
                        body = msg.data if claim is None else await claims.get(claim)
                        kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
                        position = delivery_of(msg).position
                        page.append(StoredFact(position, msg.subject, kept, body))
                    found += len(page)
                    yield page
            finally:
                await pull.close()
            if found == 0:
                return
    except _TROUBLE as error:
        raise LogUnavailable(f"the event log does not answer: {error or type(error).__name__}") from error


async def store_facts(client: Client, pages: AsyncIterable[list[StoredFact]]) -> int:
    """Store the facts in their order on an empty log; returns how many are new to it.

    A fact that was stored twice at a distance has one event id, so the server may keep one of the two; every reader
    does. Raises LogUnavailable.
    """
    js = client.jetstream(timeout=PUBLISH_TIMEOUT_S, publish_async_max_pending=2 * PAGE)
    claims = Claims(client)
    new = 0
    try:
        async for page in pages:
            futures = []
            for fact in page:
                headers, body = dict(fact.headers), fact.body
                if not fits_message(len(body), client.max_payload):
                    headers[CLAIM_HEADER] = await claims.put(fact.subject, body)
                    body = b""
                futures.append(
                    await js.publish_async(fact.subject, body, headers=headers, wait_stall=PUBLISH_TIMEOUT_S)
                )
            async with asyncio.timeout(PUBLISH_TIMEOUT_S):
                for future in futures:
                    new += not (await future).duplicate
    except (APIError, *_TROUBLE) as error:
        raise LogUnavailable(f"the event log did not take a fact: {error or type(error).__name__}") from error
    return new
