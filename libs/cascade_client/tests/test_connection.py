"""The clients against a small server that fails as it is told."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cascade_client.async_client import AsyncCascadeClient
from cascade_client.client import CascadeClient
from cascade_client.errors import ClientError, Conflict, NotFound, Unauthorized, Unreachable
from cascade_client.retry import RetryPolicy
from cascade_client.wire.events import SnapshotEvent
from cascade_client.wire.runs import RunEntry

HEALTH = b'{"ok": true, "auth": true, "workspace": null, "s3_endpoint": "http://s3"}'


class Server:
    """Answers each request with the next of `answers`: a status and a body; a body may break off."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes, int | None]] = []
        self.seen: list[tuple[str, str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.seen.append((self.command, self.path, self.headers.get("Authorization")))
                status, body, promised = outer.answers.pop(0)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) if promised is None else promised))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = promised is not None

            do_GET = do_POST = do_PUT = _answer  # noqa: N815 - the names that the base class calls

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def will(self, status: int, body: bytes = b"{}", *, promised: int | None = None) -> None:
        self.answers.append((status, body, promised))

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


class Waits(list[float]):
    """Instead of sleeping."""

    def sleep(self, seconds: float) -> None:
        self.append(seconds)

    async def asleep(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def client(server: Server, waits: Waits) -> Iterator[CascadeClient]:
    with CascadeClient(server.url, "a-token", sleep=waits.sleep) as opened:
        yield opened


def test_the_token_travels_as_a_bearer(server: Server, client: CascadeClient) -> None:
    server.will(200, HEALTH)
    assert client.health().ok
    assert server.seen == [("GET", "/api/health", "Bearer a-token")]


def test_a_get_is_repeated_until_the_app_is_back(server: Server, client: CascadeClient, waits: Waits) -> None:
    server.will(503, b'{"detail": "starting"}')
    server.will(502, b"bad gateway")
    server.will(200, b"[]")
    assert client.traces() == []
    assert waits == [0.5, 1.0]


def test_a_launch_is_sent_once(server: Server, client: CascadeClient, waits: Waits) -> None:
    server.will(503, b'{"detail": "no room"}')
    with pytest.raises(ClientError, match="no room"):
        client.launch("demo", [RunEntry(gpu_config="SM80_A100", count=1)])
    assert [seen[:2] for seen in server.seen] == [("POST", "/api/runs")]
    assert waits == []


def test_a_cancel_is_repeated(server: Server, client: CascadeClient) -> None:
    server.will(500, b'{"detail": "oops"}')
    server.will(404, b'{"detail": "run run-1 not found"}')
    with pytest.raises(NotFound, match="run run-1 not found"):
        client.cancel("run-1")
    assert len(server.seen) == 2


def test_a_wrong_token_is_told_at_once(server: Server, client: CascadeClient) -> None:
    server.will(401, b'{"detail": "missing or wrong token"}')
    with pytest.raises(Unauthorized) as raised:
        client.runs()
    assert len(server.seen) == 1
    assert "a-token" not in str(raised.value)


def test_nobody_there_is_said_with_the_next_step(waits: Waits) -> None:
    with (
        CascadeClient("http://127.0.0.1:1", sleep=waits.sleep, retry=RetryPolicy(attempts=2)) as client,
        pytest.raises(Unreachable, match="Is the app running"),
    ):
        client.health()
    assert len(waits) == 1


def test_a_download_appears_only_when_it_is_complete(
    server: Server, client: CascadeClient, tmp_path: Path
) -> None:
    server.will(200, b"half", promised=8)
    server.will(200, b"complete")
    target = tmp_path / "sim.log"
    assert client.save_log("sim-1", target) == 8
    assert target.read_bytes() == b"complete"
    assert list(tmp_path.iterdir()) == [target]


def test_a_refused_download_leaves_the_older_file(
    server: Server, client: CascadeClient, tmp_path: Path
) -> None:
    target = tmp_path / "sim.log"
    target.write_bytes(b"older")
    server.will(409, b'{"detail": "no"}')
    with pytest.raises(Conflict):
        client.save_log("sim-1", target)
    assert target.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [target]


def test_a_log_comes_line_by_line(server: Server, client: CascadeClient) -> None:
    server.will(200, "a\u2028b\n\nlast".encode())
    assert list(client.log_lines("sim-1")) == ["a\u2028b", "", "last"]


SNAPSHOT = (
    b'data: {"type":"snapshot","kernels":[],"run":{"id":"run-1","trace_id":"demo","created_at":"2026-01-02T00:00:00Z",'
    b'"state":"active","entries":[],"sim_counts":{},"sample":false,"trace":{"id":"demo","state":"ready","error":null,'
    b'"created_at":"2026-01-02T00:00:00Z","updated_at":"2026-01-02T00:00:00Z","model":null,"layers":[],"source_gpu":null,'
    b'"trace_gpu_arch":"sm_80","suggested_sim_config":null,"kernel_count":1,"bytes":1,"has_real_timing":false,'
    b'"has_step_timeline":false,"sample":false},"sims":[{"id":"sim-1","run_id":"run-1","gpu_config":"SM80_A100",'
    b'"replica":0,"state":"STATE","error":null,"launcher_ref":null,"created_at":"2026-01-02T00:00:00Z",'
    b'"started_at":null,"finished_at":null,"last_heartbeat_at":null,"exit_code":null,"kernels_done":0,'
    b'"kernels_total":1,"current_kernel":null,"latest":{},"log_tail":[]}]}}\n\n'
)


def test_a_broken_stream_is_opened_again_with_a_new_snapshot(
    server: Server, client: CascadeClient, waits: Waits
) -> None:
    running = SNAPSHOT.replace(b"STATE", b"running")
    server.will(200, running + b'data: {"type":"lo', promised=10**6)
    server.will(503, b'{"detail": "restarting"}')
    server.will(200, running)
    server.will(200, SNAPSHOT.replace(b"STATE", b"succeeded"))
    events = list(client.events("run-1"))
    states = [event.run.sims[0].state.value for event in events if isinstance(event, SnapshotEvent)]
    assert states == ["running", "running", "succeeded"]
    assert waits == [0.5, 1.0, 0.5]


def test_a_stream_of_no_run_is_told_at_once(server: Server, client: CascadeClient) -> None:
    server.will(404, b'{"detail": "run run-1 not found"}')
    with pytest.raises(NotFound):
        list(client.events("run-1"))
    assert len(server.seen) == 1


def test_a_stream_that_only_breaks_ends_after_a_bounded_time(
    server: Server, client: CascadeClient, waits: Waits
) -> None:
    for _ in range(8):
        server.will(200, b": keepalive\n\n")
    with pytest.raises(Unreachable, match="ended the event stream"):
        list(client.events("run-1"))
    assert len(waits) == 7


async def test_the_async_client_does_the_same(server: Server, waits: Waits, tmp_path: Path) -> None:
    async with AsyncCascadeClient(server.url, "a-token", sleep=waits.asleep) as client:
        server.will(503)
        server.will(200, HEALTH)
        assert (await client.health()).ok
        server.will(200, b"half", promised=8)
        server.will(200, b"complete")
        assert await client.save_file("sim-1", "kernel-stats.csv", tmp_path / "stats.csv") == 8
        server.will(200, SNAPSHOT.replace(b"STATE", b"running"))
        server.will(200, SNAPSHOT.replace(b"STATE", b"failed"))
        async with contextlib.aclosing(client.events("run-1")) as events:
            assert len([event async for event in events]) == 2
        server.will(200, b"one\ntwo\n")
        assert [line async for line in client.log_lines("sim-1")] == ["one", "two"]
    assert ("GET", "/api/sims/sim-1/files/kernel-stats.csv", "Bearer a-token") in server.seen
