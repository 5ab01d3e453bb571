"""A sim's whole log as text: from the stream while it is there, from the bucket once it is archived."""

import asyncio
from collections.abc import AsyncIterator

import zstandard
from cascade_core.errors import Unavailable
from cascade_core.logs.facts import LogAppended
from cascade_core.sims.state import Sim

from cascade_api.gateway import Gateway
from cascade_api.read_models import queries

FETCH_AT_ONCE = 32
"""Chunks fetched from the stream at a time; bounds what one download holds in memory."""


class ChunkGone(Unavailable):
    """A chunk that the views know is not in the stream: the log was archived, by this replica or another one."""


async def log_text(gateway: Gateway, sim: Sim) -> AsyncIterator[bytes]:
    """Every line in `seq` order, each ended by one newline. Raises Unavailable."""
    sent = 0
    if sim.archive_key is None:
        try:
            async for lines in stream_chunks(gateway, sim.sim_id):
                text = as_text(lines)
                sent += len(text)
                yield text
        except ChunkGone:
            sim = await queries.sim(await gateway.fresh(), sim.sim_id)
            if sim.archive_key is None:
                raise
        else:
            return
    assert sim.archive_key is not None
    async for piece in _archived_text(gateway, sim.archive_key):
        # It was archived while it was sent: the archive begins with the same text.
        left_out = min(sent, len(piece))
        sent -= left_out
        if left_out < len(piece):
            yield piece[left_out:]


async def stream_chunks(gateway: Gateway, sim_id: str) -> AsyncIterator[list[str]]:
    """The lines of each chunk in `seq` order, as the stream holds them now. Raises ChunkGone, LogUnavailable."""
    positions = await queries.log_positions(gateway.database, sim_id)
    for start in range(0, len(positions), FETCH_AT_ONCE):
        records = await asyncio.gather(
            *(gateway.log.at(position) for position in positions[start : start + FETCH_AT_ONCE])
        )
        for record in records:
            if record is None or not isinstance(record.fact, LogAppended):
                raise ChunkGone(f"the log of {sim_id} is being moved; try again in a moment")
            yield record.fact.lines


def as_text(lines: list[str]) -> bytes:
    """Lines as the simulator printed them, in UTF-8."""
    return "".join(line + "\n" for line in lines).encode("utf-8", "replace")


async def _archived_text(gateway: Gateway, key: str) -> AsyncIterator[bytes]:
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    async for piece in gateway.internal_bucket.stream(key):
        if text := decompressor.decompress(piece):
            yield text
