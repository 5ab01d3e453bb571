"""A fact as a NATS message and back: headers carry the id, the version, the trace context and a claim."""

from collections.abc import Mapping
from dataclasses import dataclass

from nats.aio.msg import Msg

from cascade_core import facts
from cascade_core.errors import Corrupt
from cascade_core.facts import AnyFact
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


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the server says about a message that it delivers to a consumer."""

    position: int
    """The stream sequence."""
    number: int
    """Counts this consumer's deliveries from 1, without gaps."""
    pending: int
    """Messages behind this one that match the consumer now."""


def delivery_of(msg: Msg) -> Delivery:
    """Read from the reply subject, `$JS.ACK.<stream>.<consumer>.<times>.<stream seq>.<consumer seq>.<time>.<pending>`.

    On a server with a domain two tokens stand before the stream, and more may follow at the end
    (nats-architecture-and-design, ADR-15).
    """
    tokens = msg.reply.split(".")
    first = 5 if len(tokens) == 9 else 7
    return Delivery(
        position=int(tokens[first]), number=int(tokens[first + 1]), pending=int(tokens[first + 3])
    )


def recorded(body: bytes, headers: Mapping[str, str], position: int) -> Recorded[AnyFact]:
    """The fact in a stored message whose body is complete. Raises Corrupt, UnknownFactVersion."""
    version = headers.get(VERSION_HEADER, "1")
    if not (version.isascii() and version.isdigit()):
        raise Corrupt(f"position {position} of the log has no schema version but {version!r}")
    return Recorded(
        position=position,
        fact=facts.decode(body, version=int(version)),
        event_id=headers.get(EVENT_ID_HEADER, ""),
        traceparent=headers.get(TRACE_HEADER),
    )
