"""The request simulator's settings, read once from the environment in `main`."""

from cascade_core.settings import BucketSettings, NatsSettings, TelemetrySettings
from pydantic import Field


class RequestsimSettings(NatsSettings, BucketSettings, TelemetrySettings):
    """Everything the request simulator needs to know."""

    scenario_threads: int = Field(
        default=2, ge=1, le=64, description="Scenarios that one instance computes at the same time."
    )
    scenario_max_age_s: float = Field(
        default=600.0,
        gt=0,
        le=86_400,
        description="A scenario older than this is failed instead of computed: nobody waits for it. [s]",
    )
