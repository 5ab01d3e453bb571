"""What simulators call: heartbeats, log chunks, step timing."""

from cascade_core.sims.facts import SimStepTimelineStored
from fastapi import APIRouter, Header, Request, Response

from cascade_api.auth import SimulatorRoute
from cascade_api.bodies import body_of, finite, model_of
from cascade_api.gateway import Gate
from cascade_api.openapi import body_schema
from cascade_api.reporting import refuse_fenced, report_heartbeat, report_log
from cascade_api.wire.problems import documented
from cascade_api.wire.simulator import Heartbeat, HeartbeatAck, LogChunk, StepTimelineUpload

router = APIRouter(route_class=SimulatorRoute, tags=["simulator"])

Attempt = Header(
    default=None,
    alias="X-Cascade-Attempt",
    description="Names the start that calls, from `CASCADE_ATTEMPT`. A second start of the same sim is fenced off.",
)


@router.post(
    "/api/sims/{sim_id}/heartbeat",
    response_model=HeartbeatAck,
    openapi_extra=body_schema(Heartbeat),
    responses=documented(404, 413, 422),
)
async def heartbeat(sim_id: str, request: Request, gateway: Gate, attempt: str | None = Attempt) -> Response:
    """Report a sim's state. The reply says whether to stop."""
    answer = await report_heartbeat(gateway, sim_id, await body_of(request), attempt)
    return Response(answer, media_type="application/json")


@router.post(
    "/api/sims/{sim_id}/logs",
    status_code=204,
    response_class=Response,
    openapi_extra=body_schema(LogChunk),
    responses=documented(404, 409, 413, 422),
)
async def append_log(sim_id: str, request: Request, gateway: Gate, attempt: str | None = Attempt) -> Response:
    """Append a chunk of simulator output. Answered once it is durable."""
    await report_log(gateway, sim_id, await body_of(request), attempt)
    return Response(status_code=204)


@router.post(
    "/api/sims/{sim_id}/step-timeline",
    status_code=204,
    response_class=Response,
    openapi_extra=body_schema(StepTimelineUpload),
    responses=documented(404, 409, 413, 422),
)
async def store_step_timeline(
    sim_id: str, request: Request, gateway: Gate, attempt: str | None = Attempt
) -> Response:
    """Store a sim's predicted step timeline and its comparison. Sending again replaces it."""
    upload = await model_of(request, StepTimelineUpload)
    sim = await gateway.sims.known(sim_id)
    refuse_fenced(sim, attempt)
    await gateway.append_and_project(
        SimStepTimelineStored(
            run_id=sim.run_id,
            sim_id=sim_id,
            occurred_at=gateway.now(),
            simulated=finite(upload.simulated),
            compare=finite(upload.compare),
        )
    )
    return Response(status_code=204)
