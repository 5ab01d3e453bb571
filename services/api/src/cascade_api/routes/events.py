"""The run event stream."""

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from cascade_api.auth import StreamRoute
from cascade_api.gateway import Gate
from cascade_api.openapi import event_stream_schema
from cascade_api.read_models import queries
from cascade_api.wire.problems import documented

router = APIRouter(route_class=StreamRoute, tags=["events"])


@router.get(
    "/api/runs/{run_id}/events",
    response_class=StreamingResponse,
    responses={200: event_stream_schema(), **documented(404)},
)
async def stream_run_events(
    run_id: str,
    gateway: Gate,
    token: str | None = Query(default=None, description="Your CASCADE_TOKEN; checked instead of the header."),
) -> StreamingResponse:
    """Server-sent events for one run: a snapshot, then every change as it is stored."""
    del token  # checked by the route class
    await queries.run(await gateway.fresh(), run_id)
    return StreamingResponse(
        gateway.hub.stream(run_id),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )
