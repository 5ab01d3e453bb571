"""The event stream cases: line ends inside lines, and a subscriber that stops reading."""

import json
import socket
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from cascade_api.testing.client import Client, eventually, near
from cascade_api.testing.running import RunningApi
from cascade_api.testing.servers import TOKEN, Servers

CASES = Path(__file__).parent / "cases"


@pytest.mark.usefixtures("parser")
def test_odd_line_ends_stay_inside_their_line(client: Client) -> None:
    folder = CASES / "sse-odd-line-separators"
    expect = json.loads((folder / "case.json").read_text())["expect"]
    chunk = json.loads((folder / "chunk.json").read_text())
    run_id, sim_id = client.new_sim()
    received = b""
    with client.stream("GET", f"/api/runs/{run_id}/events") as reply:
        assert reply.headers["cache-control"] == expect["headers"]["cache-control"]
        assert reply.headers["x-accel-buffering"] == expect["headers"]["x-accel-buffering"]
        assert reply.headers["content-type"].startswith("text/event-stream")
        pieces = reply.iter_raw()
        received += next(pieces)
        client.send_log(sim_id, chunk["seq"], chunk["lines"])
        client.send_log(sim_id, chunk["seq"] + 1, ["the next chunk closes nothing"])
        while received.count(b'"type":"log"') < 2 or b'"kernel"' not in received:
            received += next(pieces)
            if b'"type":"log"' in received and not received.count(b'"type":"kernel"'):
                client.beat(sim_id, "succeeded")
    assert received.isascii()
    data_lines = [line for line in received.split(b"\n") if line.startswith(b"data: ")]
    assert not any(byte < 0x20 or byte == 0x7F for line in data_lines for byte in line)
    by_standard = [json.loads(line[6:]) for line in received.split(b"\n") if line.startswith(b"data: ")]
    by_python = [
        json.loads(line[6:])
        for line in received.decode().splitlines()  # what the documented client does
        if line.startswith("data: ")
    ]
    assert by_standard == by_python
    logs = [event for event in by_standard if event["type"] == "log"]
    assert logs[0]["lines"] == chunk["lines"]
    eventually(lambda: len(client.body(f"/api/runs/{run_id}/kernels")) == len(expect["kernels"]))
    kernels = client.body(f"/api/runs/{run_id}/kernels")
    assert {key: kernels[0][key] for key in expect["kernels"][0]} == near(expect["kernels"][0])
    text = client.get(f"/api/sims/{sim_id}/log").content.decode()
    assert text.split("\n")[: len(chunk["lines"])] == chunk["lines"]
    assert text.count("\n") == len(chunk["lines"]) + 1


def snapshot_then_nothing(api: RunningApi, run_id: str) -> socket.socket:
    """A subscriber that reads the snapshot and then stops reading."""
    host, port = api.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(
        f"GET /api/runs/{run_id}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Connection: close\r\n\r\n".encode()
    )
    seen = b""
    while b'"type":"snapshot"' not in seen:
        seen += connection.recv(1 << 16)
    return connection


def read_to_the_end(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(1 << 20):
        received += piece
    return received


def log_numbers(wire: bytes) -> list[int]:
    """The `n` of every whole log event, in order."""
    numbers = []
    for part in wire.split(b"data: ")[1:]:
        if b'"type":"log"' in part and b"\n\n" in part:
            start = part.index(b'"lines":["') + len(b'"lines":["')
            numbers.append(int(part[start : part.index(b" ", start)]))
    return numbers


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_slow_subscriber_is_closed_and_harms_nobody(own_servers: Servers) -> None:
    expect = json.loads((CASES / "sse-slow-subscriber-is-closed" / "case.json").read_text())["expect"]
    chunks = expect["B"]["log_events"]
    with RunningApi(own_servers.settings()) as api, Client(api) as client:
        run_id, sim_id = client.new_sim()
        client.send_log(sim_id, 0, ["warm"])
        run_id, sim_id = client.new_sim()
        memory = psutil.Process().memory_info().rss
        stalled = snapshot_then_nothing(api, run_id)
        reading: dict[str, Any] = {}

        def read_all() -> None:
            received = bytearray()
            with Client(api) as own, own.stream("GET", f"/api/runs/{run_id}/events", timeout=60) as reply:
                reading["ready"] = True
                for piece in reply.iter_raw():
                    received += piece
                    if f'"lines":["{chunks - 1} '.encode() in received[-20_000:]:
                        break
            reading["wire"] = bytes(received)

        reader = threading.Thread(target=read_all)
        reader.start()
        eventually(lambda: reading.get("ready"))
        took_ms = post_all(client, sim_id, chunks)
        reader.join(60)
        assert log_numbers(reading["wire"]) == list(range(chunks))
        assert statistics.quantiles(took_ms, n=100)[98] <= expect["post_p99_ms_at_most"]
        grown_mb = (psutil.Process().memory_info().rss - memory) / 1e6
        assert grown_mb <= expect["server_memory_growth_mb_at_most"] + len(reading["wire"]) * 4 / 1e6

        eventually(lambda: api.gateway.hub.subscriber_count == 0)
        started = time.monotonic()
        received = log_numbers(read_to_the_end(stalled))
        stalled.close()
        assert time.monotonic() - started <= expect["A"]["within_s_after_overflow"]
        assert received == list(range(len(received)))
        assert len(received) < chunks
        with client.stream("GET", f"/api/runs/{run_id}/events") as again:
            assert next(again.iter_lines()).startswith('data: {"type":"snapshot"')


def post_all(client: Client, sim_id: str, chunks: int) -> list[float]:
    took_ms = []
    for seq in range(chunks):
        lines = [f"{seq} {line} ".ljust(200, "x") for line in range(20)]
        started = time.monotonic()
        reply: httpx.Response = client.post(f"/api/sims/{sim_id}/logs", json={"seq": seq, "lines": lines})
        took_ms.append((time.monotonic() - started) * 1000)
        assert reply.status_code == 204
    return took_ms
