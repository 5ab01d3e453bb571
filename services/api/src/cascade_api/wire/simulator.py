"""Bodies that simulators send. spec: types, Simulator calls."""

from typing import Annotated, Literal

from cascade_core.sims.facts import Engine
from cascade_core.sims.transitions import SimState
from pydantic import BaseModel, ConfigDict, FailFast, Field, JsonValue, field_validator

_LARGEST_EXIT_CODE = 2**53
"""Windows has codes of 32 bits without a sign; past this, JSON readers lose digits."""


class Heartbeat(BaseModel):
    """A sim's sign of life."""

    state: Literal["running", "succeeded", "failed"] = Field(
        description="`running` while working and `succeeded` or `failed` once at the end."
    )
    exit_code: int | None = Field(
        default=None,
        ge=-_LARGEST_EXIT_CODE,
        lt=_LARGEST_EXIT_CODE,
        description="Your process's exit code. Send it with the final heartbeat.",
    )
    error: str | None = Field(default=None, description="A short reason, with a `failed` heartbeat.")
    engine: Engine | None = Field(
        default=None, description="What makes the numbers, where the simulator knows. The worker sends it."
    )


class HeartbeatAck(BaseModel):
    """The app's answer to a heartbeat."""

    state: SimState = Field(description="The sim's state after this heartbeat.")
    cancel: bool = Field(description="True when main cancelled this sim; the simulator must stop.")


class LogChunk(BaseModel):
    """New output of a sim."""

    seq: int = Field(ge=0, lt=2**53, description="Per-sim, increasing; a repeated seq is ignored.")
    # One wrong line tells enough: a million of them must not cost a million error reports.
    lines: Annotated[list[str], FailFast()] = Field(
        description="Lines of simulator stdout, without trailing newlines."
    )


class StepTimelineUpload(BaseModel):
    """What a sim posts after step timing: `cascade simulate` and `cascade compare` output."""

    model_config = ConfigDict(ser_json_inf_nan="null")

    simulated: dict[str, JsonValue] = Field(
        description="`cascade simulate` output (simulated_timeline.json), with steps and summary."
    )
    compare: dict[str, JsonValue] | None = Field(
        default=None, description="`cascade compare` output (compare.json) against the real timeline."
    )

    @field_validator("simulated")
    @classmethod
    def _has_steps_and_summary(cls, simulated: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if not isinstance(simulated.get("steps"), list):
            raise ValueError("simulated must hold a `steps` list")
        if not isinstance(simulated.get("summary"), dict):
            raise ValueError("simulated must hold a `summary` object")
        return simulated
