"""A small gateway for tests: a real HTTP server that keeps the simulator contract and can be told to fail.

It holds one app's state (heartbeats, chunks, files, step timing, in order of arrival), ignores a repeated
`seq`, fences off a second start by its attempt header, and breaks down on demand.
"""

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

_ROUTE = re.compile(
    r"/api/sims/(?P<sim>[^/]+)/(?P<call>heartbeat|logs|step-timeline|files)(?:/(?P<name>[^/]+))?"
)
_NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,128}")

Call = Literal["heartbeat", "logs", "step-timeline", "files"]

PATIENCE_S = 60.0
"""What must come may take this long on a machine that does other work too. [s]"""


@dataclass(frozen=True, slots=True)
class Fault:
    """What to do instead of answering well: a status, or a connection closed before or after the work is
    done."""

    call: Call
    how: int | Literal["drop-before", "drop-after"]
    times: int


@dataclass(slots=True)
class FakeGateway:
    """The state that the contract leads to. Read it from the test while the server runs, or afterwards."""

    sim_id: str = field(default_factory=lambda: f"sim-{secrets.token_hex(6)}")
    """New for every test: a launcher on the same machine ends processes by the sim id in their
    environment."""
    token: str = "test-token"  # noqa: S105  # nobody else knows it
    cancel: bool = False
    state: str = "launching"
    url: str = ""
    heartbeats: list[dict[str, object]] = field(default_factory=list)
    heartbeat_times: list[float] = field(default_factory=list)
    chunks: dict[int, list[str]] = field(default_factory=dict)
    chunk_times: list[float] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    step_timeline: dict[str, object] | None = None
    order: list[str] = field(default_factory=list)
    attempts: set[str] = field(default_factory=set)
    log_owner: str | None = None
    faults: list[Fault] = field(default_factory=list)
    calls_failed: int = 0
    heartbeat_delay_s: float = 0.0
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def log(self) -> list[str]:
        """All lines in `seq` order."""
        return [line for seq in sorted(self.chunks) for line in self.chunks[seq]]

    @property
    def final(self) -> dict[str, object] | None:
        """The first final heartbeat, or None."""
        return next((beat for beat in self.heartbeats if beat["state"] != "running"), None)

    def fail(self, call: Call, how: int | Literal["drop-before", "drop-after"], *, times: int = 1) -> None:
        """Break the next `times` calls of this kind."""
        with self.changed:
            self.faults.append(Fault(call, how, times))

    def work_again(self) -> None:
        """Break no more calls."""
        with self.changed:
            self.faults.clear()

    def wait_for(self, condition: Callable[["FakeGateway"], bool], *, timeout_s: float = PATIENCE_S) -> None:
        """Block until the state satisfies `condition`. Raises TimeoutError after `timeout_s`. [s]"""
        with self.changed:
            if not self.changed.wait_for(lambda: condition(self), timeout_s):
                raise TimeoutError(f"not in {timeout_s} s; so far: {self.order[-20:]}")


@contextmanager
def running_gateway(gateway: FakeGateway) -> Iterator[FakeGateway]:
    """Serve `gateway` on a free loopback port; `gateway.url` says where."""

    class Handler(_Handler):
        state = gateway

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    gateway.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield gateway
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: FakeGateway

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it
        """Quiet."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        route = _ROUTE.fullmatch(self.path)
        gateway = self.state
        if gateway.heartbeat_delay_s and self.path.endswith("heartbeat"):
            time.sleep(gateway.heartbeat_delay_s)
        with gateway.changed:
            try:
                how = self._fault(route["call"]) if route else None
                if how == "drop-before":
                    self.close_connection = True
                    return
                status, reply = (
                    (how, {"detail": "told to fail"}) if isinstance(how, int) else self._answer(route, body)
                )
                if how == "drop-after":
                    self.close_connection = True
                    return
            finally:
                gateway.changed.notify_all()
        content = b"" if reply is None else json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _fault(self, call: str) -> int | str | None:
        gateway = self.state
        for index, fault in enumerate(gateway.faults):
            if fault.call == call:
                gateway.calls_failed += 1
                left = Fault(fault.call, fault.how, fault.times - 1)
                gateway.faults[index : index + 1] = [left] if left.times else []
                return fault.how
        return None

    def _answer(self, route: re.Match[str] | None, body: bytes) -> tuple[int, dict[str, object] | None]:
        gateway = self.state
        if gateway.token and self.headers.get("Authorization") != f"Bearer {gateway.token}":
            return 401, {"detail": "missing or wrong token"}
        if route is None or route["sim"] != gateway.sim_id:
            return 404, {"detail": "sim not found"}
        attempt = self.headers.get("X-Cascade-Attempt")
        if attempt is not None:
            gateway.attempts.add(attempt)
        match route["call"]:
            case "heartbeat":
                return self._heartbeat(json.loads(body))
            case "logs":
                return self._logs(json.loads(body), attempt)
            case "files":
                return self._file(route["name"], body)
            case _:
                gateway.step_timeline = json.loads(body)
                gateway.order.append("step-timeline")
                return 204, None

    def _heartbeat(self, beat: dict[str, object]) -> tuple[int, dict[str, object] | None]:
        gateway = self.state
        gateway.heartbeats.append(beat)
        gateway.heartbeat_times.append(time.monotonic())
        gateway.order.append(f"heartbeat {beat['state']}")
        if gateway.cancel:
            gateway.state = "cancelled"
        elif gateway.state not in ("succeeded", "failed", "cancelled"):
            gateway.state = str(beat["state"])
        return 200, {"state": gateway.state, "cancel": gateway.cancel}

    def _logs(self, chunk: dict[str, object], attempt: str | None) -> tuple[int, dict[str, object] | None]:
        gateway = self.state
        if gateway.log_owner is None:
            gateway.log_owner = attempt
        elif attempt != gateway.log_owner:
            return 409, {"detail": "another start of this sim sends its log"}
        seq, lines = chunk["seq"], chunk["lines"]
        if not isinstance(seq, int) or not isinstance(lines, list):
            return 422, {"detail": "seq and lines are needed"}
        if seq not in gateway.chunks:
            gateway.chunks[seq] = lines
            gateway.chunk_times.append(time.monotonic())
            gateway.order.append(f"chunk {seq}")
        return 204, None

    def _file(self, name: str | None, body: bytes) -> tuple[int, dict[str, object] | None]:
        gateway = self.state
        if name is None or _NAME.fullmatch(name) is None:
            return 422, {"detail": f"file name {name!r} is refused"}
        if len(body) > 64 * 2**20:
            return 413, {"detail": "file is over the 64 MiB per-file limit"}
        gateway.files[name] = body
        gateway.order.append(f"file {name}")
        return 200, {
            "name": name,
            "size": len(body),
            "content_type": "text/plain",
            "created_at": "2026-11-08T08:59:06Z",
        }
