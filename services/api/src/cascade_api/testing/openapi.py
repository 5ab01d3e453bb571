"""Holds every response that a test sees against the gateway's own OpenAPI document."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import httpx

Schema = Mapping[str, Any]
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


class Undocumented(AssertionError):
    """A response that the document does not describe."""


class Document:
    """An OpenAPI 3.1 document and the part of JSON Schema that it uses."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self.operations: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._patterns: list[tuple[re.Pattern[str], str]] = []
        for template, item in document["paths"].items():
            for method, operation in item.items():
                self.operations[(method.upper(), template)] = operation
            # A trace id may hold slashes; no other parameter does.
            pattern = re.sub(r"\\\{(\w+)\\\}", r"[^/]+", re.escape(template))
            pattern = pattern.replace("/api/traces/[^/]+", "/api/traces/.+")
            self._patterns.append((re.compile(pattern), template))

    def check(self, response: httpx.Response) -> None:
        """Raises Undocumented where status, content type or body are not as the document says."""
        path = response.request.url.raw_path.decode().split("?", 1)[0]
        template = next((template for pattern, template in self._patterns if pattern.fullmatch(path)), None)
        if template is None:
            return
        operation = self.operations.get((response.request.method, template))
        if operation is None:
            return
        place = f"{response.request.method} {template} {response.status_code}"
        documented = operation["responses"].get(str(response.status_code))
        if documented is None:
            raise Undocumented(f"{place} is not documented; it holds {response.text[:300]}")
        content = documented.get("content")
        media_type = response.headers.get("content-type", "").split(";")[0]
        if not content:
            if response.content:
                raise Undocumented(f"{place} is documented without a body but has one")
            return
        schema = content.get(
            media_type, content.get("*/*", {}).get("schema", {}) if "*/*" in content else None
        )
        if schema is None:
            raise Undocumented(f"{place} has content type {media_type}, documented are {sorted(content)}")
        if media_type == "application/json" and "application/json" in content:
            body = json.loads(response.content, parse_constant=_refuse_constant)
            self.validate(body, content[media_type]["schema"], place)

    def validate(self, value: Any, schema: Schema, place: str) -> None:
        """Raises Undocumented where `value` does not fit `schema`."""
        if "$ref" in schema:
            target: Any = self._document
            for part in cast(str, schema["$ref"]).removeprefix("#/").split("/"):
                target = target[part]
            self.validate(value, target, place)
            return
        if choices := schema.get("anyOf", schema.get("oneOf")):
            self._validate_any(value, choices, place)
            return
        if "const" in schema and value != schema["const"]:
            raise Undocumented(f"{place}: {value!r} is not {schema['const']!r}")
        if "enum" in schema and value not in schema["enum"]:
            raise Undocumented(f"{place}: {value!r} is none of {schema['enum']}")
        kind = schema.get("type")
        if kind is not None:
            if isinstance(value, bool) and kind != "boolean":
                raise Undocumented(f"{place}: {value!r} is no {kind}")
            if not isinstance(value, _JSON_TYPES[kind]):
                raise Undocumented(f"{place}: {str(value)[:100]!r} is no {kind}")
        if isinstance(value, dict):
            self._validate_object(value, schema, place)
        elif isinstance(value, list):
            self._validate_items(value, schema, place)
        elif schema.get("format") == "date-time" and datetime.fromisoformat(value).utcoffset() is None:
            raise Undocumented(f"{place}: {value!r} does not say its time zone")

    def _validate_any(self, value: Any, choices: Sequence[Schema], place: str) -> None:
        problems = []
        for choice in choices:
            try:
                self.validate(value, choice, place)
            except Undocumented as problem:
                problems.append(str(problem))
            else:
                return
        raise Undocumented(f"{place}: none of the alternatives fits: {'; '.join(problems)}")

    def _validate_object(self, value: dict[str, Any], schema: Schema, place: str) -> None:
        missing = set(schema.get("required", ())) - value.keys()
        if missing:
            raise Undocumented(f"{place}: {', '.join(sorted(missing))} missing")
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", "properties" not in schema)
        for key, item in value.items():
            if key in properties:
                self.validate(item, properties[key], f"{place}.{key}")
            elif isinstance(others, dict):
                self.validate(item, others, f"{place}.{key}")
            elif not others:
                raise Undocumented(f"{place}: {key} is not documented")

    def _validate_items(self, value: list[Any], schema: Schema, place: str) -> None:
        first = schema.get("prefixItems", [])
        for index, item in enumerate(value):
            if index < len(first):
                self.validate(item, first[index], f"{place}[{index}]")
            elif "items" in schema:
                self.validate(item, schema["items"], f"{place}[{index}]")


def _refuse_constant(name: str) -> None:
    raise Undocumented(f"the body holds {name}, which is no JSON")
