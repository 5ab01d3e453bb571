"""The simulator's raw output, chunk by chunk. Written by the gateway."""

from typing import Literal

from pydantic import Field

from cascade_core.sims.facts import SimFact


class LogAppended(SimFact):
    """One chunk of a sim's log. The first chunk stored for a `seq` wins."""

    type: Literal["log.appended"] = "log.appended"
    seq: int = Field(ge=0)
    lines: list[str]
    attempt: str | None = None
