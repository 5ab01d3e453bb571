"""The HTTP cases: chunks beyond a message's size, repeated and late chunks, a second start, a slow upload."""

import json
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from cascade_api.testing.client import Client, eventually, near
from cascade_core import subjects
from cascade_core.logs.facts import LogAppended

CASES = Path(__file__).parent / "cases"
BEATS_APART_S = 0.02
"""So often that a hundredth of the heartbeats is several: a machine that stalls once or twice is no slow gateway."""
pytestmark = pytest.mark.usefixtures("parser")


def case(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((CASES / name / "case.json").read_text())
    return read


def check_kernels(client: Client, run_id: str, wanted: list[dict[str, Any]]) -> None:
    kernels = client.body(f"/api/runs/{run_id}/kernels")
    assert len(kernels) == len(wanted)
    for kernel, each in zip(kernels, wanted, strict=True):
        assert {key: kernel[key] for key in each} == near(each)


def allowed(request: dict[str, Any]) -> list[int]:
    return [request["status"]] if "status" in request else list(request["status_in"])


def send(client: Client, request: dict[str, Any], sim_id: str, body: Any) -> httpx.Response:
    reply = client.request(request["method"], request["path"].format(sim_id=sim_id), json=body)
    assert reply.status_code in allowed(request), reply.text
    if "reply" in request:
        assert reply.json() == request["reply"]
    return reply


def test_chunks_beyond_a_messages_size_are_kept_whole(client: Client) -> None:
    name = "logs-chunk-over-one-mebibyte"
    expect = case(name)["expect"]
    block = (CASES / name / "block.txt").read_text().removesuffix("\n").split("\n")
    run_id, sim_id = client.new_sim()
    sent: list[list[str]] = []
    with client.stream("GET", f"/api/runs/{run_id}/events", timeout=60) as stream:
        frames = stream.iter_lines()
        next(frames)
        for request in case(name)["input"]["requests"]:
            body = request.get("json")
            if body is None:
                recipe = request["generate"]
                lines = [recipe["filler_char"] * recipe["filler_len"]] * recipe["filler_lines"]
                if "append_lines_of" in recipe:
                    lines += block
                body = {"seq": recipe["seq"], "lines": lines}
            send(client, request, sim_id, body)
            sent.append(body["lines"])
        logs: list[list[str]] = []
        for frame in frames:
            if frame.startswith("data: "):
                event = json.loads(frame.removeprefix("data: "))
                if event["type"] == "log":
                    logs.append(event["lines"])
                if len(logs) == len(sent):
                    break
    assert logs == sent
    eventually(lambda: client.sim(run_id, sim_id)["kernels_done"] == expect["kernels_done"])
    check_kernels(client, run_id, expect["kernels"])
    text = client.get(f"/api/sims/{sim_id}/log").text
    assert text == "".join(f"{line}\n" for lines in sent for line in lines)
    assert len(text) >= expect["log_length_chars_at_least"]
    assert text.endswith("\nend of log\n")
    detail = client.get(f"/api/runs/{run_id}").content
    assert len(detail) < 1_000_000
    assert json.loads(detail)["sims"][0]["log_tail"][-1] == "end of log"
    nats = client.api.gateway.log._client
    assert nats.stats["reconnects"] == 0


def test_repeated_and_late_chunks_change_nothing(client: Client) -> None:
    name = "logs-repeated-and-late-chunks"
    expect = case(name)["expect"]
    requests = json.loads((CASES / name / "requests.json").read_text())
    run_id, sim_id = client.new_sim()
    finished = None
    for request in requests:
        send(client, request, sim_id, request["json"])
        if request["json"].get("state") == "succeeded":
            finished = client.sim(run_id, sim_id)["finished_at"]
            assert finished is not None
    sim = client.sim(run_id, sim_id)
    assert sim["finished_at"] == finished
    latest = expect["sim"].pop("latest")
    assert {key: sim[key] for key in expect["sim"]} == expect["sim"]
    assert {key: sim["latest"][key] for key in latest} == near(latest)
    check_kernels(client, run_id, expect["kernels"])
    text = client.get(f"/api/sims/{sim_id}/log").text.removesuffix(expect["log_may_end_with"])
    assert text == (CASES / name / "sim.log").read_text()


def test_a_second_start_without_a_name_never_mixes_two_logs(client: Client) -> None:
    name = "logs-second-attempt-of-one-sim"
    expect = case(name)["expect"]
    whole, failed = expect["any_of"]
    run_id, sim_id = client.new_sim()
    for request in json.loads((CASES / name / "requests.json").read_text()):
        if "method" in request:
            reply = client.request(
                request["method"], request["path"].format(sim_id=sim_id), json=request["json"]
            )
            assert reply.status_code in allowed(request)
    sim = client.sim(run_id, sim_id)
    if sim["state"] == "succeeded":
        check_kernels(client, run_id, whole["kernels"])
        assert client.get(f"/api/sims/{sim_id}/log").text == (CASES / name / "sim.log").read_text()
        return
    assert sim["state"] in failed["sim_state_in"]
    assert sim["kernels_done"] <= failed["kernels_done_at_most"]
    assert sim["error"]
    kernels = client.body(f"/api/runs/{run_id}/kernels")
    assert len({kernel["kernel_launch_uid"] for kernel in kernels}) == len(kernels)
    assert len({kernel["kernel_index"] for kernel in kernels}) == len(kernels)


def generated(size: int, *, over_s: float = 0.0, cut_after: int | None = None) -> Iterator[bytes]:
    """`size` bytes in pieces, spread over some seconds; the client breaks off after `cut_after`."""
    piece = 1 << 16
    started, sent = time.monotonic(), 0
    while sent < size:
        if cut_after is not None and sent >= cut_after:
            raise ConnectionAbortedError
        now = min(piece, size - sent, cut_after or piece)
        yield bytes(now)
        sent += now
        behind = started + over_s * sent / size - time.monotonic()
        if behind > 0:
            time.sleep(behind)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_slow_upload_leaves_heartbeats_alone(client: Client) -> None:
    name = "files-slow-upload-beside-heartbeats"
    expect, requests = case(name)["expect"], case(name)["input"]["requests"]
    _, sim_id = client.new_sim()
    stop = threading.Event()
    beats_ms: list[float] = []
    states: set[str] = set()

    def beat() -> None:
        with Client(client.api) as own:
            while not stop.is_set():
                started = time.monotonic()
                states.add(own.beat(sim_id)["state"])
                beats_ms.append((time.monotonic() - started) * 1000)
                stop.wait(BEATS_APART_S)

    process = psutil.Process()
    memory = process.memory_info().rss
    thread = threading.Thread(target=beat)
    thread.start()
    try:
        for request in requests[1:]:
            recipe = request["generate_body"]
            body = generated(
                recipe["bytes"], over_s=recipe.get("over_s", 0.0), cut_after=recipe.get("cut_after")
            )
            url = request["path"].format(sim_id=sim_id)
            if "cut_after" in recipe:
                with pytest.raises(ConnectionAbortedError):
                    client.put(url, content=body, headers={"Content-Length": str(recipe["bytes"])})
                continue
            reply = client.put(url, content=body)
            assert reply.status_code in allowed(request), (request, reply.text)
            if "reply" in request:
                assert {key: reply.json()[key] for key in request["reply"]} == request["reply"]
            if request.get("status") == 413:
                assert reply.json() == {"detail": "file is over the 64 MiB per-file limit"}
    finally:
        stop.set()
        thread.join()
    grown_mb = (process.memory_info().rss - memory) / 1e6
    assert grown_mb <= expect["server_memory_growth_mb_at_most"]
    assert not states & set(expect["sim_never_in"])
    assert statistics.quantiles(beats_ms, n=100)[98] <= expect["heartbeat_p99_ms_at_most"]
    assert (
        max(beats_ms) < 1000 * requests[1]["generate_body"]["over_s"] / 2
    )  # none waited for the upload's end
    listed = client.body(f"/api/sims/{sim_id}/files")
    assert [{key: file[key] for key in ("name", "size")} for file in listed] == expect["files"]
    assert len(client.get(f"/api/sims/{sim_id}/files/perf_counter.csv.gz").content) == 67108864


def test_a_chunk_is_in_the_event_log_before_it_is_acknowledged(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    for seq in range(20):
        client.send_log(sim_id, seq, [f"line {seq}"])
        stored = client.api.call(client.api.gateway.log.last(subjects.log_of(run_id, sim_id)))
        assert stored is not None
        assert isinstance(stored.fact, LogAppended)
        assert stored.fact.seq == seq
