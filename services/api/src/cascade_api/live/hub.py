"""The watched runs of this replica. Each one follows the log by itself, so any number of replicas may serve streams.

A subscriber is registered first; then a snapshot is taken that contains at least everything the feed had folded;
what was queued meanwhile and lies in the snapshot is dropped. So nothing is missed and nothing comes twice.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import structlog
from cascade_core import subjects, telemetry
from cascade_core.errors import CascadeError, Unavailable
from cascade_core.ports import EventLog
from cascade_core.sims.state import Sim
from cascade_core.tasks import end

from cascade_api.live.feed import RunFeed, Subscriber
from cascade_api.live.frames import KEEPALIVE, frame
from cascade_api.read_models import queries
from cascade_api.read_models.database import Database, Reader
from cascade_api.read_models.gate import ProjectionGate
from cascade_api.wire.runs import RunDetail, run_detail
from cascade_api.wire.traces import summary_of

_logger = structlog.get_logger(__name__)

KEEPALIVE_S = 15.0
"""spec: api-events."""
FEED_BATCH = 256


class StreamsClosed(Unavailable):
    """This replica is stopping. Another one, or its next start, serves the stream."""


class Hub:
    """Feeds by run, started by the first subscriber and stopped after the last."""

    def __init__(self, database: Database, log: EventLog, gate: ProjectionGate) -> None:
        self._database = database
        self._log = log
        self._gate = gate
        self._feeds: dict[str, RunFeed] = {}
        self._tasks: dict[RunFeed, asyncio.Task[None]] = {}
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def subscriber_count(self) -> int:
        """Open streams of this replica."""
        return sum(len(feed.subscribers) for feed in self._feeds.values())

    @property
    def feed_count(self) -> int:
        """Runs that this replica follows."""
        return len(self._tasks)

    async def close(self) -> None:
        """End every stream and open no more."""
        self._closed = True
        await end(*self._tasks.values())

    async def stream(self, run_id: str) -> AsyncGenerator[bytes, None]:
        """The wire bytes of one subscription: the snapshot, then every later event, until it is cut off.

        Raises NotFound, Unavailable before the first item only.
        """
        async with self._subscribed(run_id) as (feed, subscriber):
            await self._gate.passed(feed.position)
            position, snapshot = await self._snapshot(run_id)
            subscriber.start_after(position)
            yield frame(snapshot)
            while True:
                try:
                    item = await subscriber.next(within_s=KEEPALIVE_S)
                except StopAsyncIteration:
                    return
                if item is None:
                    yield KEEPALIVE
                    continue
                traced = subscriber.traced
                yield item  # comes back once the frame is on its way
                if traced is not None:
                    telemetry.record_span(
                        "cascade.sse.frame",
                        traced.traceparent,
                        started_ns=traced.queued_ns,
                        ended_ns=time.time_ns(),
                        attributes={"run_id": run_id},
                    )

    @asynccontextmanager
    async def _subscribed(self, run_id: str) -> AsyncIterator[tuple[RunFeed, Subscriber]]:
        async with self._opening:  # two subscribers of a run must not open it twice
            feed = self._feeds.get(run_id) or await self._open(run_id)
            subscriber = Subscriber()
            feed.subscribers.add(subscriber)
        try:
            yield feed, subscriber
        finally:
            feed.subscribers.discard(subscriber)
            if not feed.subscribers:
                await self._forget(feed)

    async def _open(self, run_id: str) -> RunFeed:
        if self._closed:
            raise StreamsClosed("this gateway is stopping; connect again in a moment")
        async with self._database.snapshot() as connection:
            position = await queries.checkpoint(connection)
            sims = await queries.sims_of_run(connection, run_id)
            chunks = await queries.chunk_numbers(connection, [sim.sim_id for sim in sims])
            kernels = await queries.kernel_counts(connection, [sim.sim_id for sim in sims])
        feed = RunFeed(run_id, position, sims)
        feed.start_from(chunks, kernels)
        self._feeds[run_id] = feed
        self._tasks[feed] = asyncio.create_task(self._follow(feed), name=f"feed {run_id}")
        return feed

    async def _follow(self, feed: RunFeed) -> None:
        try:
            async with self._log.follow(
                subjects.run_filters(feed.run_id), after=feed.position, batch=FEED_BATCH, reader="live"
            ) as batches:
                async for records in batches:
                    for record in records:
                        feed.take(record)
                    if not feed.subscribers:
                        self._close(feed)
                        return  # all were cut off; their streams may hang in a send for long
                    await asyncio.sleep(0)  # let the streams send before the next batch
        except CascadeError as error:
            _logger.warning("feed ends", run_id=feed.run_id, reason=str(error))
        finally:
            # A stream that looks alive and stays silent would be worse than one that ends.
            for subscriber in feed.subscribers:
                subscriber.end()
            self._tasks.pop(feed, None)
            self._close(feed)

    def _close(self, feed: RunFeed) -> None:
        """Let nobody join any more. To end a feed takes turns of the loop; who joined meanwhile would end with it."""
        if self._feeds.get(feed.run_id) is feed:
            del self._feeds[feed.run_id]

    async def _forget(self, feed: RunFeed) -> None:
        self._close(feed)
        task = self._tasks.get(feed)
        if task is not None:
            await end(task)

    async def _snapshot(self, run_id: str) -> tuple[int, bytes]:
        async with self._database.snapshot() as connection:
            position = await queries.checkpoint(connection)
            detail, sims = await detail_of(connection, run_id)
            kernels = await queries.kernel_stats(connection, sims)
        body = b'{"type":"snapshot","run":%b,"kernels":[%b]}' % (
            detail.model_dump_json().encode(),
            b",".join(kernels),
        )
        return position, body


async def detail_of(db: Reader, run_id: str) -> tuple[RunDetail, list[Sim]]:
    """The run as the routes show it, and its sims in the same order. Raises NotFound."""
    run = await queries.run(db, run_id)
    trace = await queries.trace_of_run(db, run)
    sims = await queries.sims_of_run(db, run_id)
    return run_detail(run, summary_of(trace), sims), sims
