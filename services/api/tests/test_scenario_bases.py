"""Where a scenario's base simulation comes from, and what happens while it is waited for."""

import asyncio
import gzip
import json
import secrets
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from cascade_api.read_models.gate import ProjectionGate, ProjectionLate
from cascade_api.scenarios import asking, base_run, retirement
from cascade_api.scenarios.retirement import Retirement
from cascade_api.testing.client import Client, eventually
from cascade_api.testing.running import LoopThread, RunningApi, Work
from cascade_api.testing.servers import Servers
from cascade_cli.embedded.testing import run_now
from cascade_core import subjects
from cascade_core.facts import AnyFact
from cascade_core.s3 import bucket as s3
from cascade_core.settings import BucketSettings
from cascade_core.sims.facts import SimLaunchStarted, SimReported, SimStepTimelineStored
from cascade_core.sims.transitions import SimState
from cascade_core.traces.facts import (
    TraceDiscovered,
    TraceObserved,
    TraceReady,
    TraceUploadCompleted,
)
from cascade_requestsim.main import serve as serve_requestsim
from cascade_requestsim.settings import RequestsimSettings
from pydantic import JsonValue

SAMPLE = Path(__file__).parents[3] / "samples" / "opt125m-h100-e2e"
WAIT_S = 60.0
SIZE = {"num_requests": 2, "prompt_tokens": 6, "output_tokens": 4}


@pytest.fixture(scope="module")
def timeline() -> dict[str, JsonValue]:
    """A simulated timeline, reconstructed from published statistics."""
    document: dict[str, JsonValue] = json.loads(
        gzip.decompress((SAMPLE / "simulated_timeline.json.gz").read_bytes())
    )
    return document


@pytest.fixture(scope="module")
def api(servers: Servers) -> Iterator[RunningApi]:
    """A gateway whose scenarios wait for longer than any test does."""
    with RunningApi(servers.settings(openai_wait_s=WAIT_S)) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def requestsim(api: RunningApi) -> Iterator[None]:
    """The real request simulator on the module's log."""
    settings = RequestsimSettings(
        nats_url=api.settings.nats_url, **bucket_of(api).model_dump(exclude={"s3_internal_bucket"})
    )

    def work(settings: RequestsimSettings) -> Work:
        async def run(stop: asyncio.Event) -> None:
            await serve_requestsim(settings, stop)

        return run

    with LoopThread(work(settings), name="requestsim"):
        yield


def bucket_of(api: RunningApi) -> BucketSettings:
    given = api.settings
    return BucketSettings(
        s3_endpoint=given.s3_endpoint, s3_access_key=given.s3_access_key, s3_secret_key=given.s3_secret_key
    )


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def new_trace(client: Client, *, timed: bool = True, ready: bool = True, trace_id: str | None = None) -> str:
    """A trace of an H100 with its side files in the bucket."""
    trace_id = trace_id or f'trace "of* {secrets.token_hex(4)}> é'
    now = datetime.now(UTC)
    facts: list[AnyFact] = [
        TraceDiscovered(trace_id=trace_id, occurred_at=now),
        TraceObserved(
            trace_id=trace_id,
            occurred_at=now,
            kernel_count=5,
            size_bytes=1,
            metadata={
                "model": "facebook/opt-125m",
                "trace_gpu_arch": "sm_90",
                "suggested_sim_config": "SM90_H100",
            },
            has_step_timeline=timed,
        ),
    ]
    if ready:
        facts += [
            TraceUploadCompleted(trace_id=trace_id, occurred_at=now),
            TraceReady(trace_id=trace_id, occurred_at=now, kernel_count=5, size_bytes=1),
        ]
    client.store(*facts)

    async def upload() -> None:
        async with s3.opened(bucket_of(client.api)) as store:
            for name in ("run.json", "workload.json"):
                await store.put(f"accelsim-traces/{trace_id}/{name}", (SAMPLE / name).read_bytes())

    run_now(upload())
    return trace_id


def ask(client: Client, trace_id: str, **fields: Any) -> httpx.Response:
    return client.post("/api/scenarios", json={"trace_id": trace_id, **SIZE, **fields})


def asked(
    background: ThreadPoolExecutor, client: Client, trace_id: str, **fields: Any
) -> "Future[httpx.Response]":
    return background.submit(ask, client, trace_id, **fields)


def runs_of(client: Client, trace_id: str) -> list[dict[str, Any]]:
    return [run for run in client.body("/api/runs") if run["trace_id"] == trace_id]


