"""A server behind the gateway goes away: a clear 503, nothing lost, no lie told, and back by itself."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import httpx
import pytest
from cascade_api.testing.client import Client, eventually
from cascade_api.testing.outage import Line
from cascade_api.testing.patience import hurried
from cascade_api.testing.running import RunningApi
from cascade_api.testing.servers import Servers
from cascade_api.testing.simulator import Simulator
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_cli.embedded.testing import TcpProxy, run_now

_PORT = re.compile(r":(\d+)(?=/|$)")
Lined = Callable[[str], tuple[Line, str]]


@pytest.fixture
def lined() -> Iterator[Lined]:
    """Puts a line in front of a URL; the line and the URL that goes through it."""
    lines: list[Line] = []

    def through(url: str) -> tuple[Line, str]:
        found = _PORT.search(url)
        assert found is not None
        line = Line(TcpProxy(int(found[1])))
        line.__enter__()
        lines.append(line)
        return line, url[: found.start(1)] + str(line.port) + url[found.end(1) :]

    yield through
    for line in lines:
        line.__exit__()


def is_unavailable(reply: httpx.Response, says: str) -> bool:
    return reply.status_code == 503 and says in reply.json()["detail"] and reply.headers["retry-after"] == "1"


def test_without_the_event_log_nothing_is_acknowledged(own_servers: Servers, lined: Lined) -> None:
    line, url = lined(own_servers.nats_url)
    with RunningApi(replace(own_servers, nats_url=url).settings()) as api, Client(api) as client:
        run_id, sim_id = client.new_sim()
        trace_id = client.new_trace()
        client.send_log(sim_id, 0, ["before"])
        assert client.log(sim_id) == "before\n"  # and so the views know the trace, too
        chunk = {"seq": 1, "lines": ["during"]}
        with hurried():
            line.cut()
            eventually(
                lambda: is_unavailable(client.post(f"/api/sims/{sim_id}/logs", json=chunk), "event log")
            )
            beat = client.post(f"/api/sims/{sim_id}/heartbeat", json={"state": "running"})
            assert is_unavailable(beat, "event log")
            run = {"trace_id": trace_id, "entries": [{"gpu_config": "SM86_RTX3070", "count": 1}]}
            assert is_unavailable(client.post("/api/runs", json=run), "event log")
            assert is_unavailable(client.post(f"/api/runs/{run_id}/cancel"), "event log")
            assert client.sim(run_id, sim_id)["state"] == "launching"  # what is known is still shown
            assert client.get("/api/health").status_code == 200
            assert client.get("/api/ready").json()["nats"] != "ok"
            line.restore()
        eventually(lambda: client.post(f"/api/sims/{sim_id}/logs", json=chunk).status_code == 204)
        assert client.log(sim_id) == "before\nduring\n"
        assert client.beat(sim_id)["state"] == "running"
        assert len(client.body("/api/runs")) == 1
        eventually(lambda: client.get("/api/ready").status_code == 200)


@pytest.mark.slow
def test_a_log_survives_an_event_log_that_comes_and_goes(own_servers: Servers, lined: Lined) -> None:
    line, url = lined(own_servers.nats_url)
    with RunningApi(replace(own_servers, nats_url=url).settings()) as api, Client(api) as client:
        _, sim_id = client.new_sim()
        with hurried(), Simulator([api], sim_id) as simulator:
            for _ in range(4):
                reached = simulator.acknowledged + 30
                eventually(partial(simulator.has_sent, reached))
                failed = simulator.failures
                line.cut()
                eventually(partial(simulator.has_failed, failed))
                line.restore()
        assert simulator.wrong == []
        assert client.log(sim_id) == simulator.log


def test_a_restarted_event_log_is_found_again(own_servers: Servers, fresh_nats: EmbeddedNats) -> None:
    with RunningApi(own_servers.settings()) as api, Client(api) as client:
        run_id, sim_id = client.new_sim()
        with (
            hurried(),
            Simulator([api], sim_id) as simulator,
            client.stream("GET", f"/api/runs/{run_id}/events", timeout=60) as stream,
        ):
            frames = stream.iter_lines()
            next(frames)
            eventually(lambda: simulator.acknowledged > 20)
            run_now(fresh_nats.stop())
            eventually(lambda: simulator.failures > 0)
            run_now(fresh_nats.start())
            reached = simulator.acknowledged + 20
            eventually(lambda: simulator.acknowledged > reached)
            wanted = f'"lines":["line {reached}"]'
            assert any(wanted in frame for frame in frames)  # the stream went on by itself
        assert client.log(sim_id) == simulator.log


def test_without_the_database_reports_are_kept_and_the_rest_waits(own_servers: Servers, lined: Lined) -> None:
    line, url = lined(own_servers.database_url)
    with RunningApi(replace(own_servers, database_url=url).settings()) as api, Client(api) as client:
        run_id, sim_id = client.new_sim()
        client.beat(sim_id)
        client.send_log(sim_id, 0, ["before"])
        assert client.get(f"/api/sims/{sim_id}/log").text == "before\n"
        with hurried():
            line.cut()
            eventually(lambda: is_unavailable(client.get("/api/runs"), "database does not answer"))
            for path in (
                f"/api/runs/{run_id}",
                f"/api/sims/{sim_id}/log",
                "/api/traces",
                f"/api/runs/{run_id}/events",
            ):
                assert is_unavailable(client.get(path), "")
            client.send_log(sim_id, 1, ["during"])  # durable in the event log, which is all that it needs
            eventually(lambda: not api.gateway.projector.leads)
            api.gateway.sims._seen.clear()  # as where the projector knew the sim at every look
            client.send_log(sim_id, 2, ["without a leader"])
            # A repeated heartbeat is answered from memory as long as this replica is sure that it leads, and no longer.
            eventually(
                lambda: is_unavailable(
                    client.post(f"/api/sims/{sim_id}/heartbeat", json={"state": "running"}), ""
                )
            )
            unknown = client.post("/api/sims/sim-00000000000f/heartbeat", json={"state": "running"})
            assert unknown.status_code == 503  # not a 404: a simulator would stop for good
            assert client.get("/api/ready").json()["postgres"] != "ok"
            line.restore()
        eventually(lambda: client.get("/api/runs").status_code == 200)
        eventually(lambda: client.get(f"/api/sims/{sim_id}/log").text == "before\nduring\nwithout a leader\n")
        assert client.beat(sim_id) == {"state": "running", "cancel": False}
        eventually(lambda: client.get("/api/ready").status_code == 200)


@pytest.mark.slow
def test_a_database_that_swallows_everything_is_given_up_in_time(own_servers: Servers, lined: Lined) -> None:
    line, url = lined(own_servers.database_url)
    with RunningApi(replace(own_servers, database_url=url).settings()) as api, Client(api) as client:
        run_id, sim_id = client.new_sim()
        client.beat(sim_id)
        with hurried():
            line.freeze()
            # Before the client gives up itself.
            assert is_unavailable(client.get(f"/api/runs/{run_id}"), "database does not answer")
            assert client.get("/api/health").status_code == 200
            line.restore()
        eventually(lambda: client.get(f"/api/runs/{run_id}").status_code == 200)
        eventually(
            lambda: client.post(f"/api/sims/{sim_id}/heartbeat", json={"state": "running"}).status_code == 200
        )


def test_without_the_bucket_only_files_wait(own_servers: Servers, lined: Lined) -> None:
    line, url = lined(own_servers.s3_endpoint)
    with RunningApi(replace(own_servers, s3_endpoint=url).settings()) as api, Client(api) as client:
        run_id, sim_id = client.new_sim()
        path = f"/api/sims/{sim_id}/files/a.txt"
        assert client.put(path, content=b"before").status_code == 200
        line.cut()
        assert is_unavailable(client.put(path, content=b"during"), "S3 did not answer")
        assert is_unavailable(client.get(path), "S3 did not answer")
        assert client.get("/api/ready").json()["s3"] != "ok"
        client.send_log(sim_id, 0, ["unharmed"])
        assert client.sim(run_id, sim_id)["log_tail"] == ["unharmed"]
        line.restore()
        eventually(lambda: client.get(path).status_code == 200)
        assert client.get(path).content == b"before"
        assert client.put(path, content=b"after").status_code == 200
        assert client.get(path).content == b"after"
        assert [file["size"] for file in client.body(f"/api/sims/{sim_id}/files")] == [5]
