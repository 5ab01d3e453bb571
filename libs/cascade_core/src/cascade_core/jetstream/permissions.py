"""What each service may publish and subscribe to on NATS: its own facts, its leases, and reading. Nothing else.

A service whose credentials leak can neither forge another one's facts nor drop the log. Streams are made by the
operator's login before the services start (`cascade provision`, or `cascade serve` itself).
"""

from dataclasses import dataclass

from cascade_core import subjects
from cascade_core.writers import WRITERS, Service

_STREAM = subjects.STREAM
_CLAIMS = f"OBJ_{subjects.CLAIMS}"
_LEASES = f"KV_{subjects.LEASES}"

# Asking JetStream, and reading by ephemeral consumers and direct gets.
_READ = (
    "$JS.API.INFO",
    # The object store looks its own stream up by subject.
    "$JS.API.STREAM.NAMES",
    *(
        subject
        for stream in (_STREAM, _CLAIMS, _LEASES)
        for subject in (
            f"$JS.API.STREAM.INFO.{stream}",
            f"$JS.API.STREAM.MSG.GET.{stream}",
            f"$JS.API.DIRECT.GET.{stream}",
            f"$JS.API.DIRECT.GET.{stream}.>",
            f"$JS.API.CONSUMER.CREATE.{stream}",
            f"$JS.API.CONSUMER.CREATE.{stream}.>",
            f"$JS.API.CONSUMER.INFO.{stream}.>",
            f"$JS.API.CONSUMER.DELETE.{stream}.>",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.>",
        )
    ),
    f"$JS.FC.{_CLAIMS}.>",
    f"$JS.FC.{_LEASES}.>",
)
# A payload that does not fit a message goes to the object store first.
_CLAIM = (f"$O.{subjects.CLAIMS}.>", f"$JS.API.STREAM.PURGE.{_CLAIMS}")
_LEASE = (f"$KV.{subjects.LEASES}.>",)
# Only the gateway's archiver takes logs of ended sims out of the stream.
_ARCHIVE = (f"$JS.API.STREAM.PURGE.{_STREAM}",)
_HOLDS_LEASES: frozenset[Service] = frozenset({"ingest", "launcher", "parser", "requestsim"})

SERVICES: tuple[Service, ...] = ("ingest", "api", "launcher", "parser", "requestsim")


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects that one login may use."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def permissions_of(service: Service, *, bucket_events: str = "minio.events") -> Permissions:
    """What `service` may do."""
    publish = [*_facts_of(service), *_READ, *_CLAIM]
    if service in _HOLDS_LEASES:
        publish.extend(_LEASE)
    if service == "api":
        publish.extend(_ARCHIVE)
    subscribe = ["_INBOX.>"]
    if service == "ingest":
        subscribe.append(bucket_events)
    return Permissions(tuple(publish), tuple(subscribe))


def _facts_of(service: Service) -> list[str]:
    allowed: list[str] = []
    for fact_type, writer in WRITERS.items():
        if writer != service:
            continue
        aggregate, name = fact_type.split(".", 1)
        match aggregate:
            case "trace" | "run" | "scenario":
                allowed.append(f"{subjects.ROOT}.{aggregate}.*.{name}")
            case "sim":
                allowed.append(f"{subjects.ROOT}.sim.*.*.{name}")
                if fact_type == "sim.reported":
                    allowed.append(f"{subjects.ROOT}.beat.*.*")
            case _:
                allowed.append(f"{subjects.ROOT}.{aggregate}.*.*")
    return allowed
