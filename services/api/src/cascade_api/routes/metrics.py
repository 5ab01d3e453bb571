"""Prometheus metrics of this replica. Gauges that only the views know are asked for when somebody looks."""

import time

from cascade_core.errors import Unavailable
from cascade_core.metrics import SIMS, SSE_SUBSCRIBERS
from cascade_core.sims.transitions import SimState
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from cascade_api.auth import AuthedRoute
from cascade_api.gateway import Gate, Gateway
from cascade_api.read_models import queries

router = APIRouter(route_class=AuthedRoute, tags=["health"])

COUNT_EVERY_S = 5.0
"""Several scrapers cost one count."""


@router.get("/api/metrics", include_in_schema=False)
async def metrics(gateway: Gate) -> Response:
    """Everything this process counts, as Prometheus text. Needs the token like any other route."""
    SSE_SUBSCRIBERS.set(gateway.hub.subscriber_count)
    await _count_sims(gateway)
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


class _Counted:
    at = float("-inf")


async def _count_sims(gateway: Gateway) -> None:
    if time.monotonic() - _Counted.at < COUNT_EVERY_S:
        return
    try:
        found = await queries.sims_by_state(gateway.database)
    except Unavailable:
        return  # the other metrics tell why, and must be shown
    _Counted.at = time.monotonic()
    for state in SimState:
        SIMS.labels(state.value).set(found.get(state.value, 0))
