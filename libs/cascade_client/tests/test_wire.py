"""The wire models say what the app says: every model and every route of the OpenAPI document."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from cascade_api.app import build_app
from cascade_api.settings import ApiSettings
from cascade_client import calls, wire_models
from cascade_client.calls import Call, Download
from cascade_client.wire.base import Body
from cascade_client.wire.scenarios import ScenarioRequest, StepRow
from pydantic.json_schema import models_json_schema

NOT_OURS = {
    "ChromeTrace",  # only ever downloaded
    "RunEvent",  # a union of the events; `RUN_EVENT` reads it
    "JsonValue",
}


def _document() -> dict[str, Any]:
    return build_app(ApiSettings(no_auth=True)).openapi()


def _shape(schema: Any) -> Any:
    """A schema without what may differ: words, and limits that only the app enforces."""
    if isinstance(schema, list):
        return [_shape(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    drop = {"title", "description", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum"}
    drop |= {"exclusiveMaximum", "minItems", "maxItems", "additionalProperties"}
    if "$ref" in schema:
        return {"$ref": schema["$ref"].rsplit("/", 1)[-1]}
    # FastAPI leaves defaults of null out of its document.
    kept = {
        key: _shape(value)
        for key, value in schema.items()
        if key not in drop and not (key == "default" and value is None)
    }
    if "additionalProperties" in schema and isinstance(schema["additionalProperties"], dict):
        kept["additionalProperties"] = _shape(schema["additionalProperties"])
    if "properties" in schema:
        kept["properties"] = {name: _shape(value) for name, value in schema["properties"].items()}
    return kept


def _client_schemas() -> dict[str, Any]:
    _, document = models_json_schema([(model, "serialization") for model in wire_models.models().values()])
    schemas: dict[str, Any] = document["$defs"]
    return schemas


def _reached(document: dict[str, Any], *, requests: bool) -> set[str]:
    """Schemas of successful answers, or of request bodies, below /api. /v1 is for OpenAI's own clients."""
    schemas = document["components"]["schemas"]
    verbs = [
        verb
        for route, verbs in document["paths"].items()
        if route.startswith("/api/")
        for verb in verbs.values()
    ]
    todo: list[Any]
    if requests:
        todo = [verb.get("requestBody") for verb in verbs]
    else:
        todo = [
            body for verb in verbs for status, body in verb["responses"].items() if status.startswith("2")
        ]
    seen: set[str] = set()
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            name = str(item.get("$ref", "")).rsplit("/", 1)[-1]
            if name and name not in seen:
                seen.add(name)
                todo.append(schemas[name])
            todo += item.values()
        elif isinstance(item, list):
            todo += item
    return seen


DOCUMENT = _document()
SERVED = DOCUMENT["components"]["schemas"]
OURS = _client_schemas()
ANSWERED, ASKED = _reached(DOCUMENT, requests=False), _reached(DOCUMENT, requests=True)


@pytest.mark.parametrize("name", sorted((ANSWERED | ASKED) - NOT_OURS))
def test_a_served_schema_has_the_same_fields_here(name: str) -> None:
    assert name in OURS, f"the app's {name} has no model in cascade_client.wire"
    served, ours = _shape(SERVED[name]), _shape(OURS[name])
    if name == "StepRow":
        served["properties"]["provenance"].pop("enum")  # see below
    if name not in ANSWERED:
        # What only we send: defaults are ours to choose, as long as the names and types are the app's.
        for schema in (served, ours):
            for field in schema.get("properties", {}).values():
                field.pop("default", None)
        served.pop("required", None)
        ours.pop("required", None)
    assert ours == served


def test_every_route_has_a_call() -> None:
    served = {
        (verb.upper(), route.replace(":path", ""))
        for route, verbs in DOCUMENT["paths"].items()
        if route.startswith("/api/")
        for verb in verbs
    }
    ours = set()
    for function in vars(calls).values():
        if (
            inspect.isfunction(function)
            and function.__module__ == calls.__name__
            and not function.__name__.startswith("_")
        ):
            made = _made(function)
            ours.add((made.method if isinstance(made, Call) else "GET", made.route))
    assert ours == served


def _made(function: Any) -> Call[Any] | Download:
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = parameter.annotation
        if inspect.isclass(kind) and issubclass(kind, Body):
            given[name] = kind.model_construct()
        else:
            given[name] = (
                b"" if kind is bytes else [{"gpu_config": "a", "count": 1}] if name == "entries" else "x"
            )
    made = function(**given)
    assert isinstance(made, Call | Download)
    return made


GOLDEN = Path(__file__).parents[3] / "samples" / "golden"


def test_an_unknown_label_of_a_newer_app_is_still_text_here() -> None:
    assert SERVED["StepRow"]["properties"]["provenance"]["enum"]
    (stored,) = sorted(GOLDEN.glob("g1_*.response.json"))
    row = json.loads(stored.read_text())["steps"][0] | {"provenance": "guessed"}
    assert StepRow.model_validate(row).provenance == "guessed"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.request.json")), ids=lambda path: path.stem)
def test_a_stored_scenario_request_is_sent_as_it_is(path: Path) -> None:
    stored = json.loads(path.read_text())
    sent = calls.create_scenario(ScenarioRequest.model_validate(stored)).content
    assert sent is not None
    assert json.loads(sent) == stored
