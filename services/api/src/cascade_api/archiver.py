"""Moves an ended sim's log from the stream to the bucket, so that a day of a thousand sims does not fill a disk.

Order matters: the object first, then the fact, then the purge. A crash in between is repaired by the next round.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import structlog
import zstandard
from cascade_core import subjects
from cascade_core.errors import Corrupt, Unavailable
from cascade_core.sims.facts import SimLogArchived, SimProgressed
from cascade_core.sims.state import Sim, outcome_of

from cascade_api.gateway import Gateway
from cascade_api.log_text import as_text, stream_chunks
from cascade_api.read_models import queries
from cascade_api.read_models.projection import PROJECTED

_logger = structlog.get_logger(__name__)

ROUND_EVERY_S = 5.0
MOST_PER_ROUND = 16
MOST_STUCK = 256
"""Sims looked past in a round because their logs could not be archived before; with more, the youngest logs wait."""
_LEVEL = 6


async def run(gateway: Gateway) -> None:
    """Archive for ever, on the leading replica only."""
    ready = False
    stuck: set[str] = set()
    while True:
        await asyncio.sleep(ROUND_EVERY_S)
        if not gateway.projector.leads:
            ready = False
            continue
        try:
            ready = ready or await _made_ready(gateway)
            if ready:
                stuck = await _round(gateway, stuck)
        except Unavailable as error:
            _logger.warning("archiving waits", reason=str(error))


async def _made_ready(gateway: Gateway) -> bool:
    """Whether the views know everything that an earlier leader archived; then its leftovers are purged."""
    if gateway.gate.position < await gateway.log.newest(PROJECTED):
        return False
    await sweep(gateway)
    return True


async def _round(gateway: Gateway, stuck: set[str]) -> set[str]:
    """Archive what is due, the sims last that could not be archived before; the sims that still cannot be."""
    due = await queries.sims_to_archive(
        gateway.database,
        finished_before_s=gateway.settings.archive_after_s,
        most=MOST_PER_ROUND + min(len(stuck), MOST_STUCK),
    )
    due.sort(key=lambda sim: sim.sim_id in stuck)  # stable: the oldest first
    stuck = stuck & {sim.sim_id for sim in due}
    for sim in due[:MOST_PER_ROUND]:
        with _one_of_many(sim.sim_id, stuck):
            await archive(gateway, sim)
    return stuck


@contextmanager
def _one_of_many(sim_id: str, stuck: set[str]) -> Iterator[None]:
    """One sim whose log is damaged, or too large for the time that it may take, must not keep the others' logs here."""
    try:
        yield
    except (Unavailable, Corrupt) as error:
        _logger.warning("log not archived", sim_id=sim_id, reason=str(error))
        stuck.add(sim_id)
    else:
        stuck.discard(sim_id)


async def archive(gateway: Gateway, sim: Sim) -> None:
    """Store one ended sim's log in the bucket and purge it from the stream.

    Raises ChunkGone, before anything is stored, if the stream does not hold all of it: somebody else archived it.
    """
    counts = _Counts()
    # A name of its own: whoever archives the same log again must not write over what the first one stored.
    key = f"logs/{sim.run_id}/{sim.sim_id}-{uuid.uuid4().hex[:8]}.log.zst"
    await gateway.internal_bucket.put_stream(
        key, _compressed(gateway, sim, counts), content_type="application/zstd"
    )
    archived_at = await gateway.append_and_project(
        SimLogArchived(
            run_id=sim.run_id,
            sim_id=sim.sim_id,
            occurred_at=gateway.now(),
            object_key=key,
            chunk_count=counts.chunks,
            line_count=counts.lines,
            size_bytes=counts.bytes,
            log_tail=sim.tail.lines(),
            last_heartbeat_at=sim.last_heartbeat_at,
            outcome=outcome_of(sim),
        )
    )
    await _purge(gateway, await gateway.sims.current(sim.sim_id, at_least=archived_at))
    _logger.info("log archived", run_id=sim.run_id, sim_id=sim.sim_id, bytes=counts.bytes)


async def sweep(gateway: Gateway) -> None:
    """Purge what a crash left behind: logs in the stream of sims that are archived already."""
    for subject in await gateway.log.subjects(subjects.ALL_LOGS):
        ids = subjects.sim_of_log_subject(subject)
        if ids is None:
            continue
        found = await queries.sims_by_id(gateway.database, [ids[1]])
        if found:
            with _one_of_many(ids[1], set()):
                await _purge(gateway, found[0])


async def _purge(gateway: Gateway, sim: Sim) -> None:
    if sim.archive_key is None:
        return
    await gateway.log.purge(subjects.log_of(sim.run_id, sim.sim_id))
    await gateway.log.purge(subjects.beats_of(sim.run_id, sim.sim_id))
    # Each progress fact holds the whole progress; a rebuild needs only the last word. A parser that was replaced may
    # have said something after it, which the fold set aside; then all of them stay.
    told = subjects.sim_fact(sim.run_id, sim.sim_id, "progressed")
    newest = await gateway.log.last(told)
    if newest is not None and isinstance(newest.fact, SimProgressed) and newest.fact.final:
        await gateway.log.purge(told, keep=1)


class _Counts:
    def __init__(self) -> None:
        self.chunks = self.lines = self.bytes = 0


async def _compressed(gateway: Gateway, sim: Sim, counts: _Counts) -> AsyncIterator[bytes]:
    compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    async for lines in stream_chunks(gateway, sim.sim_id):
        text = as_text(lines)
        counts.chunks += 1
        counts.lines += len(lines)
        counts.bytes += len(text)
        if piece := compressor.compress(text):
            yield piece
    yield compressor.flush()
