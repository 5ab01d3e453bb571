"""Payloads larger than a message: stored whole in an object store first, then referred to by a claim.

The server counts headers towards `max_payload`, so the limit leaves room for them.
"""

import base64
import uuid

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError, ObjectNotFoundError
from nats.js.object_store import ObjectStore

from cascade_core import subjects
from cascade_core.errors import Corrupt, LogUnavailable

CLAIM_HEADER = "Cascade-Claim"
HEADER_ROOM_BYTES = 4096
MOST_INLINE_BYTES = 512 * 1024
"""Beyond this a message slows its neighbours down, whatever the server would take."""
_CLAIMS_STREAM = f"OBJ_{subjects.CLAIMS}"
"""The stream below the object store: chunks on `$O.<store>.C.<nuid>`, names on `$O.<store>.M.<base64>` (ADR-20)."""


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
        except (NatsError, TimeoutError, OSError) as error:
            raise LogUnavailable(f"the object store did not take {len(body)} bytes: {error}") from error
        return name

    async def get(self, name: str) -> bytes:
        """The body behind a claim. Raises LogUnavailable, Corrupt when a stored claim leads nowhere."""
        try:
            found = await (await self._objects()).get(name)
        except (ObjectNotFoundError, NotFoundError) as error:
            raise Corrupt(f"the claim {name} leads nowhere: its object was deleted by hand") from error
        except (NatsError, TimeoutError, OSError) as error:
            raise LogUnavailable(f"the object store does not answer: {error}") from error
        if found.data is None:
            raise Corrupt(f"the claim {name} holds nothing")
        return bytes(found.data)

    async def of_subject(self, subject: str) -> list[str]:
        """The claims of one subject's facts. Claims are few: one for a message beyond half a mebibyte."""
        try:
            entries = await (await self._objects()).list(ignore_deletes=True)
        except NotFoundError:
            return []
        except (NatsError, TimeoutError, OSError) as error:
            raise LogUnavailable(f"the object store does not answer: {error}") from error
        return [entry.name for entry in entries if entry.name and entry.name.startswith(subject + "/")]

    async def drop(self, name: str) -> None:
        """Forget a claim that no fact refers to. The store's own `delete` would leave a tombstone for ever."""
        js = self._client.jetstream()
        try:
            found = await (await self._objects()).get_info(name, show_deleted=True)
            for kind, token in (("C", found.nuid), ("M", base64.urlsafe_b64encode(name.encode()).decode())):
                await js.purge_stream(_CLAIMS_STREAM, subject=f"$O.{subjects.CLAIMS}.{kind}.{token}")
        except (ObjectNotFoundError, NotFoundError):
            return
        except (NatsError, TimeoutError, OSError) as error:
            raise LogUnavailable(f"the object store does not answer: {error}") from error

    async def _objects(self) -> ObjectStore:
        if self._store is None:
            self._store = await self._client.jetstream().object_store(subjects.CLAIMS)
        return self._store
