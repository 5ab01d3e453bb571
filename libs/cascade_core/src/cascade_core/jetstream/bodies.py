"""Messages of the stream with the bodies that they claim, in lists that fit in memory.

A request for messages is bounded in bytes, but a message that claims its body has next to none, and the body may have
any size.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import NamedTuple

from nats.aio.msg import Msg

from cascade_core.jetstream.claim_check import CLAIM_HEADER, Claims
from cascade_core.jetstream.codec import delivery_of

MOST_BYTES_AT_ONCE = 32 * 1024 * 1024
"""A list ends with the body that passes this."""


class StoredFact(NamedTuple):
    """One message of the stream, its body complete. A tuple, since each fact that anybody reads becomes one."""

    position: int
    subject: str
    headers: Mapping[str, str]
    body: bytes


async def with_bodies(
    messages: Sequence[Msg], claims: Claims, *, beginning: tuple[str, ...] = ("",)
) -> AsyncGenerator[list[StoredFact], None]:
    """The messages whose subjects begin so, in their order, without those purged since they came.

    No list is empty. Raises LogUnavailable, Corrupt.
    """
    page: list[StoredFact] = []
    size = 0
    for msg in messages:
        if not msg.subject.startswith(beginning):
            continue
        headers: Mapping[str, str] = msg.headers or {}
        position = delivery_of(msg).position
        body: bytes | None = msg.data
        if (claim := headers.get(CLAIM_HEADER)) is not None:
            body = await claims.of_fact(claim, position)
            await asyncio.sleep(0)  # a batch of claims takes long; leases must be renewed meanwhile
        if body is None:
            continue
        page.append(StoredFact(position, msg.subject, headers, body))
        size += len(body)
        if size >= MOST_BYTES_AT_ONCE:
            yield page
            page, size = [], 0
    if page:
        yield page
