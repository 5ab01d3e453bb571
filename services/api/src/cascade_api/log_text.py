"""A sim's whole log as text: from the stream while it is there, from the bucket once it is archived."""

import asyncio
from collections.abc import AsyncIterator

import zstandard
from cascade_core.logs.facts import LogAppended
from cascade_core.sims.state import Sim

from cascade_api.gateway import Gateway
from cascade_api.read_models import queries

FETCH_AT_ONCE = 32
"""Chunks fetched from the stream at a time; bounds what one download holds in memory."""


async def log_text(gateway: Gateway, sim: Sim) -> AsyncIterator[bytes]:
    """Every line in `seq` order, each ended by one newline."""
    if sim.archive_key is None:
        async for piece in stream_text(gateway, sim.sim_id):
            yield piece
    else:
        async for piece in _archived_text(gateway, sim.archive_key):
            yield piece


async def stream_text(gateway: Gateway, sim_id: str) -> AsyncIterator[bytes]:
    """The log as the stream holds it now."""
    async for lines in stream_chunks(gateway, sim_id):
        yield as_text(lines)


async def stream_chunks(gateway: Gateway, sim_id: str) -> AsyncIterator[list[str]]:
    """The lines of each chunk in `seq` order, as the stream holds them now."""
    positions = await queries.log_positions(gateway.database, sim_id)
    for start in range(0, len(positions), FETCH_AT_ONCE):
        records = await asyncio.gather(
            *(gateway.log.at(position) for position in positions[start : start + FETCH_AT_ONCE])
        )
        for record in records:
            if record is not None and isinstance(record.fact, LogAppended):
                yield record.fact.lines


def as_text(lines: list[str]) -> bytes:
    """Lines as the simulator printed them, in UTF-8."""
    return "".join(line + "\n" for line in lines).encode("utf-8", "replace")


async def _archived_text(gateway: Gateway, key: str) -> AsyncIterator[bytes]:
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    async for piece in gateway.internal_bucket.stream(key):
        if text := decompressor.decompress(piece):
            yield text
