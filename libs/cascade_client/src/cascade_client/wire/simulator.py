"""Bodies that simulators send."""

from typing import Literal

from pydantic import Field, JsonValue

from cascade_client.wire.base import Body
from cascade_client.wire.runs import SimState

_LARGEST_EXIT_CODE = 2**53
"""Windows has codes of 32 bits without a sign; past this, JSON readers lose digits."""


class Heartbeat(Body):
    """A sim's sign of life."""

    state: Literal["running", "succeeded", "failed"] = Field(
        description="`running` while working; `succeeded` or `failed` once, at the end."
    )
    exit_code: int | None = Field(
        default=None,
        ge=-_LARGEST_EXIT_CODE,
        lt=_LARGEST_EXIT_CODE,
        description="The simulator's exit code, with the final heartbeat.",
    )
    error: str | None = Field(default=None, description="A short reason, with `failed`.")
    engine: Literal["accel-sim", "replay", "estimate"] | None = Field(
        default=None, description="What makes the numbers, where the simulator knows."
    )


class HeartbeatAck(Body):
    """The answer to a heartbeat."""

    state: SimState = Field(description="The sim's state after it.")
    cancel: bool = Field(description="True when the sim was cancelled and must stop.")


class LogChunk(Body):
    """New output of a sim."""

    seq: int = Field(ge=0, lt=2**53, description="The chunk's number; a repeated one is ignored.")
    lines: list[str] = Field(description="Lines without their line ends.")


class StepTimelineUpload(Body):
    """A sim's step timing."""

    simulated: dict[str, JsonValue] = Field(description="Output of `cascade simulate`.")
    compare: dict[str, JsonValue] | None = Field(default=None, description="Output of `cascade compare`.")
