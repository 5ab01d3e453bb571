"""What every fact has in common: it is frozen, versioned and says when it happened by its writer's clock."""

from pydantic import AwareDatetime, BaseModel, ConfigDict


class Fact(BaseModel):
    """Base of all facts. Past tense, immutable; a change of meaning is a new version with an upcaster."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        ser_json_inf_nan="null",
        arbitrary_types_allowed=False,
    )

    occurred_at: AwareDatetime
    """The writer's clock, UTC. Drives timeouts and shown times, never ordering."""
