"""Which subjects of a stream hold messages now. One question to the server a page; no consumer is made for it."""

import json

from nats.aio.client import Client
from nats.errors import Error as NatsError

from cascade_core.errors import LogUnavailable

_TIMEOUT_S = 5.0


async def subjects_in(client: Client, stream: str, subject_filter: str) -> dict[str, int]:
    """Subjects that match, with their number of messages. Raises LogUnavailable."""
    found: dict[str, int] = {}
    try:
        while True:
            request = {"subjects_filter": subject_filter, "offset": len(found)}
            reply = await client.request(
                f"$JS.API.STREAM.INFO.{stream}", json.dumps(request).encode(), timeout=_TIMEOUT_S
            )
            answer = json.loads(reply.data)
            if "error" in answer:
                raise LogUnavailable(f"the event log does not answer: {answer['error'].get('description')}")
            page = answer["state"].get("subjects") or {}
            found.update(page)
            if not page or len(found) >= answer.get("total", 0):
                return found
    except (NatsError, TimeoutError, OSError) as error:
        raise LogUnavailable(f"the event log does not answer: {error or type(error).__name__}") from error
