"""Serving scenarios: how many requests, arriving when, would fare on a simulated GPU."""

from typing import cast

import orjson
from cascade_core.scenarios.answer import ScenarioResponse
from cascade_core.scenarios.request import ScenarioRequest
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, JsonValue

from cascade_api.auth import AuthedRoute
from cascade_api.bodies import model_of
from cascade_api.gateway import Gate, Gateway
from cascade_api.openapi import body_schema
from cascade_api.scenarios import asking, base_run
from cascade_api.scenarios.errors import BaseRunError
from cascade_api.wire.problems import documented

router = APIRouter(route_class=AuthedRoute, tags=["scenarios"])

JSON = "application/json"


class BaseProblem(BaseModel):
    """Why the base simulation gives nothing to answer from."""

    detail: str
    run_id: str = Field(description="The base run; it goes on where the answer is only late.")
    sim_id: str


@router.post(
    "/api/scenarios",
    openapi_extra=body_schema(ScenarioRequest),
    responses=documented(404, 409, 413, 422)
    | {
        # Only told: many MB of the request simulator's own making are not checked again.
        200: {"model": ScenarioResponse, "description": "The outcome, by request and by step."},
        502: {"model": BaseProblem, "description": "The base simulation failed or gave no step timing."},
        504: {"model": BaseProblem, "description": "The base simulation or the answer did not come in time."},
    },
)
async def simulate_scenario(request: Request, gateway: Gate) -> Response:
    """Simulate a serving scenario on a finished sim's performance profile. Nothing of it is kept as a run."""
    body = await model_of(request, ScenarioRequest)
    try:
        result = await _simulated(body, request, gateway)
    except BaseRunError as error:
        problem = BaseProblem(detail=error.detail, run_id=error.run_id, sim_id=error.sim_id)
        return Response(problem.model_dump_json(), error.status, media_type=JSON)
    return Response(orjson.dumps(result), media_type=JSON)


async def _simulated(body: ScenarioRequest, request: Request, gateway: Gateway) -> dict[str, JsonValue]:
    base = await base_run.resolve(
        gateway,
        trace_id=body.trace_id,
        model=body.model,
        gpu_config=body.gpu_config,
        fresh=body.fresh is True,
    )
    await base_run.wait_for_timing(
        gateway, base, within_s=gateway.settings.openai_wait_s, is_gone=request.is_disconnected
    )
    asked = cast("dict[str, JsonValue]", body.model_dump(mode="json", exclude_none=True))
    result = await asking.ask(gateway, base, "scenario", asked)
    return result | {"cached": base.reused}
