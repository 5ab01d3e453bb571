"""Creating, reading and cancelling runs over HTTP."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cascade_api.read_models.gate import ProjectionGate, ProjectionLate
from cascade_api.testing.client import PATIENCE_S, Client
from cascade_api.testing.facts import ready_trace, requested_run
from cascade_api.testing.running import RunningApi
from cascade_api.testing.servers import Servers
from cascade_core.sims.facts import SimLaunched, SimLaunchStarted, SimReported
from cascade_core.sims.transitions import SimState
from cascade_core.traces.facts import TraceDiscovered, TraceFailed

AT = datetime(2026, 11, 8, 8, 59, 2, 587743, tzinfo=UTC)


def test_a_new_run_has_every_sim_pending(client: Client) -> None:
    trace_id = client.new_trace(kernels=20)
    reply = client.post(
        "/api/runs", json={"trace_id": trace_id, "entries": [{"gpu_config": "SM86_RTX3070", "count": 2}]}
    )
    assert reply.status_code == 201
    run = reply.json()
    assert run == {
        "id": run["id"],
        "trace_id": trace_id,
        "created_at": run["created_at"],
        "state": "active",
        "entries": [{"gpu_config": "SM86_RTX3070", "count": 2}],
        "sim_counts": {"pending": 2},
        "sample": False,
        "replay": False,
        "trace": next(trace for trace in client.body("/api/traces") if trace["id"] == trace_id),
        "sims": [
            {
                "id": run["sims"][replica]["id"],
                "run_id": run["id"],
                "gpu_config": "SM86_RTX3070",
                "replica": replica,
                "state": "pending",
                "error": None,
                "launcher_ref": None,
                "created_at": run["created_at"],
                "started_at": None,
                "finished_at": None,
                "last_heartbeat_at": None,
                "exit_code": None,
                "kernels_done": 0,
                "kernels_total": 20,
                "current_kernel": None,
                "latest": {
                    "gpu_tot_sim_cycle": None,
                    "gpu_tot_sim_insn": None,
                    "gpu_tot_ipc": None,
                    "sim_rate_ips": None,
                },
                "log_tail": [],
            }
            for replica in (0, 1)
        ],
    }
    assert run["id"].startswith("run-")
    assert len(run["id"]) == len("run-") + 12
    assert run["created_at"].endswith("Z")
    assert client.body(f"/api/runs/{run['id']}") == run
    assert client.body("/api/runs")[0] == {
        key: value for key, value in run.items() if key not in ("trace", "sims")
    }


def test_a_run_that_the_views_do_not_show_yet_is_made_once_and_told(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(_gate: ProjectionGate, _position: int, *, within_s: float = 0.0) -> None:
        raise ProjectionLate(f"not within {within_s} s")

    trace_id = client.new_trace()
    client.body("/api/traces")  # the views hold the trace
    entries = [{"gpu_config": "SM86_RTX3070", "count": 2}]
    with monkeypatch.context() as patched:
        patched.setattr(ProjectionGate, "passed", late)
        reply = client.post("/api/runs", json={"trace_id": trace_id, "entries": entries})
    assert reply.status_code == 201
    assert client.body(f"/api/runs/{reply.json()['id']}") == reply.json()


def test_sims_are_sorted_by_config_then_replica(client: Client) -> None:
    trace_id = client.new_trace(arch="sm_70")
    entries = [
        {"gpu_config": "SM7_QV100", "count": 11},
        {"gpu_config": "SM70_LATIN1", "count": 2},
    ]
    run = client.post("/api/runs", json={"trace_id": trace_id, "entries": entries}).json()
    assert [(sim["gpu_config"], sim["replica"]) for sim in run["sims"]] == [
        ("SM70_LATIN1", 0),
        ("SM70_LATIN1", 1),
        *(("SM7_QV100", replica) for replica in range(11)),
    ]
    assert run["entries"] == entries


def test_replicas_count_within_their_entry(client: Client) -> None:
    trace_id = client.new_trace()
    entries = [{"gpu_config": "SM86_RTX3070", "count": 2}, {"gpu_config": "SM86_RTX3070", "count": 1}]
    run = client.post("/api/runs", json={"trace_id": trace_id, "entries": entries}).json()
    assert sorted(sim["replica"] for sim in run["sims"]) == [0, 0, 1]
    assert len({sim["id"] for sim in run["sims"]}) == 3


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"trace_id": "absent"}, 404, "trace absent not found"),
        ({"trace_id": "broken"}, 409, "trace broken is failed, not ready"),
        ({"trace_id": "arriving"}, 409, "trace arriving is uploading, not ready"),
        (
            {"trace_id": "bundled"},
            409,
            "trace bundled is a sample without instruction traces, so it can't be simulated again",
        ),
        ({"entries": [{"gpu_config": "SM99_X", "count": 1}]}, 422, "unknown gpu_config 'SM99_X'"),
        (
            {"entries": [{"gpu_config": "SM90_H100", "count": 1}]},
            422,
            "SM90_H100 is sm_90 but trace fine is sm_86",
        ),
    ],
)
def test_a_run_that_cannot_be_is_refused_in_a_sentence(
    body: dict[str, Any], status: int, detail: str, client: Client
) -> None:
    client.store(
        *ready_trace("fine"),
        TraceDiscovered(trace_id="broken", occurred_at=AT),
        TraceFailed(trace_id="broken", occurred_at=AT, error="x"),
        TraceDiscovered(trace_id="arriving", occurred_at=AT),
        *ready_trace("bundled", sample=True),
    )
    before = client.body("/api/runs")
    wanted = {"trace_id": "fine", "entries": [{"gpu_config": "SM86_RTX3070", "count": 1}]} | body
    reply = client.post("/api/runs", json=wanted)
    assert (reply.status_code, reply.json()) == (status, {"detail": detail})
    assert client.body("/api/runs") == before


def test_one_bad_entry_creates_nothing(client: Client) -> None:
    trace_id = client.new_trace()
    before = len(client.body("/api/runs"))
    entries = [{"gpu_config": "SM86_RTX3070", "count": 2}, {"gpu_config": "SM99_X", "count": 1}]
    assert client.post("/api/runs", json={"trace_id": trace_id, "entries": entries}).status_code == 422
    assert len(client.body("/api/runs")) == before


def test_a_count_out_of_range_is_located(client: Client) -> None:
    reply = client.post(
        "/api/runs", json={"trace_id": "t", "entries": [{"gpu_config": "SM86_RTX3070", "count": 0}]}
    )
    assert (reply.status_code, reply.json()) == (
        422,
        {
            "detail": [
                {
                    "type": "greater_than_equal",
                    "loc": ["body", "entries", 0, "count"],
                    "msg": "Input should be greater than or equal to 1",
                    "input": 0,
                    "ctx": {"ge": 1},
                }
            ]
        },
    )


@pytest.mark.parametrize(
    ("body", "kind", "loc"),
    [
        ({"trace_id": "t", "entries": []}, "too_short", ["body", "entries"]),
        (
            {"trace_id": "t", "entries": [{"gpu_config": "x", "count": 65}]},
            "less_than_equal",
            ["body", "entries", 0, "count"],
        ),
        ({"trace_id": "t", "entries": [{"count": 1}]}, "missing", ["body", "entries", 0, "gpu_config"]),
        ({"entries": [{"gpu_config": "x", "count": 1}]}, "missing", ["body", "trace_id"]),
        ({"trace_id": 5, "entries": [{"gpu_config": "x", "count": 1}]}, "string_type", ["body", "trace_id"]),
        ({"trace_id": "t", "entries": "x"}, "list_type", ["body", "entries"]),
    ],
)
def test_a_body_that_does_not_fit_is_located(
    body: dict[str, Any], kind: str, loc: list[str | int], client: Client
) -> None:
    reply = client.post("/api/runs", json=body)
    assert reply.status_code == 422
    assert [(problem["type"], problem["loc"]) for problem in reply.json()["detail"]] == [(kind, loc)]


def test_sixty_four_replicas_are_allowed(client: Client) -> None:
    run = client.new_run(count=64)
    assert run["sim_counts"] == {"pending": 64}


@pytest.mark.parametrize(
    "run_id", ["run-000000000000", "nope", "run-%00", "run-\ud83d\ude80", "a%2Fb", "x" * 3000]
)
@pytest.mark.parametrize(
    "rest", ["", "/comparison", "/kernels", "/step-timelines", "/results", "/files", "/perfetto"]
)
def test_a_missing_run_is_named(run_id: str, rest: str, client: Client) -> None:
    path = "".join(part if part.isascii() else "%F0%9F%9A%80" for part in [run_id])
    reply = client.get(f"/api/runs/{path}{rest}")
    assert reply.status_code == 404
    if run_id == "run-000000000000":
        assert reply.json() == {"detail": "run run-000000000000 not found"}


def test_cancelling_twice_changes_nothing_more(client: Client) -> None:
    run = client.new_live_run(count=2)
    client.beat(run["sims"][0]["id"])
    first = client.post(f"/api/runs/{run['id']}/cancel")
    assert first.status_code == 200
    cancelled = first.json()
    assert (cancelled["state"], cancelled["sim_counts"]) == ("cancelled", {"cancelled": 2})
    assert all(sim["finished_at"] and sim["error"] is None for sim in cancelled["sims"])
    second = client.post(f"/api/runs/{run['id']}/cancel")
    assert (second.status_code, second.json()) == (200, cancelled)
    assert client.beat(run["sims"][0]["id"]) == {"state": "cancelled", "cancel": True}
    assert client.body(f"/api/runs/{run['id']}") == cancelled


def test_cancelling_leaves_finished_sims_alone(client: Client) -> None:
    run = client.new_live_run(count=2)
    client.beat(run["sims"][0]["id"])
    client.beat(run["sims"][0]["id"], "succeeded", exit_code=0)
    after = client.post(f"/api/runs/{run['id']}/cancel").json()
    assert after["state"] == "partial"
    assert [sim["state"] for sim in after["sims"]] == ["succeeded", "cancelled"]
    assert after["sims"][0]["exit_code"] == 0


def test_cancelling_a_missing_run_is_not_found(client: Client) -> None:
    reply = client.post("/api/runs/run-000000000000/cancel")
    assert (reply.status_code, reply.json()) == (404, {"detail": "run run-000000000000 not found"})


@pytest.mark.parametrize(
    ("states", "run_state"),
    [
        (("running", "succeeded"), "active"),
        (("succeeded", "succeeded"), "succeeded"),
        (("succeeded", "failed"), "partial"),
        (("failed", "failed"), "failed"),
        (("cancelled", "failed"), "cancelled"),
        (("cancelled", "succeeded"), "partial"),
        (("cancelled", "cancelled"), "cancelled"),
    ],
)
def test_a_runs_state_follows_from_its_sims(states: tuple[str, str], run_state: str, client: Client) -> None:
    run = client.new_live_run(count=2)
    for sim, state in zip(run["sims"], states, strict=True):
        client.beat(sim["id"])
        if state in ("succeeded", "failed"):
            client.beat(sim["id"], state)
    if "cancelled" in states:
        client.post(f"/api/runs/{run['id']}/cancel")
    assert client.body(f"/api/runs/{run['id']}")["state"] == run_state
    assert next(each for each in client.body("/api/runs") if each["id"] == run["id"])["state"] == run_state


def test_what_the_launcher_did_is_shown(client: Client) -> None:
    run = client.new_run()
    run_id, sim_id = run["id"], run["sims"][0]["id"]
    client.store(SimLaunchStarted(run_id=run_id, sim_id=sim_id, occurred_at=AT, attempt="a1"))
    assert client.sim(run_id, sim_id)["state"] == "launching"
    client.store(SimLaunched(run_id=run_id, sim_id=sim_id, occurred_at=AT, launcher_ref="64418"))
    assert client.sim(run_id, sim_id)["launcher_ref"] == "64418"
    client.store(
        SimReported(run_id=run_id, sim_id=sim_id, occurred_at=AT, state=SimState.RUNNING, attempt="a1")
    )
    sim = client.sim(run_id, sim_id)
    assert sim["started_at"] == sim["last_heartbeat_at"] == "2026-11-08T08:59:02.587743Z"


def test_a_thousand_runs_are_listed_newest_first_and_fast(own_servers: Servers) -> None:
    with RunningApi(own_servers.settings()) as api, Client(api) as client:
        client.store(*ready_trace("demo"))
        runs = [
            requested_run(
                f"run-{number:012x}",
                "demo",
                sims=[f"sim-{number:06x}{replica:06x}" for replica in range(4)],
                at=AT + timedelta(seconds=number % 500),
            )
            for number in range(1000)
        ]
        api.call(api.gateway.log.append_all([(run, None) for run in runs]))
        last = api.call(api.gateway.log.last_position())
        api.call(api.gateway.gate.passed(last, within_s=60))
        took: list[float] = []
        give_up_at = time.monotonic() + PATIENCE_S
        # Other work on the machine makes a figure worse and never better: five in a row may be.
        while not took or (min(took) >= 0.5 and time.monotonic() < give_up_at):
            started = time.monotonic()
            listed = client.body("/api/runs")
            took.append(time.monotonic() - started)
        expected = sorted(range(1000), key=lambda number: (number % 500, number), reverse=True)
        assert [run["id"] for run in listed] == [f"run-{number:012x}" for number in expected]
        assert listed[0]["sim_counts"] == {"pending": 4}
        assert min(took) < 0.5, took
