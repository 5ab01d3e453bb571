"""The run event stream."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

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
    events = gateway.hub.stream(run_id)
    try:
        # Taken before the answer begins: what goes wrong until here still gets a status.
        snapshot = await anext(events)
    except BaseException:
        await events.aclose()
        raise
    return StreamingResponse(
        _from(snapshot, events),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


async def _from(first: bytes, events: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    async with aclosing(events):
        yield first
        async for event in events:
            yield event
