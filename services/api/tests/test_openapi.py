"""The OpenAPI document tells what the routes do. Every response of the other tests is held against it, too."""

import json

import pytest
from cascade_api.app import build_app
from cascade_api.settings import ApiSettings
from cascade_api.testing.client import Client
from cascade_api.testing.openapi import Document, Undocumented
from cascade_api.testing.servers import TOKEN

# spec: api, routes
ROUTES = {
    ("GET", "/api/health"),
    ("GET", "/api/traces"),
    ("GET", "/api/traces/{trace_id}"),
    ("GET", "/api/gpu-configs"),
    ("POST", "/api/runs"),
    ("GET", "/api/runs"),
    ("GET", "/api/runs/{run_id}"),
    ("POST", "/api/runs/{run_id}/cancel"),
    ("GET", "/api/runs/{run_id}/comparison"),
    ("GET", "/api/runs/{run_id}/kernels"),
    ("GET", "/api/runs/{run_id}/step-timelines"),
    ("GET", "/api/runs/{run_id}/results"),
    ("GET", "/api/sims/{sim_id}/results"),
    ("GET", "/api/sims/{sim_id}/log"),
    ("GET", "/api/runs/{run_id}/files"),
    ("GET", "/api/runs/{run_id}/perfetto"),
    ("GET", "/api/sims/{sim_id}/files"),
    ("GET", "/api/sims/{sim_id}/files/{name}"),
    ("GET", "/api/runs/{run_id}/events"),
    ("POST", "/api/sims/{sim_id}/heartbeat"),
    ("POST", "/api/sims/{sim_id}/logs"),
    ("POST", "/api/sims/{sim_id}/step-timeline"),
    ("PUT", "/api/sims/{sim_id}/files/{name}"),
}
BODIES = {
    ("POST", "/api/runs"): "RunCreate",
    ("POST", "/api/sims/{sim_id}/heartbeat"): "Heartbeat",
    ("POST", "/api/sims/{sim_id}/logs"): "LogChunk",
    ("POST", "/api/sims/{sim_id}/step-timeline"): "StepTimelineUpload",
}


@pytest.fixture(scope="module")
def document() -> Document:
    return Document(build_app(ApiSettings(token=TOKEN)).openapi())


def test_every_route_of_the_api_is_in_it(document: Document) -> None:
    assert document.operations.keys() >= ROUTES


def test_every_route_tells_of_its_errors_and_of_the_token(document: Document) -> None:
    for route in ROUTES - {("GET", "/api/health")}:
        operation = document.operations[route]
        assert {"401", "503"} <= operation["responses"].keys(), route
        assert operation["security"] == [{"token": []}], route
        if "{" in route[1]:
            assert "404" in operation["responses"], route
    assert "security" not in document.operations["GET", "/api/health"]


def test_bodies_are_named_models(document: Document) -> None:
    for route, model in BODIES.items():
        content = document.operations[route]["requestBody"]["content"]
        assert content["application/json"]["schema"] == {"$ref": f"#/components/schemas/{model}"}


def test_every_reference_leads_somewhere(document: Document) -> None:
    whole = build_app(ApiSettings(token=TOKEN)).openapi()
    text = json.dumps(whole)
    names = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert names <= whole["components"]["schemas"].keys()
    assert "HTTPValidationError" not in names


def test_an_event_fits_its_schema(document: Document, client: Client) -> None:
    run_id, sim_id = client.new_sim()
    schema = {"$ref": "#/components/schemas/RunEvent"}
    with client.stream("GET", f"/api/runs/{run_id}/events") as reply:
        frames = (line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: "))
        document.validate(json.loads(next(frames)), schema, "snapshot")
        client.beat(sim_id)
        document.validate(json.loads(next(frames)), schema, "sim")
        client.send_log(sim_id, 0, ["a"])
        document.validate(json.loads(next(frames)), schema, "log")
    with pytest.raises(Undocumented):
        document.validate({"type": "other"}, schema, "an event of no kind")


def test_the_document_is_served_without_a_token(stranger: Client) -> None:
    assert stranger.get("/api/openapi.json").json()["info"]["title"] == "Cascade"
