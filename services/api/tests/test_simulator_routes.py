"""Heartbeats, log chunks and step timing over HTTP."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cascade_api.routes.runs import _step_timelines
from cascade_api.testing.client import Client, eventually
from cascade_core.sims.facts import SimLogArchived, SimProgressed, SimReported, SimWentSilent
from cascade_core.sims.transitions import SimState

MISSING = "sim-000000000000"


def test_the_first_running_heartbeat_starts_a_sim(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    reply = client.post(f"/api/sims/{sim_id}/heartbeat", json={"state": "running"})
    assert (reply.status_code, reply.json()) == (200, {"state": "running", "cancel": False})
    sim = client.sim(run_id, sim_id)
    assert sim["state"] == "running"
    assert sim["started_at"] == sim["last_heartbeat_at"] is not None
    client.beat(sim_id)
    later = client.sim(run_id, sim_id)
    assert later["started_at"] == sim["started_at"]
    assert later["last_heartbeat_at"] > sim["last_heartbeat_at"]


def test_nobody_speaks_for_a_sim_that_was_not_launched(client: Client) -> None:
    sim_id = client.new_run()["sims"][0]["id"]
    for state in ("running", "succeeded"):
        assert client.beat(sim_id, state) == {"state": "pending", "cancel": False}


def test_a_sim_that_was_not_launched_may_fail(client: Client) -> None:
    run = client.new_run()
    sim_id = run["sims"][0]["id"]
    assert client.beat(sim_id, "failed", exit_code=2, error="no disk") == {"state": "failed", "cancel": False}
    sim = client.sim(run["id"], sim_id)
    assert (sim["error"], sim["exit_code"], sim["started_at"]) == ("no disk", 2, None)


@pytest.mark.parametrize(
    ("state", "exit_code", "error"), [("succeeded", 0, None), ("failed", 134, "simulator exited with 134")]
)
def test_a_final_heartbeat_ends_a_sim_for_good(
    state: str, exit_code: int, error: str | None, client: Client, parser: None
) -> None:
    run_id, sim_id = client.new_sim()
    client.beat(sim_id)
    assert client.beat(sim_id, state, exit_code=exit_code, error=error) == {"state": state, "cancel": False}
    ended = client.sim(run_id, sim_id)
    assert (ended["state"], ended["exit_code"], ended["error"]) == (state, exit_code, error)
    assert ended["finished_at"] is not None
    for late in ("running", "succeeded", "failed"):
        assert client.beat(sim_id, late, exit_code=7, error="late") == {"state": state, "cancel": False}
    assert client.sim(run_id, sim_id) == ended


def test_a_sim_may_end_without_a_running_heartbeat(client: Client, parser: None) -> None:
    run_id, sim_id = client.new_sim()
    assert client.beat(sim_id, "failed", exit_code=2, error="no kernelslist.g")["state"] == "failed"
    sim = client.sim(run_id, sim_id)
    assert (sim["started_at"], sim["exit_code"]) == (None, 2)


@pytest.mark.parametrize("exit_code", [-9, 0, 255, 3221225477, 2**53 - 1])
def test_any_exit_code_that_a_platform_has_is_kept(exit_code: int, client: Client, parser: None) -> None:
    run_id, sim_id = client.new_sim()
    assert client.beat(sim_id, "failed", exit_code=exit_code)["state"] == "failed"
    assert client.sim(run_id, sim_id)["exit_code"] == exit_code


def test_a_heartbeat_brings_a_lost_sim_back(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    client.beat(sim_id)
    client.store(
        SimWentSilent(
            run_id=run_id,
            sim_id=sim_id,
            occurred_at=datetime.now(UTC),
            error="no heartbeat for 60s",
            heartbeat_seen_at=datetime.now(UTC) + timedelta(seconds=1),
        )
    )
    lost = client.sim(run_id, sim_id)
    assert (lost["state"], lost["error"]) == ("lost", "no heartbeat for 60s")
    assert client.beat(sim_id) == {"state": "running", "cancel": False}
    assert client.sim(run_id, sim_id)["error"] is None


def test_a_heartbeat_names_what_makes_the_numbers(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    client.beat(sim_id, engine="replay")
    assert client.sim(run_id, sim_id)["engine"] == "replay"


def test_a_run_names_each_engine_of_its_sims_once(client: Client) -> None:
    run = client.new_live_run(count=5)
    first, second, third, fourth, _ = (sim["id"] for sim in run["sims"])
    assert "engines" not in client.body("/api/runs")[0]
    for sim_id in (first, second):
        client.beat(sim_id, engine="replay")
    client.beat(third, engine="accel-sim")
    # The log names the engine of the fourth, and holds what a sim's document is cut by.
    client.store(
        SimProgressed(
            run_id=run["id"],
            sim_id=fourth,
            occurred_at=datetime.now(UTC),
            through_seq=0,
            kernels_done=0,
            current_kernel='"engine":"x","partial_kernel":',
            engine="cascade-estimate 0.1",
        )
    )
    engines = ["accel-sim", "estimate", "replay"]
    assert client.body("/api/runs")[0]["engines"] == engines
    assert client.body(f"/api/runs/{run['id']}")["engines"] == engines
    assert client.body(f"/api/runs/{run['id']}/results")["run"]["engines"] == engines


def test_a_second_start_is_told_to_stop(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    first, second = {"X-Cascade-Attempt": "launch1.a"}, {"X-Cascade-Attempt": "launch1.b"}
    path = f"/api/sims/{sim_id}"
    assert client.post(f"{path}/heartbeat", json={"state": "running"}, headers=first).json() == {
        "state": "running",
        "cancel": False,
    }
    assert client.post(f"{path}/heartbeat", json={"state": "succeeded"}, headers=second).json() == {
        "state": "running",
        "cancel": True,
    }
    assert client.post(f"{path}/logs", json={"seq": 0, "lines": ["a"]}, headers=first).status_code == 204
    refused = client.post(f"{path}/logs", json={"seq": 0, "lines": ["b"]}, headers=second)
    assert refused.status_code == 409
    assert "another start" in refused.json()["detail"]
    assert client.get(f"{path}/log").text == "a\n"
    assert client.sim(run_id, sim_id)["state"] == "running"


def test_a_second_start_replaces_nothing_of_the_first(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    first, second = {"X-Cascade-Attempt": "launch1.a"}, {"X-Cascade-Attempt": "launch1.b"}
    path = f"/api/sims/{sim_id}"
    client.post(f"{path}/heartbeat", json={"state": "running"}, headers=first)
    timing = {"simulated": {"steps": [1], "summary": {}}}
    other = {"simulated": {"steps": [2], "summary": {}}}
    assert client.put(f"{path}/files/a.txt", content=b"one", headers=first).status_code == 200
    assert client.post(f"{path}/step-timeline", json=timing, headers=first).status_code == 204
    refused = [
        client.put(f"{path}/files/a.txt", content=b"other", headers=second),
        client.put(f"{path}/files/b.txt", content=b"other", headers=second),
        client.post(f"{path}/step-timeline", json=other, headers=second),
    ]
    for reply in refused:
        assert reply.status_code == 409
        assert "another start" in reply.json()["detail"]
    assert [file["name"] for file in client.body(f"{path}/files")] == ["a.txt"]
    assert client.get(f"{path}/files/a.txt").content == b"one"
    (stored,) = client.body(f"/api/runs/{run_id}/step-timelines")
    assert stored["simulated"] == timing["simulated"]


def test_a_start_of_another_launch_is_fenced_from_its_first_word(client: Client) -> None:
    _, sim_id = client.new_sim()
    stale = {"X-Cascade-Attempt": "launch0.a"}
    reply = client.post(f"/api/sims/{sim_id}/heartbeat", json={"state": "running"}, headers=stale)
    assert reply.json() == {"state": "launching", "cancel": True}


@pytest.mark.parametrize(
    ("body", "kind", "loc"),
    [
        ({}, "missing", ["body", "state"]),
        ({"state": "lost"}, "literal_error", ["body", "state"]),
        ({"state": "pending"}, "literal_error", ["body", "state"]),
        ({"state": "RUNNING"}, "literal_error", ["body", "state"]),
        ({"state": None}, "literal_error", ["body", "state"]),
        ({"state": "failed", "exit_code": "one"}, "int_parsing", ["body", "exit_code"]),
        ({"state": "failed", "exit_code": 1.5}, "int_from_float", ["body", "exit_code"]),
        ({"state": "failed", "exit_code": 2**53}, "less_than", ["body", "exit_code"]),
        ({"state": "failed", "error": 5}, "string_type", ["body", "error"]),
        ([], "model_type", ["body"]),
    ],
)
def test_a_heartbeat_that_does_not_fit_is_located(
    body: Any, kind: str, loc: list[str], client: Client
) -> None:
    _, sim_id = client.new_sim()
    reply = client.post(f"/api/sims/{sim_id}/heartbeat", json=body)
    assert reply.status_code == 422
    assert [(problem["type"], problem["loc"]) for problem in reply.json()["detail"]] == [(kind, loc)]


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("heartbeat", {"state": "running"}),
        ("logs", {"seq": 0, "lines": []}),
        ("step-timeline", {"simulated": {"steps": [], "summary": {}}}),
    ],
)
def test_a_missing_sim_is_named(call: str, body: dict[str, Any], client: Client) -> None:
    reply = client.post(f"/api/sims/{MISSING}/{call}", json=body)
    assert (reply.status_code, reply.json()) == (404, {"detail": f"sim {MISSING} not found"})


def test_a_log_is_kept_in_seq_order_and_the_first_chunk_of_a_seq_wins(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    client.beat(sim_id)
    client.send_log(sim_id, 0, ["zero", ""])
    client.send_log(sim_id, 2, ["two"])
    client.send_log(sim_id, 1, ["one"])
    client.send_log(sim_id, 1, ["one"])
    client.send_log(sim_id, 1, ["other"])
    client.send_log(sim_id, 3, [])
    reply = client.get(f"/api/sims/{sim_id}/log")
    assert reply.text == "zero\n\none\ntwo\n"
    assert client.sim(run_id, sim_id)["log_tail"] == ["zero", "", "one", "two"]


def test_log_tail_holds_the_last_twenty_lines(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    client.send_log(sim_id, 0, [f"a{number}" for number in range(15)])
    client.send_log(sim_id, 1, [f"b{number}" for number in range(15)])
    tail = client.sim(run_id, sim_id)["log_tail"]
    assert tail == [f"a{number}" for number in range(10, 15)] + [f"b{number}" for number in range(15)]


@pytest.mark.parametrize(
    ("body", "kind", "loc"),
    [
        ({"lines": []}, "missing", ["body", "seq"]),
        ({"seq": 0}, "missing", ["body", "lines"]),
        ({"seq": -1, "lines": []}, "greater_than_equal", ["body", "seq"]),
        ({"seq": 2**60, "lines": []}, "less_than", ["body", "seq"]),
        ({"seq": 0.5, "lines": []}, "int_from_float", ["body", "seq"]),
        ({"seq": 0, "lines": "text"}, "list_type", ["body", "lines"]),
        ({"seq": 0, "lines": ["a", 1]}, "string_type", ["body", "lines", 1]),
        ({"seq": 0, "lines": [None]}, "string_type", ["body", "lines", 0]),
    ],
)
def test_a_chunk_that_does_not_fit_is_located_and_not_kept(
    body: dict[str, Any], kind: str, loc: list[str | int], client: Client
) -> None:
    _, sim_id = client.new_sim()
    reply = client.post(f"/api/sims/{sim_id}/logs", json=body)
    assert reply.status_code == 422
    assert [(problem["type"], problem["loc"]) for problem in reply.json()["detail"]] == [(kind, loc)]
    assert client.get(f"/api/sims/{sim_id}/log").text == ""


def test_a_chunk_after_the_end_is_kept_a_late_one_is_not_and_a_repeat_is_fine(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    client.send_log(sim_id, 0, ["zero"])
    client.beat(sim_id)
    long_ago = datetime.now(UTC) + timedelta(seconds=1)
    client.store(
        SimReported(run_id=run_id, sim_id=sim_id, occurred_at=long_ago, state=SimState.SUCCEEDED),
        SimProgressed(
            run_id=run_id, sim_id=sim_id, occurred_at=long_ago, through_seq=0, kernels_done=0, final=True
        ),
    )
    client.send_log(sim_id, 1, ["after the end"])
    assert client.get(f"/api/sims/{sim_id}/log").text == "zero\nafter the end\n"
    client.store(
        SimLogArchived(
            run_id=run_id,
            sim_id=sim_id,
            occurred_at=long_ago,
            object_key="nowhere",
            chunk_count=2,
            line_count=2,
            size_bytes=19,
            log_tail=["zero", "after the end"],
        )
    )
    assert client.sim(run_id, sim_id)["log_tail"] == ["zero", "after the end"]
    client.send_log(sim_id, 0, ["zero"])
    reply = client.post(f"/api/sims/{sim_id}/logs", json={"seq": 2, "lines": ["x"]})
    assert reply.status_code == 409
    assert "chunk 2 came too late" in reply.json()["detail"]


def test_step_timing_is_stored_as_sent_and_replaced(client: Client) -> None:
    run = client.new_live_run(count=2)
    sim_id = run["sims"][1]["id"]
    path = f"/api/runs/{run['id']}/step-timelines"
    assert client.body(path) == []
    first = {
        "simulated": {
            "steps": [{"step": 0, "wall": 1e300, "big": 2**70}],
            "summary": {"é\u2028": None},
            "m": [],
        },
        "compare": {"steps": [], "nul": "a\x00b"},
    }
    reply = client.post(f"/api/sims/{sim_id}/step-timeline", json=first)
    assert (reply.status_code, reply.content) == (204, b"")
    head = {"sim_id": sim_id, "gpu_config": "SM86_RTX3070", "replica": 1}
    assert client.body(path) == [head | first]
    second: dict[str, Any] = {"simulated": {"steps": [], "summary": {}}}
    client.post(f"/api/sims/{sim_id}/step-timeline", json=second)
    client.post(f"/api/sims/{run['sims'][0]['id']}/step-timeline", json=second | {"compare": None})
    assert client.body(path) == [
        head | {"sim_id": run["sims"][0]["id"], "replica": 0} | second | {"compare": None},
        head | second | {"compare": None},
    ]


def test_step_timing_of_megabytes_leaves_in_small_pieces(client: Client) -> None:
    run = client.new_live_run(count=2)
    gateway = client.api.gateway
    sent = {"simulated": {"steps": list(range(400_000)), "summary": {}}, "compare": {"text": "x" * 2_000_000}}
    for sim in run["sims"]:
        client.post(f"/api/sims/{sim['id']}/step-timeline", json=sent)

    async def pieces() -> list[bytes]:
        return [piece async for piece in _step_timelines(gateway.database, run["id"])]

    received = client.api.call(pieces())
    assert max(map(len, received)) <= 128 * 1024
    heads = [
        {"sim_id": sim["id"], "gpu_config": "SM86_RTX3070", "replica": sim["replica"]} for sim in run["sims"]
    ]
    assert json.loads(b"".join(received)) == [head | sent for head in heads]
    assert client.get(f"/api/runs/{run['id']}/step-timelines").content == b"".join(received)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "Field required"),
        ({"simulated": []}, "Input should be an object"),
        ({"simulated": {}}, "`steps` list"),
        ({"simulated": {"steps": {}, "summary": {}}}, "`steps` list"),
        ({"simulated": {"steps": []}}, "`summary` object"),
        ({"simulated": {"steps": [], "summary": []}}, "`summary` object"),
        ({"simulated": {"steps": [], "summary": {}}, "compare": []}, "Input should be an object"),
    ],
)
def test_step_timing_without_its_parts_is_refused(body: dict[str, Any], says: str, client: Client) -> None:
    run_id, sim_id = client.new_sim()
    reply = client.post(f"/api/sims/{sim_id}/step-timeline", json=body)
    assert reply.status_code == 422
    assert says in reply.json()["detail"][0]["msg"]
    assert client.body(f"/api/runs/{run_id}/step-timelines") == []


def test_not_a_number_in_step_timing_becomes_null(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    body = b'{"simulated": {"steps": [NaN, 1e999, -Infinity], "summary": {}}}'
    assert client.post(f"/api/sims/{sim_id}/step-timeline", content=body).status_code == 204
    stored = client.body(f"/api/runs/{run_id}/step-timelines")[0]["simulated"]
    assert stored == {"steps": [None, None, None], "summary": {}}


def test_a_cancelled_sim_hears_of_it_at_its_next_heartbeat(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    client.beat(sim_id)
    client.post(f"/api/runs/{run_id}/cancel")
    assert client.beat(sim_id) == {"state": "cancelled", "cancel": True}
    assert client.beat(sim_id, "succeeded", exit_code=0) == {"state": "cancelled", "cancel": True}
    eventually(lambda: client.sim(run_id, sim_id)["state"] == "cancelled")
