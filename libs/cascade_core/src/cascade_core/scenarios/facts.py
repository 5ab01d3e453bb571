"""Questions about serving that the request simulator answers."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue

from cascade_core.fact_base import Fact
from cascade_core.ids import RunId, ScenarioId, SimId


class ScenarioFact(Fact):
    """A fact about one scenario."""

    scenario_id: ScenarioId


class ScenarioRequested(ScenarioFact):
    """Somebody asked what serving would be like on a sim's simulated GPU."""

    type: Literal["scenario.requested"] = "scenario.requested"
    kind: Literal["scenario", "estimate"]
    """`scenario`: the whole scheduler; `estimate`: one request alone, for the OpenAI-compatible routes."""
    trace_id: str
    run_id: RunId
    sim_id: SimId
    gpu_config: str
    body: dict[str, JsonValue]
    """The request as it was sent."""


class ScenarioCompleted(ScenarioFact):
    """The request simulator answered. Many MB at times: then the log holds a claim."""

    type: Literal["scenario.completed"] = "scenario.completed"
    result: dict[str, JsonValue]
    """The whole answer."""


class ScenarioFailed(ScenarioFact):
    """The scenario cannot be answered. `status` is the HTTP status that says why."""

    type: Literal["scenario.failed"] = "scenario.failed"
    status: int = Field(ge=400, le=599)
    detail: str


ScenarioFactUnion: TypeAlias = Annotated[
    ScenarioRequested | ScenarioCompleted | ScenarioFailed, Field(discriminator="type")
]