def the_sim(client: Client, trace_id: str) -> tuple[str, str]:
    """(run id, sim id) of the trace's only run, waited for."""
    (run,) = eventually(lambda: runs_of(client, trace_id) or None, what="the base run")
    return run["id"], client.body(f"/api/runs/{run['id']}")["sims"][0]["id"]


def start(client: Client, run_id: str, sim_id: str) -> None:
    now = datetime.now(UTC)
    client.store(
        SimLaunchStarted(run_id=run_id, sim_id=sim_id, occurred_at=now, attempt="a"),
        SimReported(run_id=run_id, sim_id=sim_id, occurred_at=now, state=SimState.RUNNING, attempt="a"),
    )


def finish(
    client: Client,
    run_id: str,
    sim_id: str,
    timeline: dict[str, JsonValue] | None,
    *,
    state: SimState = SimState.SUCCEEDED,
    error: str | None = None,
) -> None:
    now = datetime.now(UTC)
    if timeline is not None:
        client.store(SimStepTimelineStored(run_id=run_id, sim_id=sim_id, occurred_at=now, simulated=timeline))
    assert state in (SimState.SUCCEEDED, SimState.FAILED)
    ended = SimState.SUCCEEDED if state is SimState.SUCCEEDED else SimState.FAILED
    client.store(
        SimReported(run_id=run_id, sim_id=sim_id, occurred_at=now, state=ended, error=error, attempt="a")
    )


def finished_base(client: Client, trace_id: str, timeline: dict[str, JsonValue]) -> tuple[str, str]:
    run = client.new_run(config="SM90_H100", trace_id=trace_id)
    ids = run["id"], run["sims"][0]["id"]
    start(client, *ids)
    finish(client, *ids, timeline)
    return ids


def test_a_scenario_without_a_base_launches_one_and_waits_for_it(
    client: Client, background: ThreadPoolExecutor, timeline: dict[str, JsonValue]
) -> None:
    trace_id = new_trace(client)
    answer = asked(background, client, trace_id)
    run_id, sim_id = the_sim(client, trace_id)
    start(client, run_id, sim_id)
    finish(client, run_id, sim_id, timeline)
    reply = answer.result()
    assert reply.status_code == 200, reply.text
    assert (reply.json()["run_id"], reply.json()["sim_id"], reply.json()["cached"]) == (run_id, sim_id, False)
    (run,) = runs_of(client, trace_id)
    assert (run["replay"], run["entries"]) == (False, [{"gpu_config": "SM90_H100", "count": 1}])
    again = ask(client, trace_id).json()
    assert (again["sim_id"], again["cached"]) == (sim_id, True)


def test_scenarios_at_once_share_one_launch(
    client: Client, background: ThreadPoolExecutor, timeline: dict[str, JsonValue]
) -> None:
    trace_id = new_trace(client)
    answers = [asked(background, client, trace_id) for _ in range(4)]
    run_id, sim_id = the_sim(client, trace_id)
    start(client, run_id, sim_id)
    finish(client, run_id, sim_id, timeline)
    assert {answer.result().json()["sim_id"] for answer in answers} == {sim_id}
    assert len(runs_of(client, trace_id)) == 1


def test_a_scenario_attaches_to_the_sim_that_is_furthest_along(
    client: Client, background: ThreadPoolExecutor, timeline: dict[str, JsonValue]
) -> None:
    trace_id = new_trace(client)
    run = client.new_run(config="SM90_H100", count=3, trace_id=trace_id)
    sim_id = run["sims"][1]["id"]
    start(client, run["id"], sim_id)
    answer = asked(background, client, trace_id)
    finish(client, run["id"], sim_id, timeline)
    assert answer.result().json()["sim_id"] == sim_id
    assert len(runs_of(client, trace_id)) == 1


def test_the_newest_finished_base_is_reused_and_fresh_asks_for_another(
    client: Client, background: ThreadPoolExecutor, timeline: dict[str, JsonValue]
) -> None:
    trace_id = new_trace(client)
    finished_base(client, trace_id, timeline)
    _, newest = finished_base(client, trace_id, timeline)
    assert ask(client, trace_id).json()["sim_id"] == newest
    answer = asked(background, client, trace_id, fresh=True)
    eventually(lambda: len(runs_of(client, trace_id)) == 3, what="the fresh run")
    fresh = runs_of(client, trace_id)[0]["id"]
    sim_id = client.body(f"/api/runs/{fresh}")["sims"][0]["id"]
    start(client, fresh, sim_id)
    finish(client, fresh, sim_id, timeline)
    assert (answer.result().json()["sim_id"], answer.result().json()["cached"]) == (sim_id, False)


