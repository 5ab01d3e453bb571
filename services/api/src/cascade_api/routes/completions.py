"""OpenAI-compatible routes: one request's predicted timing, in the shapes that OpenAI's clients read."""

from collections.abc import AsyncIterable
from typing import Any

from cascade_core.errors import NotFound
from cascade_core.traces.state import TraceState
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, TypeAdapter
from starlette.concurrency import iterate_in_threadpool
from starlette.exceptions import HTTPException

from cascade_api.bodies import body_of, parsed
from cascade_api.gateway import Gate, Gateway
from cascade_api.openai import predicting, replies
from cascade_api.openai.bodies import ChatBody, CompletionBody
from cascade_api.openai.errors import OpenAIRoute
from cascade_api.read_models import queries
from cascade_api.routing import methods_taken
from cascade_api.scenarios import base_run
from cascade_api.wire.traces import TraceSummary

router = APIRouter(route_class=OpenAIRoute, tags=["openai"])

MOST_BODY_BYTES = 8 * 1024 * 1024
"""A prompt of two million tokens; no model here takes one of a hundredth."""
_SUMMARIES: TypeAdapter[TraceSummary] = TypeAdapter(TraceSummary)
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class OpenAIProblem(BaseModel):
    """An error in OpenAI's shape."""

    error: dict[str, Any]


def _documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": OpenAIProblem, "description": "`error.message` says why."} for status in statuses
    }


def _takes(model: type[BaseModel]) -> dict[str, Any]:
    schema = {"type": "object", "required": ["model"], "properties": {key: {} for key in model.model_fields}}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}, "application/json": {"schema": {"type": "object"}}}}
}
_PROBLEMS = _documented(400, 401, 404, 409, 413, 422, 500, 502, 503, 504)


@router.post("/v1/completions", responses=_STREAM | _PROBLEMS, openapi_extra=_takes(CompletionBody))
async def create_completion(request: Request, gateway: Gate) -> Response:
    """Predict one completion's timing. The text is made up; `cascade.timing` is what this is for."""
    return await _completed(
        gateway, request, parsed(CompletionBody, await body_of(request, most=MOST_BODY_BYTES))
    )


@router.post("/v1/chat/completions", responses=_STREAM | _PROBLEMS, openapi_extra=_takes(ChatBody))
async def create_chat_completion(request: Request, gateway: Gate) -> Response:
    """Predict one chat completion's timing. The text is made up; `cascade.timing` is what this is for."""
    return await _completed(gateway, request, parsed(ChatBody, await body_of(request, most=MOST_BODY_BYTES)))


async def _completed(gateway: Gateway, request: Request, body: CompletionBody | ChatBody) -> Response:
    base = await predicting.resolve(gateway, body)
    if body.stream is not True:
        await base_run.wait_for_timing(
            gateway, base, within_s=gateway.settings.openai_wait_s, is_gone=request.is_disconnected
        )
        reply = await predicting.predict(gateway, base, body)
        return Response(replies.whole(reply), media_type="application/json")
    events: AsyncIterable[bytes]
    if base.reused:
        # Predicted before the status leaves, so that a refusal still has a status of its own.
        reply = await predicting.predict(gateway, base, body)
        events = iterate_in_threadpool(replies.chunks(reply, with_usage=body.wants_usage_chunk))
    else:
        events = predicting.stream(gateway, base, body)
    return StreamingResponse(events, media_type="text/event-stream", headers=_STREAM_HEADERS)


@router.get("/v1/models", response_model=dict[str, Any], responses=_documented(401, 503))
async def list_models(gateway: Gate) -> dict[str, Any]:
    """What `model` may name: every ready trace with step timing, and the models they were captured from."""
    return {"object": "list", "data": await _models(gateway)}


@router.get("/v1/models/{model:path}", response_model=dict[str, Any], responses=_documented(401, 404, 503))
async def get_model(model: str, gateway: Gate) -> dict[str, Any]:
    """One of `/v1/models`."""
    for known in await _models(gateway):
        if known["id"] == model:
            return known
    raise NotFound(f"the model {model!r} does not exist; GET /v1/models lists those that do")


async def _models(gateway: Gateway) -> list[dict[str, Any]]:
    summaries = [
        _SUMMARIES.validate_json(row) for row in await queries.trace_summaries(await gateway.fresh())
    ]
    ready = [trace for trace in summaries if trace.state is TraceState.READY and trace.has_step_timeline]
    models: dict[str, dict[str, Any]] = {}
    for trace in ready:
        for name in (trace.id, trace.model):
            if name is not None:
                created = int(trace.created_at.timestamp())
                models.setdefault(
                    name,
                    {
                        "id": name,
                        "object": "model",
                        "created": created,
                        "owned_by": "cascade",
                        "trace_id": trace.id,
                        "gpu_config": trace.suggested_sim_config,
                        "sample": trace.sample,
                    },
                )
    return list(models.values())


_SERVED = tuple(router.routes)
_ANY = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
"""HEAD and OPTIONS too: the dashboard, which serves every other path, would answer them with its page."""


@router.api_route("/v1", methods=_ANY, include_in_schema=False)
@router.api_route("/v1/{path:path}", methods=_ANY, include_in_schema=False)
async def unknown_route(request: Request) -> Response:
    """Everything else of OpenAI's API, and known paths by another method."""
    path = request.url.path
    if methods := methods_taken(request.scope, _SERVED):
        allowed = ", ".join(methods)
        raise HTTPException(405, f"{path} takes {allowed}, not {request.method}", headers={"Allow": allowed})
    raise HTTPException(404, f"{path} is not served here; there are completions, chat/completions and models")
