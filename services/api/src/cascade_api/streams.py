"""Streamed answers: what goes wrong at their beginning still gets a status."""

from collections.abc import AsyncIterator


async def begun(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """`body`, with its first piece fetched already. Raises what fetching it raises."""
    try:
        first = await anext(body)
    except StopAsyncIteration:
        return _joined(b"", body)
    return _joined(first, body)


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for piece in rest:
        yield piece
