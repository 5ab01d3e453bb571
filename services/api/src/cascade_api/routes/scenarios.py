"""Serving scenarios: how many requests, arriving when, would fare on a simulated GPU."""

from typing import cast

import orjson
from cascade_core.scenarios.request import ScenarioRequest
from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import JsonValue

from cascade_api.auth import AuthedRoute
from cascade_api.gateway import Gate, Gateway
from cascade_api.scenarios import asking, base_run
from cascade_api.scenarios.errors import BaseRunError

router = APIRouter(route_class=AuthedRoute, tags=["scenarios"])

_PROBLEM = {"description": "`detail`, `run_id` and `sim_id` of the base simulation."}


@router.post(
    "/api/scenarios",
    response_class=JSONResponse,
    responses={502: _PROBLEM, 504: _PROBLEM},
)
async def simulate_scenario(body: ScenarioRequest, gateway: Gate) -> Response:
    """Simulate a serving scenario on a finished sim's performance profile. Nothing of it is kept as a run."""
    try:
        result = await _simulated(body, gateway)
    except BaseRunError as error:
        problem = {"detail": error.detail, "run_id": error.run_id, "sim_id": error.sim_id}
        return JSONResponse(problem, error.status)
    return Response(orjson.dumps(result), media_type="application/json")


async def _simulated(body: ScenarioRequest, gateway: Gateway) -> dict[str, JsonValue]:
    base = await base_run.resolve(
        gateway,
        trace_id=body.trace_id,
        model=body.model,
        gpu_config=body.gpu_config,
        fresh=body.fresh is True,
    )
    await base_run.wait_for_timing(gateway, base, within_s=gateway.settings.openai_wait_s)
    asked = cast("dict[str, JsonValue]", body.model_dump(mode="json", exclude_none=True))
    result = await asking.ask(gateway, base, "scenario", asked)
    return result | {"cached": base.reused}
