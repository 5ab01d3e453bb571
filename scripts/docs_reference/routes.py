"""API routes as tables, from the app's OpenAPI document."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scripts.docs_reference.blocks import table
from scripts.docs_reference.schema_words import document, field_rows, schemas, type_words

OPEN = frozenset({"/api/health", "/api/ready"})
PARAMETERS = {
    "trace_id": "The trace's `id`, percent-encoded.",
    "run_id": "The run's `id`, such as `run-9f56e171af08`.",
    "sim_id": "The sim's `id`, such as `sim-6b4c91e71437`; a run lists its own.",
    "name": "The file's name: letters, digits, `.`, `_` and `-`, 1 to 128 of them, not `.` or `..`.",
    "model": "A trace's `id`, or a model's name as traces give it.",
}
PAGES = {
    "health": "api.md",
    "traces": "api-traces.md",
    "runs": "api-runs.md",
    "estimate": "api-runs.md",
    "events": "api-events.md",
    "simulator": "api-simulator.md",
    "files": "api-runs.md",
    "downloads": "api-runs.md",
    "scenarios": "api-requests.md",
    "openai": "api-requests.md",
}


def operations() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Verb, path and operation of every route."""
    for path, verbs in document()["paths"].items():
        for verb, operation in verbs.items():
            yield verb.upper(), path, operation


def route_table(tags: Sequence[str]) -> str:
    """Every route of these tags (all without), each with a line and a link."""
    rows = [
        [verb, f"[`{path}`]({page_of(verb, path, operation)}#{anchor(verb, path)})", _first(operation)]
        for verb, path, operation in operations()
        if not tags or operation["tags"][0] in tags
    ]
    return table(["method", "path", "what it does"], rows)


def route(arguments: Sequence[str]) -> str:
    """One route in full: `POST /api/runs`."""
    verb, path = arguments
    operation = document()["paths"][path][verb.lower()]
    name = anchor(verb, path)
    lines = [
        f'<a id="{name}"></a>**`{verb} {path}`** · {_auth(path)}',
        "",
        str(operation["description"]).strip(),
        "",
    ]
    if parameters := operation.get("parameters", []):
        lines += [table(["parameter", "in", "what it is"], [_parameter(one) for one in parameters]), ""]
    lines += _body(operation)
    lines += ["Returns " + "; ".join(_answers(operation)) + ".", ""]
    refused = [
        [f"[`{status}`](errors.md#{status})", " ".join(str(answer["description"]).split())]
        for status, answer in sorted(operation["responses"].items())
        if not status.startswith("2")
    ]
    if refused:
        lines.append(table(["status", "when"], refused))
    return "\n".join(lines)


def anchor(verb: str, path: str) -> str:
    """The link target of a route, such as `post-api-runs-run_id-cancel`."""
    return re.sub(r"[^a-z0-9_]+", "-", f"{verb} {path}".lower()).strip("-")


def page_of(verb: str, path: str, operation: Mapping[str, Any]) -> str:
    """The page that describes a route."""
    # Storing a file is the simulator's call, although it shares a module with reading one.
    return "api-simulator.md" if verb == "PUT" and "/files/" in path else PAGES[operation["tags"][0]]


def _auth(path: str) -> str:
    if path in OPEN:
        return "no token"
    return "bearer token or `?token=`" if path.endswith("/events") else "bearer token"


def _first(operation: Mapping[str, Any]) -> str:
    return re.split(r"(?<=\.)\s", str(operation["description"]).strip(), maxsplit=1)[0]


def _parameter(parameter: Mapping[str, Any]) -> list[str]:
    said = parameter.get("description") or PARAMETERS.get(parameter["name"], "")
    optional = "" if parameter["required"] else " (optional)"
    return [f"`{parameter['name']}`", parameter["in"] + optional, said]


def _body(operation: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        schema = body.get("schema", {})
        if kind != "application/json":
            lines += [f"Body: raw bytes, `{kind}`.", ""]
        elif "$ref" in schema:
            name = str(schema["$ref"]).rsplit("/", 1)[-1]
            lines += [f"Body: JSON, {type_words(schema)}.", ""]
            if schemas()[name].get("properties"):
                lines += [table(["field", "type", "meaning"], field_rows(name)), ""]
        else:
            fields = ", ".join(f"`{field}`" for field in schema.get("properties", {}))
            needed = ", ".join(f"`{field}`" for field in schema.get("required", []))
            lines += [f"Body: JSON with {fields}. Required: {needed}.", ""]
    return lines


def _answers(operation: Mapping[str, Any]) -> Iterator[str]:
    for status, answer in operation["responses"].items():
        if not status.startswith("2"):
            continue
        kinds = [
            _returned(kind, body.get("schema", {})) for kind, body in (answer.get("content") or {}).items()
        ]
        yield f"`{status}`" + (f" with {' or '.join(kinds)}" if kinds else " without a body")


def _returned(kind: str, schema: Mapping[str, Any]) -> str:
    if kind == "application/json":
        return type_words(schema)
    if kind == "*/*":
        return "the file's bytes"
    return f"`{kind}`" + (f" of {type_words(schema)}" if schema else "")
