"""The OpenAPI document, as the routes really are.

Bodies are read by `bodies`, not by the framework, so routes name their schema by `body_schema` and this module adds
the schemas. The framework's own idea of a 422 is taken out: routes document theirs.
"""

from collections.abc import Sequence
from typing import Any

from cascade_core.scenarios.request import ScenarioRequest
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from cascade_api.wire.events import RunEvent
from cascade_api.wire.runs import RunCreate
from cascade_api.wire.simulator import Heartbeat, LogChunk, StepTimelineUpload

_REF = "#/components/schemas/{model}"
_BODIES: Sequence[type[BaseModel]] = (RunCreate, Heartbeat, LogChunk, StepTimelineUpload, ScenarioRequest)
_OPEN_PATHS = frozenset({"/api/health", "/api/ready"})
DESCRIPTION = (
    "Trace an LLM workload once, simulate it on many GPU configs, follow every sim live. "
    "Errors are JSON with a `detail`. Simulators retry a 5xx with backoff and stop on any 4xx."
)


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The `openapi_extra` of a route whose JSON body is `model`."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def event_stream_schema() -> dict[str, Any]:
    """The 200 response of the event stream."""
    return {
        "description": "One `RunEvent` as JSON on each `data:` line.",
        "content": {"text/event-stream": {"schema": {"$ref": _REF.format(model="RunEvent")}}},
    }


def install(app: FastAPI) -> None:
    """Make `app.openapi()` tell what the routes do."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # the framework's own way to replace it


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
    schemas = document["components"]["schemas"]
    schemas.update(_added_schemas())
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, item in document["paths"].items():
        for operation in item.values():
            _without_framework_problem(operation)
            if path not in _OPEN_PATHS:
                operation["security"] = [{"token": []}]
    return document


def _added_schemas() -> dict[str, Any]:
    _, bodies = models_json_schema([(model, "validation") for model in _BODIES], ref_template=_REF)
    events = TypeAdapter(RunEvent).json_schema(mode="serialization", ref_template=_REF)
    added = bodies.get("$defs", {}) | events.pop("$defs", {})
    added["RunEvent"] = events
    return dict(added)


def _without_framework_problem(operation: dict[str, Any]) -> None:
    invalid = operation["responses"].get("422")
    schema = (invalid or {}).get("content", {}).get("application/json", {}).get("schema", {})
    if schema.get("$ref") == _REF.format(model="HTTPValidationError"):
        del operation["responses"]["422"]
