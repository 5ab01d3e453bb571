"""What the OpenAPI document tells of a scenario's answer, which the route hands on without looking at it."""

import json
from pathlib import Path
from typing import Any

import pytest
from cascade_api.app import build_app
from cascade_api.routes.scenarios import router
from cascade_api.settings import ApiSettings
from cascade_api.testing.openapi import Document, Undocumented
from cascade_api.testing.servers import TOKEN
from fastapi.routing import APIRoute

GOLDEN = sorted((Path(__file__).parents[3] / "samples" / "golden").glob("*.response.json"))
NOT_GOLDEN = {
    "run_id": "run-000000000001",
    "sim_id": "sim-000000000001",
    "cached": True,
    "steps_sampling": None,
    "assumptions": ["Input and output embeddings are one matrix"],
}
"""What an answer has beside the fields of the golden files."""


@pytest.fixture(scope="module")
def document() -> Document:
    return Document(build_app(ApiSettings(token=TOKEN)).openapi())


@pytest.fixture(scope="module")
def schema(document: Document) -> dict[str, Any]:
    """The schema of the answer."""
    content = document.operations["POST", "/api/scenarios"]["responses"]["200"]["content"]
    found: dict[str, Any] = content["application/json"]["schema"]
    assert found == {"$ref": "#/components/schemas/ScenarioResponse"}
    return found


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name.split(".")[0])
def test_both_forms_of_an_answer_fit(document: Document, schema: dict[str, Any], path: Path) -> None:
    whole: dict[str, Any] = json.loads(path.read_bytes()) | NOT_GOLDEN
    document.validate(whole, schema, "every step")
    steps = whole["steps"][::2]
    thinned = {
        "steps": steps,
        "steps_returned": len(steps),
        "steps_downsampled": True,
        "steps_sampling": "uniform",
    }
    document.validate(whole | thinned, schema, "thinned steps")


@pytest.mark.parametrize(
    "spoiled", [{"provenance": "guessed"}, {"kind": "idle"}, {"start_ms": None}, {"more": 1}]
)
def test_another_kind_of_step_does_not_fit(
    document: Document, schema: dict[str, Any], spoiled: dict[str, Any]
) -> None:
    whole: dict[str, Any] = json.loads(GOLDEN[0].read_bytes()) | NOT_GOLDEN
    with pytest.raises(Undocumented):
        document.validate(whole | {"steps": [whole["steps"][0] | spoiled]}, schema, "a spoiled step")


@pytest.mark.parametrize("name", sorted(NOT_GOLDEN.keys() | json.loads(GOLDEN[0].read_bytes()).keys()))
def test_every_field_is_always_there(document: Document, schema: dict[str, Any], name: str) -> None:
    whole: dict[str, Any] = json.loads(GOLDEN[0].read_bytes()) | NOT_GOLDEN
    del whole[name]
    with pytest.raises(Undocumented):
        document.validate(whole, schema, f"no {name}")


def test_an_answer_of_many_mb_is_not_validated_on_its_way_out() -> None:
    (route,) = router.routes
    assert isinstance(route, APIRoute)
    assert route.response_field is None
    assert 200 in route.responses
