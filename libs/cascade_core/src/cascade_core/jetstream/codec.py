"""A fact as a NATS message and back: headers carry the id, the version, the trace context and a claim."""

from nats.aio.msg import Msg

from cascade_core import facts
from cascade_core.errors import Corrupt
from cascade_core.facts import AnyFact
from cascade_core.jetstream.claim_check import CLAIM_HEADER, Claims
from cascade_core.record import Recorded
from cascade_core.upcasting import CURRENT_VERSION

EVENT_ID_HEADER = "Nats-Msg-Id"
VERSION_HEADER = "Cascade-Version"
TRACE_HEADER = "traceparent"


def headers_of(event_id: str, traceparent: str | None) -> dict[str, str]:
    """The headers of a stored fact."""
    headers = {EVENT_ID_HEADER: event_id, VERSION_HEADER: str(CURRENT_VERSION)}
    if traceparent:
        headers[TRACE_HEADER] = traceparent
    return headers


def position_of(msg: Msg) -> int:
    """The stream sequence from a delivered message's reply subject, `$JS.ACK.<stream>....`."""
    tokens = msg.reply.split(".")
    # With a domain and an account hash there are two more tokens in front.
    return int(tokens[5] if len(tokens) == 9 else tokens[7])


async def recorded(
    body: bytes, headers: dict[str, str] | None, position: int, claims: Claims
) -> Recorded[AnyFact]:
    """The fact in a stored message. Raises Corrupt, UnknownFactVersion, LogUnavailable."""
    headers = headers or {}
    claim = headers.get(CLAIM_HEADER)
    if claim is not None:
        body = await claims.get(claim)
    version = headers.get(VERSION_HEADER, "1")
    if not version.isdigit():
        raise Corrupt(f"position {position} of the log has no schema version but {version!r}")
    return Recorded(
        position=position,
        fact=facts.decode(body, version=int(version)),
        event_id=headers.get(EVENT_ID_HEADER, ""),
        traceparent=headers.get(TRACE_HEADER),
    )