@pytest.fixture
def impatient(servers: Servers) -> Iterator[Client]:
    """A client of another gateway on the module's servers, which waits for a moment only."""
    with RunningApi(servers.settings(openai_wait_s=1.0)) as api, Client(api) as client:
        yield client


def test_a_base_that_takes_too_long_is_named_and_goes_on(impatient: Client) -> None:
    client = impatient
    trace_id = new_trace(client)
    reply = ask(client, trace_id)
    assert reply.status_code == 504
    run_id, sim_id = the_sim(client, trace_id)
    assert (reply.json()["run_id"], reply.json()["sim_id"]) == (run_id, sim_id)
    assert run_id in reply.json()["detail"]
    assert sim_id in reply.json()["detail"]
    assert client.sim(run_id, sim_id)["state"] == "pending"
    completion = client.post("/v1/completions", json={"model": trace_id, "prompt": "x"})
    assert completion.status_code == 504
    assert completion.json()["error"]["code"] == "base_simulation_late"
    assert completion.json()["error"]["sim_id"] == sim_id
    assert len(runs_of(client, trace_id)) == 1


def test_a_base_that_fails_is_a_bad_gateway_with_its_error(
    client: Client, background: ThreadPoolExecutor
) -> None:
    trace_id = new_trace(client)
    answer = asked(background, client, trace_id)
    run_id, sim_id = the_sim(client, trace_id)
    start(client, run_id, sim_id)
    finish(client, run_id, sim_id, None, state=SimState.FAILED, error="deadlock detected")
    reply = answer.result()
    assert reply.status_code == 502
    assert "deadlock detected" in reply.json()["detail"]
    assert reply.json()["sim_id"] == sim_id


def test_a_cancelled_base_is_a_bad_gateway(client: Client, background: ThreadPoolExecutor) -> None:
    trace_id = new_trace(client)
    answer = asked(background, client, trace_id)
    run_id, _ = the_sim(client, trace_id)
    client.post(f"/api/runs/{run_id}/cancel")
    assert answer.result().status_code == 502
    assert "was cancelled" in answer.result().json()["detail"]


def test_success_without_step_timing_is_a_bad_gateway(client: Client, background: ThreadPoolExecutor) -> None:
    trace_id = new_trace(client)
    answer = asked(background, client, trace_id)
    run_id, sim_id = the_sim(client, trace_id)
    start(client, run_id, sim_id)
    finish(client, run_id, sim_id, None)
    assert answer.result().status_code == 502
    assert "without a step timeline" in answer.result().json()["detail"]
    assert f"work/sims/{sim_id}.out" in answer.result().json()["detail"]


def test_a_stream_tells_of_a_failed_base_in_its_last_event(
    client: Client, background: ThreadPoolExecutor
) -> None:
    trace_id = new_trace(client)
    body = {"model": trace_id, "prompt": "x", "stream": True}
    answer = background.submit(client.post, "/v1/completions", json=body)
    run_id, sim_id = the_sim(client, trace_id)
    start(client, run_id, sim_id)
    finish(client, run_id, sim_id, None, state=SimState.FAILED, error="boom")
    reply = answer.result()
    assert reply.status_code == 200
    *comments, last, end = reply.text.split("\n\n")
    assert end == ""
    assert all(comment.startswith(f": waiting for base simulation {sim_id}") for comment in comments)
    error = json.loads(last.removeprefix("data: "))["error"]
    assert (error["code"], error["type"]) == ("base_simulation_failed", "server_error")
    assert "boom" in error["message"]


def test_a_trace_that_is_not_ready_or_cannot_be_timed_is_refused_at_once(client: Client) -> None:
    uploading = ask(client, new_trace(client, ready=False))
    assert uploading.status_code == 409
    assert "uploading, not ready" in uploading.json()["detail"]
    trace_id = new_trace(client, timed=False)
    untimed = ask(client, trace_id)
    assert untimed.status_code == 422
    assert "corrected_timeline.json" in untimed.json()["detail"]
    assert runs_of(client, trace_id) == []


def test_a_timeline_that_makes_no_profile_is_refused_with_the_cause(
    client: Client, timeline: dict[str, JsonValue]
) -> None:
    trace_id = new_trace(client)
    finished_base(client, trace_id, {"steps": [], "summary": {}})
    reply = ask(client, trace_id)
    assert reply.status_code == 422
    assert "no steady repeat" in reply.json()["detail"]


