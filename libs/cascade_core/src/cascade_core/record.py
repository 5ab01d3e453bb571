"""A fact as the log holds it: its place in the one total order, and who caused it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

F_co = TypeVar("F_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Recorded(Generic[F_co]):
    """One stored fact. `position` is the stream sequence, from 1, without repeats."""

    position: int
    fact: F_co
    event_id: str
    traceparent: str | None = None
    """W3C trace context of the request that caused the fact."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The log's answer to an append. `duplicate` means that the same event id was already stored."""

    position: int
    duplicate: bool = False
