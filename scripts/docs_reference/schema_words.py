"""The app's OpenAPI document, and its schemas in words. Types link to the types page, states to the states page."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from cascade_api.app import build_app
from cascade_api.settings import ApiSettings
from cascade_client import wire_models

REFERENCE = "#/components/schemas/{model}"
STATES = ("TraceState", "SimState", "RunState")

Schema = Mapping[str, Any]


@cache
def document() -> dict[str, Any]:
    """The document."""
    found: dict[str, Any] = build_app(ApiSettings(no_auth=True)).openapi()
    return found


def schemas() -> dict[str, dict[str, Any]]:
    """Every named schema."""
    found: dict[str, dict[str, Any]] = document()["components"]["schemas"]
    return found


def description_of(model: str, field: str, schema: Schema) -> str:
    """What a field means, from the app, else from the client's model of the same name."""
    said = schema.get("description") or wire_models.described_fields().get(model, {}).get(field, "")
    return " ".join(str(said).split())


def type_words(schema: Schema) -> str:
    """A schema in a few words, with links."""
    if "$ref" in schema:
        return linked(str(schema["$ref"]).rsplit("/", 1)[-1])
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    if "enum" in schema:
        return " or ".join(f'`"{value}"`' for value in schema["enum"])
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " or ".join(dict.fromkeys(type_words(option) for option in schema[union]))
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"list of {len(schema['prefixItems'])} {type_words(schema['prefixItems'][0])}"
        case "array":
            return f"list of {type_words(schema.get('items', {}))}"
        case "object" if isinstance(values := schema.get("additionalProperties"), Mapping) and values:
            return f"object of {type_words(values)}"
        case str(kind):
            return "time" if schema.get("format") == "date-time" else kind
        case _:
            return "any JSON"


def linked(name: str) -> str:
    """A type's name as a link to where it is described."""
    if name == "JsonValue":
        return "any JSON"
    page = "states.md" if name in STATES else "types.md"
    return f"[`{name}`]({page}#{name.lower()})"


def limits(schema: Schema) -> str:
    """Bounds and default of a field, such as `1 to 64`; empty without."""
    said = []
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        said.append(f"{low} to {high}")
    elif low is not None:
        said.append(f"at least {low}")
    elif high is not None:
        said.append(f"at most {high}")
    if "exclusiveMinimum" in schema:
        said.append(f"over {schema['exclusiveMinimum']}")
    if "minItems" in schema or "maxItems" in schema:
        most = f" to {schema['maxItems']}" if "maxItems" in schema else " or more"
        said.append(f"{schema.get('minItems', 0)}{most} items")
    return ", ".join(said)


def field_rows(model: str) -> list[list[str]]:
    """Name, type and meaning of each field of a named schema."""
    schema = schemas()[model]
    required = set(schema.get("required", []))
    rows = []
    for field, shape in schema.get("properties", {}).items():
        said = description_of(model, field, shape)
        notes = [bound] if (bound := limits(shape)) else []
        if field not in required and "default" in shape:
            notes.append(f"default `{_json(shape['default'])}`")
        elif field not in required and "const" not in shape:
            notes.append("may be left out")
        rows.append([f"`{field}`", type_words(shape), f"{said} ({'; '.join(notes)})" if notes else said])
    return rows


def _json(value: object) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