def test_a_config_that_is_not_installed_is_refused(client: Client) -> None:
    reply = ask(client, new_trace(client), gpu_config="SM90_H200")
    assert reply.status_code == 422
    assert "not installed" in reply.json()["detail"]


def test_an_answer_that_does_not_come_names_the_base(
    client: Client, timeline: dict[str, JsonValue], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace_id = new_trace(client)
    run_id, sim_id = finished_base(client, trace_id, timeline)
    monkeypatch.setattr(asking, "ANSWER_WAIT_S", 0.0)
    reply = ask(client, trace_id)
    assert reply.status_code == 504
    assert (reply.json()["run_id"], reply.json()["sim_id"]) == (run_id, sim_id)
    assert "did not answer" in reply.json()["detail"]


def test_more_than_the_gateway_lets_wait_are_turned_away(
    client: Client, timeline: dict[str, JsonValue], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace_id = new_trace(client)
    finished_base(client, trace_id, timeline)
    monkeypatch.setattr(asking.places, "most", 0)
    reply = ask(client, trace_id)
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "1"


def test_nothing_is_launched_that_no_place_is_left_to_wait_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace_id = new_trace(client)
    monkeypatch.setattr(base_run.places, "most", 0)
    reply = ask(client, trace_id, fresh=True)
    assert reply.status_code == 503
    assert "wait for base simulations already" in reply.json()["detail"]
    assert runs_of(client, trace_id) == []


def test_a_place_is_free_again_once_its_client_has_left(client: Client) -> None:
    trace_id = new_trace(client)
    request = client.build_request("POST", "/api/scenarios", json={"trace_id": trace_id, **SIZE})
    head = [b"POST /api/scenarios HTTP/1.1", *(b"%b: %b" % header for header in request.headers.raw)]
    eventually(lambda: base_run.places.taken == 0, what="the end of earlier waits")
    with socket.create_connection((request.url.host, request.url.port or 80)) as connection:
        connection.sendall(b"\r\n".join([*head, b"", request.content]))
        eventually(lambda: base_run.places.taken == 1, what="the wait")
    eventually(lambda: base_run.places.taken == 0, what="the end of the wait")
    run_id, sim_id = the_sim(client, trace_id)
    assert client.sim(run_id, sim_id)["state"] == "pending"


def test_a_base_that_the_views_do_not_show_yet_is_waited_for(
    client: Client,
    background: ThreadPoolExecutor,
    timeline: dict[str, JsonValue],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace_id = new_trace(client)
    client.body("/api/traces")  # the views hold the trace
    known, passed = client.api.gateway.gate.expected, ProjectionGate.passed

    async def late(gate: ProjectionGate, position: int, *, within_s: float = WAIT_S) -> None:
        if position > known:
            raise ProjectionLate(f"position {position} is not there yet")
        await passed(gate, position, within_s=within_s)

    monkeypatch.setattr(ProjectionGate, "passed", late)
    answer = asked(background, client, trace_id, fresh=True)
    run_id, sim_id = the_sim(client, trace_id)
    start(client, run_id, sim_id)
    finish(client, run_id, sim_id, timeline)
    assert answer.result().status_code == 200, answer.result().text
    assert answer.result().json()["sim_id"] == sim_id


def test_answers_are_due_only_after_their_time() -> None:
    kept = Retirement(keep_s=10)
    assert kept.due({"a"}, 0.0) == []
    assert kept.due({"a", "b"}, 9.9) == []
    assert kept.due({"a", "b"}, 10.0) == ["a"]
    assert kept.due({"b"}, 20.0) == ["b"]
    kept.start_over()
    assert kept.due({"b"}, 21.0) == []


def test_answered_scenarios_leave_the_log_and_open_ones_stay(
    client: Client, timeline: dict[str, JsonValue]
) -> None:
    trace_id = new_trace(client)
    finished_base(client, trace_id, timeline)
    for _ in range(3):
        assert ask(client, trace_id).status_code == 200
    gateway = client.api.gateway
    assert client.api.call(gateway.log.subjects(subjects.ALL_SCENARIOS))

    def retired() -> bool:
        client.api.call(retirement._round(gateway, Retirement(keep_s=0.0)))
        return not client.api.call(gateway.log.subjects(subjects.ALL_SCENARIOS))

    eventually(retired, what="the answer to what another test did not wait for")
    assert ask(client, trace_id).status_code == 200
