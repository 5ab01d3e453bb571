"""What the gateway counts, and who may see it."""

import pytest
from cascade_api.routes import metrics
from cascade_api.testing.client import Client, eventually
from cascade_core import subjects
from prometheus_client.parser import text_string_to_metric_families


def sample(client: Client, name: str, **labels: str) -> float:
    """The value of one sample; 0 where it is not shown."""
    reply = client.get("/api/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain")
    for family in text_string_to_metric_families(reply.text):
        for found in family.samples:
            if found.name == name and labels.items() <= found.labels.items():
                return float(found.value)
    return 0.0


def test_metrics_need_the_token(stranger: Client) -> None:
    assert stranger.get("/api/metrics").status_code == 401


def test_requests_are_counted_by_route_template_and_status(client: Client) -> None:
    _, sim_id = client.new_sim()
    name = "cascade_http_request_seconds_count"
    logs, missing, other = (
        {"route": "POST /api/sims/{sim_id}/logs", "status": "2xx"},
        {"route": "GET /api/runs/{run_id}", "status": "4xx"},
        {"route": "other", "status": "4xx"},
    )
    before = [sample(client, name, **labels) for labels in (logs, missing, other)]
    for seq in range(3):
        client.send_log(sim_id, seq, ["a line"])
    client.get("/api/runs/run-that-is-not-there")
    client.get("/api/what/a/stranger/asks-for")
    after = [sample(client, name, **labels) for labels in (logs, missing, other)]
    assert [now - then for now, then in zip(after, before, strict=True)] == [3, 1, 1]
    assert "stranger" not in client.get("/api/metrics").text


def test_sims_are_counted_by_state(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "COUNT_EVERY_S", 0.0)
    before = sample(client, "cascade_sims", state="running")
    _, sim_id = client.new_sim()
    client.beat(sim_id)
    assert sample(client, "cascade_sims", state="running") - before == 1
    client.beat(sim_id, "succeeded", exit_code=0)
    assert sample(client, "cascade_sims", state="running") - before == 0


def test_open_streams_and_the_projection_are_shown(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    with client.stream("GET", f"/api/runs/{run_id}/events") as reply:
        pieces = reply.iter_raw()
        next(pieces)
        assert sample(client, "cascade_sse_subscribers") == 1
        client.send_log(sim_id, 0, ["a line"])
        eventually(lambda: sample(client, "cascade_facts_read_total", reader="live"), what="the feed")
    assert sample(client, "cascade_reader_position", reader="views") > 0
    assert sample(client, "cascade_projection_delay_seconds_count") > 0
    eventually(lambda: sample(client, "cascade_reader_lag_facts", reader="views") == 0, what="no lag")
    assert sample(client, "cascade_facts_appended_total", type="log.appended") > 0
    # An event stream lasts as long as somebody looks, so it has no time.
    route = "GET /api/runs/{run_id}/events"
    assert sample(client, "cascade_http_request_seconds_count", route=route, status="2xx") == 0


def test_a_callers_trace_context_travels_with_the_fact(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    headers = {"traceparent": traceparent}
    client.post(f"/api/sims/{sim_id}/logs", json={"seq": 0, "lines": ["x"]}, headers=headers)
    client.post(f"/api/sims/{sim_id}/heartbeat", json={"state": "running"}, headers=headers)
    client.post(f"/api/runs/{run_id}/cancel", headers=headers)
    client.post(f"/api/sims/{sim_id}/logs", json={"seq": 1, "lines": ["y"]})
    client.post(
        f"/api/sims/{sim_id}/logs", json={"seq": 2, "lines": ["z"]}, headers={"traceparent": "junk" * 99}
    )
    stored = client.api.call(client.api.gateway.log.read(subjects.run_filters(run_id)))
    found = {type(record.fact).__name__: record.traceparent for record in stored}
    assert found["SimReported"] == found["RunCancelRequested"] == traceparent
    chunks = [record.traceparent for record in stored if type(record.fact).__name__ == "LogAppended"]
    assert chunks == [traceparent, None, None]
