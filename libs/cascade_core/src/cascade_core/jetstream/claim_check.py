"""Payloads larger than a message: stored whole in an object store first, then referred to by a claim.

The server counts headers towards `max_payload`, so the limit leaves room for them.
"""

import base64
import hashlib
import uuid

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import ObjectInfo
from nats.js.errors import NotFoundError, ObjectNotFoundError
from nats.js.object_store import ObjectStore

from cascade_core import subjects
from cascade_core.errors import Corrupt, LogUnavailable
from cascade_core.jetstream.stream_subjects import subjects_in

CLAIM_HEADER = "Cascade-Claim"
HEADER_ROOM_BYTES = 4096
MOST_INLINE_BYTES = 512 * 1024
"""Beyond this a message slows its neighbours down, whatever the server would take."""
_CLAIMS_STREAM = f"OBJ_{subjects.CLAIMS}"
"""The stream below the object store: chunks on `$O.<store>.C.<nuid>`, names on `$O.<store>.M.<base64>` (ADR-20)."""


_GONE = (ObjectNotFoundError, NotFoundError)
_TROUBLE = (NatsError, TimeoutError, OSError)


class ClaimGone(Exception):
    """Nothing is stored under a claim, or not all of it any more: it was dropped, perhaps while it was read."""


def fits_message(size: int, max_payload: int) -> bool:
    """Whether a body of `size` bytes travels inside its message."""
    return size <= min(MOST_INLINE_BYTES, max_payload - HEADER_ROOM_BYTES)


class Claims:
    """The object store behind claims. Names are `<subject>/<random>`, so a sim's claims can be found and dropped."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._store: ObjectStore | None = None

    async def put(self, subject: str, body: bytes) -> str:
        """Store `body` durably; returns the claim. Raises LogUnavailable."""
        name = f"{subject}/{uuid.uuid4().hex}"
        try:
            await (await self._objects()).put(name, body)
        except _TROUBLE as error:
            raise LogUnavailable(f"the object store did not take {len(body)} bytes: {error}") from error
        return name

    async def get(self, name: str) -> bytes:
        """The body behind a claim. Raises ClaimGone, LogUnavailable, Corrupt.

        The client's own `get` waits for ever for chunks that are dropped before it asks for them.
        """
        try:
            return await self._whole(await (await self._objects()).get_info(name))
        except _GONE as error:
            raise ClaimGone(name) from error
        except _TROUBLE as error:
            raise LogUnavailable(f"the object store does not answer: {error}") from error

    async def of_fact(self, name: str, position: int) -> bytes | None:
        """The body claimed by the fact that was read at `position`; None where the fact was purged since.

        Raises LogUnavailable, Corrupt when a stored claim leads nowhere.
        """
        try:
            return await self.get(name)
        except ClaimGone as gone:
            try:
                # Of the leader, not `direct`: a replica may not have the fact yet.
                await self._client.jetstream().get_msg(subjects.STREAM, position)
            except NotFoundError:
                return None
            except _TROUBLE as error:
                raise LogUnavailable(f"the event log does not answer: {error}") from error
            raise Corrupt(f"the claim {name} leads nowhere: its object was deleted by hand") from gone

    async def of_subject(self, subject: str) -> list[str]:
        """The claims of one subject's facts. Claims are few: one for a message beyond half a mebibyte."""
        names = f"$O.{subjects.CLAIMS}.M."
        stored = await subjects_in(self._client, _CLAIMS_STREAM, f"{names}*")
        claims = [base64.urlsafe_b64decode(one.removeprefix(names)).decode() for one in stored]
        return [claim for claim in claims if claim.startswith(subject + "/")]

    async def drop(self, name: str) -> None:
        """Forget a claim that no fact refers to. The store's own `delete` would leave a tombstone for ever."""
        js = self._client.jetstream()
        try:
            found = await (await self._objects()).get_info(name, show_deleted=True)
            for kind, token in (("C", found.nuid), ("M", base64.urlsafe_b64encode(name.encode()).decode())):
                await js.purge_stream(_CLAIMS_STREAM, subject=f"$O.{subjects.CLAIMS}.{kind}.{token}")
        except _GONE:
            return
        except _TROUBLE as error:
            raise LogUnavailable(f"the object store does not answer: {error}") from error

    async def _whole(self, info: ObjectInfo) -> bytes:
        """The chunks of an object put together. Raises NotFoundError where one is not there any more."""
        js = self._client.jetstream()
        body = bytearray()
        position = 0
        for _ in range(info.chunks or 0):
            chunk = await js.get_msg(
                _CLAIMS_STREAM, position + 1, f"$O.{subjects.CLAIMS}.C.{info.nuid}", next=True
            )
            position = chunk.seq or 0
            body += chunk.data or b""
        digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
        if info.digest != f"SHA-256={digest}":
            raise Corrupt(f"the claim {info.name} holds other bytes than were stored")
        return bytes(body)

    async def _objects(self) -> ObjectStore:
        if self._store is None:
            self._store = await self._client.jetstream().object_store(subjects.CLAIMS)
        return self._store
