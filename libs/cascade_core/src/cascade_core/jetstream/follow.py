"""Reading the log in order, without gaps or repeats, and without state on the server: for ever, or what is stored now.

Each reader keeps its own position (a checkpoint beside its read model, or a replay at its start), so it asks the
server for an ephemeral consumer behind that position and throws it away on any trouble.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.jetstream.bodies import StoredFact, with_bodies
from cascade_core.jetstream.claim_check import Claims
from cascade_core.jetstream.codec import delivery_of, recorded
from cascade_core.jetstream.pull import ConsumerLost, Pull
from cascade_core.jetstream.reader_metrics import ReaderMetrics
from cascade_core.record import Recorded

_logger = structlog.get_logger(__name__)

RETRY_WAIT_S = 0.5
BATCHES_APART_S = 0.02
"""A busy reader takes what has come together every so often: each batch costs a turn of every task on its way, a write
and a commit, whatever its size. The first fact after a silence does not wait."""
MOST_RETRIES = 20
"""Of a read that ends: after about ten seconds without the log its caller hears of it."""

_TROUBLE = (ConsumerLost, NatsError, TimeoutError, OSError, LogUnavailable)


async def follow(
    client: Client,
    claims: Claims,
    filters: Sequence[str],
    *,
    after: int,
    batch: int,
    reader: str | None = None,
) -> AsyncGenerator[list[Recorded[AnyFact]], None]:
    """Batches of facts behind `after`, for ever. Raises only what stored data causes (Corrupt)."""
    position = after
    wanted = _prefixes(filters)
    metrics = ReaderMetrics(reader)
    while True:
        pull = Pull(client, batch)
        metrics.opened(pull)
        try:
            await pull.open(_asked(filters), position)
            while True:
                messages = await pull.next()
                taken_at = time.monotonic()
                async for facts in with_bodies(messages, claims, beginning=wanted):
                    records = _recorded(facts)
                    metrics.given(records)
                    yield records
                    position = records[-1].position
                position = delivery_of(messages[-1]).position
                if (left := taken_at + BATCHES_APART_S - time.monotonic()) > 0:
                    await asyncio.sleep(left)
        except _TROUBLE as error:
            if client.is_closed:
                raise LogUnavailable("the connection to NATS was closed") from error
            metrics.restarted()
            _logger.info("log consumer is made anew", reader=reader, position=position, reason=_reason(error))
            await asyncio.sleep(RETRY_WAIT_S)
        finally:
            metrics.closed(pull)
            await pull.close()


async def stored(
    client: Client, claims: Claims, filters: Sequence[str], *, after: int, batch: int
) -> AsyncGenerator[list[Recorded[AnyFact]], None]:
    """What is stored behind `after` when the reading begins, then an end, even if all of it is purged meanwhile.

    Raises LogUnavailable when the log stays out of reach, Corrupt.
    """
    position = after
    wanted = _prefixes(filters)
    retries = 0
    while True:
        pull = Pull(client, batch)
        try:
            left = await pull.open(_asked(filters), position)
            while left > 0 and (messages := (await pull.stored())[:left]):
                left -= len(messages)
                async for facts in with_bodies(messages, claims, beginning=wanted):
                    yield _recorded(facts)
                    position = facts[-1].position
                position = delivery_of(messages[-1]).position
        except _TROUBLE as error:
            retries += 1
            if client.is_closed or retries > MOST_RETRIES:
                raise LogUnavailable(f"the event log does not answer: {_reason(error)}") from error
            await asyncio.sleep(RETRY_WAIT_S)
        else:
            return
        finally:
            await pull.close()


def _asked(filters: Sequence[str]) -> Sequence[str]:
    """What the server is asked for. A consumer with several filters costs it 80 us a message, one with a single filter
    5 us (nats-server 2.12, measured), so for several whole families it sends everything and the rest is dropped here.
    """
    return [subjects.ALL] if len(filters) > 1 and all(map(subjects.is_family, filters)) else filters


def _prefixes(filters: Sequence[str]) -> tuple[str, ...]:
    """How the subjects begin that are wanted of everything; nothing where the server has chosen already."""
    return tuple(each.removesuffix(">") for each in filters) if _asked(filters) != filters else ("",)


def _recorded(stored_facts: list[StoredFact]) -> list[Recorded[AnyFact]]:
    return [recorded(fact.body, fact.headers, fact.position) for fact in stored_facts]


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
