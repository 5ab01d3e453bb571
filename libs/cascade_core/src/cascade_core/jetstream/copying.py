"""Facts as they are stored, to carry them to another server: nothing is decoded, so nothing can be changed.

A claimed payload travels inside its fact and is claimed again where it arrives. Positions are not kept: they only
order facts, and the order stays.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.jetstream.bodies import StoredFact, with_bodies
from cascade_core.jetstream.claim_check import CLAIM_HEADER, Claims, fits_message
from cascade_core.jetstream.codec import EVENT_ID_HEADER, TRACE_HEADER, VERSION_HEADER, delivery_of
from cascade_core.jetstream.pull import ConsumerLost, Pull

__all__ = ["PAGE", "StoredFact", "store_facts", "stored_facts"]

PAGE = 256
PUBLISH_TIMEOUT_S = 30.0
_KEPT_HEADERS = (EVENT_ID_HEADER, VERSION_HEADER, TRACE_HEADER)
_TROUBLE = (ConsumerLost, NatsError, TimeoutError, OSError)


async def stored_facts(client: Client) -> AsyncGenerator[list[StoredFact], None]:
    """Everything that is stored, page by page. Facts may be stored and logs archived and purged meanwhile.

    First what is there at the beginning is read, then what came while that was read, which is little. Of what comes
    later only the archivings are read, which say the end of a log that was purged before it could be read whole: the
    fact is older than the purge. So this ends beside an app that never rests, and every log up to where the second
    pass ends is read whole or known as archived. Raises LogUnavailable, Corrupt.
    """
    claims = Claims(client)
    position = 0
    try:
        for subject_filter in (subjects.ALL, subjects.ALL, subjects.ALL_ARCHIVINGS):
            newest = (await client.jetstream().stream_info(subjects.STREAM)).state.last_seq
            async with aclosing(_stored_up_to(client, claims, subject_filter, position, newest)) as pages:
                async for page in pages:
                    yield page
            position = newest
    except _TROUBLE as error:
        raise LogUnavailable(f"the event log does not answer: {error or type(error).__name__}") from error


async def _stored_up_to(
    client: Client, claims: Claims, subject_filter: str, after: int, newest: int
) -> AsyncGenerator[list[StoredFact], None]:
    """What is stored behind `after` and up to `newest`."""
    pull = Pull(client, PAGE)
    try:
        await pull.open([subject_filter], after)
        while after < newest and (messages := await pull.stored()):
            after = delivery_of(messages[-1]).position
            wanted = [msg for msg in messages if delivery_of(msg).position <= newest]
            async for facts in with_bodies(wanted, claims):
                yield [fact._replace(headers=_kept(fact.headers)) for fact in facts]
    finally:
        await pull.close()


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in _KEPT_HEADERS if name in headers}


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
