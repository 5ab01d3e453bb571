"""Reading the log for ever, in order, without gaps or repeats, and without state on the server.

Each reader keeps its own position (a checkpoint beside its read model, or a replay at its start), so it asks the
server for an ephemeral consumer behind that position and throws it away on any trouble. Pull requests are bounded in
messages and bytes: a slow reader slows only itself.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Sequence

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import api

from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.jetstream.claim_check import Claims
from cascade_core.jetstream.codec import position_of, recorded
from cascade_core.record import Recorded

_logger = structlog.get_logger(__name__)

REQUEST_EXPIRES_S = 30
IDLE_HEARTBEAT_S = 2
STALL_S = 3 * IDLE_HEARTBEAT_S
"""Three missed idle heartbeats: the consumer or the connection is gone, so it is made anew."""
RECONNECT_CHECK_S = 0.5
"""A request is lost with its connection, and the consumer's memory with its server; do not wait for a stall then."""
MOST_BYTES_PER_REQUEST = 32 * 1024 * 1024
"""Above any `max_payload`, or a single large message could never be delivered."""
CONSUMER_GONE_AFTER_S = 60.0
RETRY_WAIT_S = 0.5

_STATUS_HEARTBEAT = "100"
_STATUS_REQUEST_ENDED = frozenset({"404", "408"})
_MAX_BYTES_REACHED = "Message Size Exceeds MaxBytes"
# Sent after the last message of a request. The count has told already, and the next request may be out.
_BATCH_COMPLETED = "Batch Completed"


class _ConsumerLost(Exception):
    """The ephemeral consumer cannot be used any more; a new one continues behind the last position."""


class _Pull:
    """One ephemeral consumer and the messages that came for the one outstanding request."""

    def __init__(self, client: Client, batch: int) -> None:
        self._client = client
        self._batch = batch
        self._arrived: deque[Msg] = deque()
        self._wake = asyncio.Event()
        self._name = ""
        self._outstanding = 0
        self._lost: str | None = None
        self._delivered = 0
        self._reconnects = client.stats["reconnects"]

    async def open(self, filters: Sequence[str], after: int) -> None:
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe(
            self._inbox, cb=self._on_message, pending_bytes_limit=4 * MOST_BYTES_PER_REQUEST
        )
        info = await self._client.jetstream().add_consumer(
            subjects.STREAM,
            api.ConsumerConfig(
                deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=after + 1,
                ack_policy=api.AckPolicy.NONE,
                filter_subjects=list(filters),
                inactive_threshold=CONSUMER_GONE_AFTER_S,
                mem_storage=True,
                num_replicas=1,
            ),
        )
        self._name = info.name

    async def close(self) -> None:
        if not self._client.is_connected:
            return  # waiting for a server that is away would hold up whoever stops
        try:
            await self._subscription.unsubscribe()
            if self._name:
                await self._client.jetstream().delete_consumer(subjects.STREAM, self._name)
        except (NatsError, TimeoutError):
            return  # the server forgets the consumer by itself after CONSUMER_GONE_AFTER_S

    async def next(self) -> list[Msg]:
        """At least one message, in order; waits for ever. Raises _ConsumerLost."""
        quiet_s = 0.0
        while not self._arrived:
            if self._lost is not None:
                raise _ConsumerLost(self._lost)
            if self._client.is_connected and self._client.stats["reconnects"] != self._reconnects:
                raise _ConsumerLost("the connection was made anew")
            if quiet_s >= STALL_S:
                raise _ConsumerLost("no sign of life from the server")
            if self._outstanding <= 0:
                await self._request()
            self._wake.clear()
            try:
                async with asyncio.timeout(RECONNECT_CHECK_S):
                    await self._wake.wait()
                quiet_s = 0.0
            except TimeoutError:
                quiet_s += RECONNECT_CHECK_S
        messages = list(self._arrived)
        self._arrived.clear()
        if self._outstanding <= 0 and self._lost is None:
            await self._request()  # the next batch travels while this one is handled
        return messages

    async def _request(self) -> None:
        self._outstanding = self._batch
        request = {
            "batch": self._batch,
            "max_bytes": MOST_BYTES_PER_REQUEST,
            "expires": REQUEST_EXPIRES_S * 1_000_000_000,
            "idle_heartbeat": IDLE_HEARTBEAT_S * 1_000_000_000,
        }
        await self._client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{subjects.STREAM}.{self._name}",
            json.dumps(request).encode(),
            reply=self._inbox,
        )

    async def _on_message(self, msg: Msg) -> None:
        status = (msg.headers or {}).get("Status")
        description = (msg.headers or {}).get("Description", "")
        if status is None:
            self._outstanding -= 1
            self._delivered += 1
            delivered = int(msg.reply.split(".")[-3])
            if delivered != self._delivered:
                self._lost = f"message {delivered} came where {self._delivered} was due"
            else:
                self._arrived.append(msg)
        elif status in _STATUS_REQUEST_ENDED or _MAX_BYTES_REACHED in description:
            self._outstanding = 0
        elif status != _STATUS_HEARTBEAT and _BATCH_COMPLETED not in description:
            self._lost = f"{status} {description}"
        self._wake.set()


async def follow(
    client: Client, claims: Claims, filters: Sequence[str], *, after: int, batch: int
) -> AsyncGenerator[list[Recorded[AnyFact]], None]:
    """Batches of facts behind `after`, for ever. Raises only what stored data causes (Corrupt)."""
    position = after
    while True:
        pull = _Pull(client, batch)
        try:
            await pull.open(filters, position)
            while True:
                messages = await pull.next()
                records = [
                    await recorded(msg.data, msg.headers, position_of(msg), claims) for msg in messages
                ]
                yield records
                position = records[-1].position
        except (_ConsumerLost, NatsError, TimeoutError, OSError, LogUnavailable) as error:
            if client.is_closed:
                raise LogUnavailable("the connection to NATS was closed") from error
            _logger.info(
                "log consumer is made anew", position=position, reason=str(error) or type(error).__name__
            )
            await asyncio.sleep(RETRY_WAIT_S)
        finally:
            await pull.close()
