"""Several gateways on the same servers: any of them serves, one projects, and another takes over."""

import itertools
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest
from cascade_api.testing.client import Client, eventually
from cascade_api.testing.outage import Line
from cascade_api.testing.patience import hurried
from cascade_api.testing.running import RunningApi
from cascade_api.testing.servers import Servers
from cascade_cli.embedded.testing import TcpProxy


@contextmanager
def replicas(servers: Servers, count: int = 2) -> Iterator[tuple[list[RunningApi], list[Client]]]:
    """Running gateways, and a client of each."""
    with ExitStack() as stack:
        apis = [stack.enter_context(RunningApi(servers.settings())) for _ in range(count)]
        yield apis, [stack.enter_context(Client(api)) for api in apis]


def leader_of(apis: list[RunningApi]) -> int:
    """Which one leads, as soon as exactly one does."""

    def only() -> list[int] | None:
        leading = [number for number, api in enumerate(apis) if api.gateway.projector.leads]
        return leading if len(leading) == 1 else None

    return eventually(only)[0]


def test_one_of_two_projects_and_both_serve(own_servers: Servers) -> None:
    with replicas(own_servers) as (apis, (one, two)):
        leader_of(apis)
        for writer, reader in ((one, two), (two, one)):
            run = writer.new_run(count=2)
            assert reader.body(f"/api/runs/{run['id']}") == run
            writer.launch(run)
            sim_id = run["sims"][0]["id"]
            eventually(partial(is_launched, reader, run, sim_id))
            assert reader.beat(sim_id) == {"state": "running", "cancel": False}
            assert writer.sim(run["id"], sim_id)["state"] == "running"
            assert reader.sim(run["id"], sim_id)["state"] == "running"
            assert writer.post(f"/api/runs/{run['id']}/cancel").json()["state"] == "cancelled"
            assert reader.beat(sim_id) == {"state": "cancelled", "cancel": True}
            assert reader.body(f"/api/runs/{run['id']}")["state"] == "cancelled"


def is_launched(client: Client, run: dict[str, Any], sim_id: str) -> bool:
    state: str = client.sim(run["id"], sim_id)["state"]
    return state == "launching"


def events(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in reply.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_both_stream_the_same_events_in_the_same_order(own_servers: Servers) -> None:
    with replicas(own_servers) as (_, (one, two)):
        run_id, sim_id = one.new_sim()
        path = f"/api/runs/{run_id}/events"
        with one.stream("GET", path) as first, two.stream("GET", path) as second:
            streams = [events(first), events(second)]
            assert [next(stream)["type"] for stream in streams] == ["snapshot", "snapshot"]
            for seq in range(20):
                (one, two)[seq % 2].send_log(sim_id, seq, [f"line {seq}"])
                (two, one)[seq % 2].beat(sim_id)
            seen = [[next(stream) for _ in range(40)] for stream in streams]
        assert seen[0] == seen[1]
        logs = [event["lines"][0] for event in seen[0] if event["type"] == "log"]
        assert logs == [f"line {seq}" for seq in range(20)]


def test_a_stopped_leader_is_replaced_and_nothing_is_lost(own_servers: Servers) -> None:
    with replicas(own_servers, 3) as (apis, clients):
        run_id, sim_id = clients[0].new_sim()
        sent = 0
        while len(apis) > 1:
            leading = leader_of(apis)
            for client in clients:
                client.send_log(sim_id, sent, [f"line {sent}"])
                sent += 1
                assert client.beat(sim_id)["state"] == "running"
            clients.pop(leading).close()
            apis.pop(leading).stop()
        [last] = clients
        assert leader_of(apis) == 0
        assert last.beat(sim_id)["state"] == "running"
        assert last.get(f"/api/sims/{sim_id}/log").text == "".join(f"line {n}\n" for n in range(sent))
        assert last.sim(run_id, sim_id)["log_tail"] == [f"line {n}" for n in range(sent)]


@pytest.mark.slow
def test_a_leader_that_is_cut_off_in_silence_is_replaced(own_servers: Servers) -> None:
    port = re.search(r":(\d+)/", own_servers.database_url)
    assert port is not None
    with Line(TcpProxy(int(port[1]))) as line:
        cut_off = replace(
            own_servers, database_url=own_servers.database_url.replace(port[0], f":{line.port}/")
        )
        with RunningApi(cut_off.settings()) as first:
            eventually(lambda: first.gateway.projector.leads)
            with RunningApi(own_servers.settings()) as second, Client(second) as client:
                run_id, sim_id = client.new_sim()
                line.freeze()
                eventually(lambda: second.gateway.projector.leads)
                assert client.beat(sim_id)["state"] == "running"
                client.send_log(sim_id, 0, ["goes on"])
                line.restore()
                eventually(lambda: not first.gateway.projector.leads)
                with Client(first) as other:
                    eventually(lambda: other.get(f"/api/runs/{run_id}").status_code == 200)
                    wanted = client.sim(
                        run_id, sim_id
                    )  # the other one waits for no chunk that it did not store
                    assert other.sim(run_id, sim_id) == wanted
                    assert other.beat(sim_id)["state"] == "running"


def test_a_new_replica_knows_everything_that_was_stored_before(own_servers: Servers) -> None:
    with replicas(own_servers, 1) as (_, [client]):
        run = client.new_run()
        with replicas(own_servers, 1) as (_, [late]):
            assert late.body(f"/api/runs/{run['id']}") == run
            assert late.get("/api/runs/run-00000000000f").status_code == 404


def test_what_does_not_exist_is_not_found_while_others_store_without_a_pause(own_servers: Servers) -> None:
    with replicas(own_servers, 1) as ([api], [client]):
        _, sim_id = client.new_sim()
        done = threading.Event()

        def store() -> None:
            with Client(api) as other:
                for seq in itertools.count():
                    if done.is_set():
                        return
                    other.send_log(sim_id, seq, ["line"])

        beat, entries = {"state": "running"}, [{"gpu_config": "SM86_RTX3070", "count": 1}]
        with ThreadPoolExecutor(max_workers=4) as busy:
            stores = [busy.submit(store) for _ in range(4)]
            try:
                replies = [
                    reply
                    for _ in range(20)
                    for reply in (
                        client.get("/api/runs/run-00000000000f"),
                        client.get("/api/traces/nope"),
                        client.get("/api/runs/run-00000000000f/events"),
                        client.get(f"/api/sims/{sim_id}/files/nope.txt"),
                        client.post("/api/sims/sim-00000000000f/heartbeat", json=beat),
                        client.put("/api/sims/sim-00000000000f/files/a.txt", content=b"a"),
                        client.post("/api/runs", json={"trace_id": "nope", "entries": entries}),
                        client.post(
                            "/v1/completions", json={"model": "nope", "prompt": "a", "max_tokens": 1}
                        ),
                    )
                ]
            finally:
                done.set()
            for stored in stores:
                stored.result()
        assert {reply.status_code for reply in replies} == {404}, {reply.text for reply in replies}


def test_a_404_is_not_told_while_the_views_are_behind(own_servers: Servers) -> None:
    with replicas(own_servers, 1) as ([api], [client]):
        api.gateway.gate.expect(api.gateway.gate.position + 1000)
        with hurried():
            reply = client.get("/api/runs/run-00000000000f")
            assert reply.status_code == 503
            assert "may be on its way" in reply.json()["detail"]
            reply = client.post("/api/sims/sim-00000000000f/heartbeat", json={"state": "running"})
            assert reply.status_code == 503
