"""The simulator's raw output, chunk by chunk. Written by the gateway."""

from typing import Literal

from pydantic import Field

from cascade_core.sims.facts import SimFact


class LogAppended(SimFact):
    """One chunk of a sim's log. The first chunk stored for a `seq` wins."""

    type: Literal["log.appended"] = "log.appended"
    seq: int = Field(ge=0)
    """The client's chunk number, from zero."""
    lines: list[str]
    """Lines without their ends. They may hold anything."""
    attempt: str | None = None
    """Which start of the sim sent it, where the simulator says so."""
