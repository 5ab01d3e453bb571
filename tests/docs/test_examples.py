"""Captured answers are what the app's models say: every field known, every value of its type."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest

from scripts.docs_reference import examples, schema_words

EVENTS = {"snapshot": "SnapshotEvent", "sim": "SimEvent", "log": "LogEvent", "kernel": "KernelEvent"}
NAMES = examples.names()


def _schema_of(example: examples.Example) -> Mapping[str, Any] | None:
    if example.content_type == "text/event-stream":
        return {"$ref": schema_words.REFERENCE.format(model=EVENTS[example.body["type"]])}
    path = schema_words.document()["paths"].get(example.route)
    if path is None:
        return None
    content = path[example.method.lower()]["responses"][str(example.status)].get("content", {})
    schema: Mapping[str, Any] | None = content.get("application/json", {}).get("schema")
    return schema


def test_there_are_examples() -> None:
    assert len(NAMES) >= 50


@pytest.mark.parametrize("name", NAMES)
def test_an_example_matches_its_model(name: str) -> None:
    example = examples.load(name)
    schema = _schema_of(example)
    if example.route == "/api/nothing-here":
        assert example.body == {"detail": "Not Found"}
        return
    if not isinstance(example.body, dict | list):
        assert example.status == 204 or example.content_type.startswith("text/")
        return
    assert schema is not None, f"{example.route} documents no {example.status}"
    whole = {**schema, "components": schema_words.document()["components"]}
    jsonschema.Draft202012Validator(whole).validate(example.body)
    assert list(_unknown(example.body, schema)) == []


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_small_and_holds_no_place_of_the_machine(name: str) -> None:
    text = (examples.DIRECTORY / f"{name}.json").read_text()
    assert len(text) < 16_000
    assert re.search(r"/(tmp|home|root|work)/", text) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_request_matches_its_model(name: str) -> None:
    example = examples.load(name)
    if example.request is None or example.status in (400, 422):
        return
    operation = schema_words.document()["paths"][example.route][example.method.lower()]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    whole = {**schema, "components": schema_words.document()["components"]}
    jsonschema.Draft202012Validator(whole).validate(example.request)


def test_a_field_that_left_the_model_is_found() -> None:
    schema = {"$ref": schema_words.REFERENCE.format(model="HeartbeatAck")}
    assert list(_unknown({"state": "running", "cancel": False, "gone": 1}, schema)) == ["gone"]


def _unknown(value: Any, schema: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Fields of `value` that no alternative of its schema names."""
    if "$ref" in schema:
        yield from _unknown(value, schema_words.schemas()[str(schema["$ref"]).rsplit("/", 1)[-1]], at)
        return
    for union in ("anyOf", "oneOf"):
        if union in schema:
            found = [list(_unknown(value, option, at)) for option in schema[union]]
            yield from min(found, key=len)
            return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, schema.get("items", {}), f"{at}[{index}]")
    elif isinstance(value, dict) and "properties" in schema:
        for key, item in value.items():
            if key not in schema["properties"]:
                yield f"{at}.{key}".lstrip(".")
            else:
                yield from _unknown(item, schema["properties"][key], f"{at}.{key}")
