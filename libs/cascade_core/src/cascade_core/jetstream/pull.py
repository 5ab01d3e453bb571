"""One ephemeral pull consumer: what it asked for, what came, and how it notices that something is missing.

Pull requests are bounded in messages and bytes, so a slow reader slows only itself. The server numbers what it
delivers to a consumer; a number that is not the next one, a new connection or silence mean that the consumer must be
thrown away.
"""

import asyncio
import json
from collections import deque
from collections.abc import Sequence

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js import api

from cascade_core import subjects
from cascade_core.jetstream.codec import delivery_of

REQUEST_EXPIRES_S = 30
IDLE_HEARTBEAT_S = 2
STALL_S = 3 * IDLE_HEARTBEAT_S
"""Three missed idle heartbeats: the consumer or the connection is gone, so it is made anew."""
RECONNECT_CHECK_S = 0.5
"""A request is lost with its connection, and the consumer's memory with its server; do not wait for a stall then."""
MOST_BYTES_PER_REQUEST = 32 * 1024 * 1024
"""Above any `max_payload`, or a single large message could never be delivered."""
CONSUMER_GONE_AFTER_S = 60.0

_STATUS_HEARTBEAT = "100"
_STATUS_NOTHING_LEFT = "404"
_STATUS_REQUEST_ENDED = frozenset({_STATUS_NOTHING_LEFT, "408"})
_MAX_BYTES_REACHED = "Message Size Exceeds MaxBytes"
# Sent after the last message of a request. The count has told already, and the next request may be out.
_BATCH_COMPLETED = "Batch Completed"


class ConsumerLost(Exception):
    """The ephemeral consumer cannot be used any more; a new one continues behind the last position."""


class Pull:
    """One ephemeral consumer and the messages that came for the one outstanding request."""

    def __init__(self, client: Client, batch: int) -> None:
        self._client = client
        self._batch = batch
        self._inbox = client.new_inbox()
        self._arrived: deque[Msg] = deque()
        self._wake = asyncio.Event()
        self._subscription: Subscription | None = None
        self._name = ""
        self._outstanding = 0
        self._nothing_left = False
        self._lost: str | None = None
        self._delivered = 0
        self._pending = 0
        self._reconnects = client.stats["reconnects"]

    async def open(self, filters: Sequence[str], after: int) -> int:
        """Make the consumer; returns how many messages match now."""
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
        self._pending = info.num_pending or 0
        return self._pending

    @property
    def lag(self) -> int:
        """Messages that match and were not taken yet, as of the newest that came."""
        return len(self._arrived) + self._pending

    async def close(self) -> None:
        """Forget the consumer; the server does so by itself after CONSUMER_GONE_AFTER_S."""
        if self._client.is_closed:
            return
        try:
            if self._subscription is not None:
                await self._subscription.unsubscribe()
            if self._name and self._client.is_connected:
                await self._client.jetstream().delete_consumer(subjects.STREAM, self._name)
        except (NatsError, TimeoutError):
            return

    async def next(self) -> list[Msg]:
        """At least one message, in order; waits for ever. Raises ConsumerLost."""
        quiet_s = 0.0
        while not self._arrived:
            if self._outstanding <= 0:
                await self._request(wait=True)
            quiet_s = await self._look(quiet_s)
        messages = self._take()
        if self._outstanding <= 0 and self._lost is None:
            await self._request(wait=True)  # the next batch travels while this one is handled
        return messages

    async def stored(self) -> list[Msg]:
        """What is stored now, at most a batch; nothing means that there is no more. Raises ConsumerLost."""
        quiet_s = 0.0
        while not self._arrived and not self._nothing_left:
            if self._outstanding <= 0:
                await self._request(wait=False)
            quiet_s = await self._look(quiet_s)
        return self._take()

    async def _look(self, quiet_s: float) -> float:
        if self._lost is not None:
            raise ConsumerLost(self._lost)
        if self._client.is_closed:
            raise ConsumerLost("the connection was closed")
        if self._client.is_connected and self._client.stats["reconnects"] != self._reconnects:
            raise ConsumerLost("the connection was made anew")
        if quiet_s >= STALL_S:
            raise ConsumerLost("no sign of life from the server")
        self._wake.clear()
        if self._arrived or self._nothing_left:
            return 0.0
        try:
            async with asyncio.timeout(RECONNECT_CHECK_S):
                await self._wake.wait()
        except TimeoutError:
            return quiet_s + RECONNECT_CHECK_S
        return 0.0

    def _take(self) -> list[Msg]:
        messages = list(self._arrived)
        self._arrived.clear()
        return messages

    async def _request(self, *, wait: bool) -> None:
        self._outstanding = self._batch
        request: dict[str, object] = {"batch": self._batch, "max_bytes": MOST_BYTES_PER_REQUEST}
        if wait:
            request["expires"] = REQUEST_EXPIRES_S * 1_000_000_000
            request["idle_heartbeat"] = IDLE_HEARTBEAT_S * 1_000_000_000
        else:
            request["no_wait"] = True
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
            delivery = delivery_of(msg)
            number, self._pending = delivery.number, delivery.pending
            if number != self._delivered:
                self._lost = f"message {number} came where {self._delivered} was due"
            else:
                self._arrived.append(msg)
        elif status in _STATUS_REQUEST_ENDED or _MAX_BYTES_REACHED in description:
            self._outstanding = 0
            self._nothing_left = status == _STATUS_NOTHING_LEFT
        elif status != _STATUS_HEARTBEAT and _BATCH_COMPLETED not in description:
            self._lost = f"{status} {description}"
        self._wake.set()
