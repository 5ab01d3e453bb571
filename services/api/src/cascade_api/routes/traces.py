"""Traces and GPU configs, read only: traces arrive over S3."""

from fastapi import APIRouter, Response

from cascade_api.auth import AuthedRoute
from cascade_api.gateway import Gate
from cascade_api.read_models import queries
from cascade_api.wire.problems import documented
from cascade_api.wire.traces import GpuConfig, TraceDetail, TraceSummary, detail_of

router = APIRouter(route_class=AuthedRoute, tags=["traces"])

JSON = "application/json"


@router.get("/api/traces", response_model=list[TraceSummary], responses=documented())
async def list_traces(gateway: Gate) -> Response:
    """Every trace, in every state, newest first."""
    summaries = await queries.trace_summaries(await gateway.fresh())
    return Response(b"[" + b",".join(summaries) + b"]", media_type=JSON)


@router.get("/api/traces/{trace_id}", response_model=TraceDetail, responses=documented(404))
async def get_trace(trace_id: str, gateway: Gate) -> Response:
    """One trace with its metadata and kernels."""
    trace = await queries.trace(await gateway.fresh(), trace_id)
    return Response(detail_of(trace).model_dump_json(), media_type=JSON)


@router.get("/api/gpu-configs", responses=documented())
async def list_gpu_configs(gateway: Gate) -> list[GpuConfig]:
    """The GPU configs a run can use, by name."""
    return sorted(gateway.gpu_configs.values(), key=lambda config: config.name)
