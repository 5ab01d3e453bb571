"""The event stream: a snapshot, then every change once and in order, on a real connection."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from cascade_api.gateway import Gateway
from cascade_api.live import feed, hub
from cascade_api.testing.client import PATIENCE_S, Client, eventually
from cascade_api.testing.running import STOPPED_WITHIN_S, RunningApi
from cascade_api.testing.servers import Servers
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.sims.facts import SimMetrics, SimProgressed, SimWentSilent

AT = datetime(2026, 11, 8, 8, 59, 2, 587743, tzinfo=UTC)
Event = dict[str, Any]


def frames(reply: httpx.Response) -> Iterator[bytes]:
    """The stream cut at blank lines, as the standard says; comments included."""
    rest = b""
    for piece in reply.iter_raw():
        rest += piece
        while (end := rest.find(b"\n\n")) >= 0:
            yield rest[:end]
            rest = rest[end + 2 :]
    assert rest == b"", "the stream ended inside an event"


def events(reply: httpx.Response) -> Iterator[Event]:
    """The events of an open stream."""
    for frame in frames(reply):
        if not frame.startswith(b":"):
            assert frame.startswith(b"data: "), frame[:80]
            assert frame.isascii()
            yield json.loads(frame[len(b"data: ") :])


@contextmanager
def opened(client: Client, run_id: str) -> Iterator[Iterator[Event]]:
    """An open stream whose snapshot is the first event."""
    with client.stream("GET", f"/api/runs/{run_id}/events", timeout=PATIENCE_S) as reply:
        assert reply.status_code == 200
        yield events(reply)


def take(stream: Iterator[Event], count: int) -> list[Event]:
    return [next(stream) for _ in range(count)]


def kernel(run_id: str, sim_id: str, index: int) -> KernelFinished:
    return KernelFinished(
        run_id=run_id,
        sim_id=sim_id,
        occurred_at=AT,
        index=index,
        kernel_name="_Z1k",
        gpu_sim_cycle=1132,
        stats={"a": 1.0, "b": "-nan"},
    )


def progress(run_id: str, sim_id: str, seq: int, done: int) -> SimProgressed:
    return SimProgressed(
        run_id=run_id,
        sim_id=sim_id,
        occurred_at=AT,
        through_seq=seq,
        kernels_done=done,
        latest=SimMetrics(gpu_tot_sim_cycle=float(done)),
    )


def test_the_headers_let_proxies_pass_events_through(client: Client) -> None:
    run_id, _ = client.new_sim()
    with client.stream("GET", f"/api/runs/{run_id}/events") as reply:
        assert reply.headers["content-type"].split(";")[0] == "text/event-stream"
        assert reply.headers["cache-control"] == "no-cache"
        assert reply.headers["x-accel-buffering"] == "no"


def test_the_first_event_is_the_run_as_it_is(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    client.store(kernel(run_id, sim_id, 0), progress(run_id, sim_id, 0, 1))
    with opened(client, run_id) as stream:
        snapshot = next(stream)
    assert snapshot == {
        "type": "snapshot",
        "run": client.body(f"/api/runs/{run_id}"),
        "kernels": client.body(f"/api/runs/{run_id}/kernels"),
    }
    assert [stat["stats"] for stat in snapshot["kernels"]] == [{}]


def test_a_missing_run_has_no_stream(client: Client) -> None:
    reply = client.get("/api/runs/run-000000000000/events")
    assert (reply.status_code, reply.json()) == (404, {"detail": "run run-000000000000 not found"})


def test_a_chunk_comes_first_then_its_kernels_then_the_sim(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    with opened(client, run_id) as stream:
        next(stream)
        client.beat(sim_id)
        client.send_log(sim_id, 0, ["one", "two"])
        client.store(kernel(run_id, sim_id, 0), kernel(run_id, sim_id, 1), progress(run_id, sim_id, 0, 2))
        beat, log, first, second, sim = take(stream, 5)
    assert (beat["type"], beat["sim"]["state"]) == ("sim", "running")
    assert log == {"type": "log", "sim_id": sim_id, "lines": ["one", "two"]}
    assert [each["stat"]["kernel_index"] for each in (first, second)] == [0, 1]
    assert first == {
        "type": "kernel",
        "stat": {
            "sim_id": sim_id,
            "kernel_index": 0,
            "kernel_name": "_Z1k",
            "kernel_launch_uid": None,
            "gpu_sim_cycle": 1132,
            "gpu_sim_insn": None,
            "gpu_ipc": None,
            "sim_time_ns": 1000.0,
            "stats": {"a": 1.0, "b": "-nan"},
        },
    }
    assert (sim["type"], sim["sim"]["kernels_done"]) == ("sim", 2)
    assert sim["sim"] == client.sim(run_id, sim_id)


def test_what_changes_nothing_makes_no_event(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    client.beat(sim_id)
    client.send_log(sim_id, 0, ["before"])
    client.store(kernel(run_id, sim_id, 0))
    with opened(client, run_id) as stream:
        next(stream)
        client.send_log(sim_id, 0, ["before"])
        client.send_log(sim_id, 1, ["new"])
        client.send_log(sim_id, 1, ["again"])
        client.store(kernel(run_id, sim_id, 0))
        client.store(SimWentSilent(run_id=run_id, sim_id=sim_id, occurred_at=AT, heartbeat_seen_at=AT))
        client.send_log(sim_id, 0, ["another first chunk"])
        client.post(f"/api/runs/{run_id}/cancel")
        seen = take(stream, 2)
    assert seen[0] == {"type": "log", "sim_id": sim_id, "lines": ["new"]}
    assert (seen[1]["type"], seen[1]["sim"]["state"]) == ("sim", "cancelled")


def test_what_no_viewer_sees_makes_no_event(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    with opened(client, run_id) as stream:
        next(stream)
        client.store(progress(run_id, sim_id, 0, 2))
        client.store(progress(run_id, sim_id, 1, 2))  # read on, and nothing found
        client.send_log(sim_id, 0, ["one"])
        client.store(progress(run_id, sim_id, 2, 2))  # the tail is new to viewers
        seen = take(stream, 3)
    assert [event["type"] for event in seen] == ["sim", "log", "sim"]
    assert seen[2]["sim"]["log_tail"] == ["one"]


def test_events_of_other_runs_stay_away(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    _, other = client.new_sim()
    with opened(client, run_id) as stream:
        next(stream)
        client.send_log(other, 0, ["other"])
        client.send_log(sim_id, 0, ["mine"])
        assert next(stream)["lines"] == ["mine"]


def test_a_silent_stream_is_kept_alive(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "KEEPALIVE_S", 0.1)
    run_id, _ = client.new_sim()
    with client.stream("GET", f"/api/runs/{run_id}/events") as reply:
        received = frames(reply)
        next(received)
        assert [next(received), next(received)] == [b": keepalive", b": keepalive"]


def test_the_stream_stays_open_after_the_run_has_finished(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    with opened(client, run_id) as stream:
        next(stream)
        client.post(f"/api/runs/{run_id}/cancel")
        assert next(stream)["sim"]["state"] == "cancelled"
        client.send_log(sim_id, 0, ["a last line"])
        assert next(stream)["lines"] == ["a last line"]


def test_a_snapshot_never_overlaps_what_follows(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    stop = threading.Event()
    sent = 0

    def simulator() -> None:
        nonlocal sent
        with Client(client.api) as own:
            own.beat(sim_id)
            while not stop.is_set():
                own.send_log(sim_id, sent, [f"line {sent}"])
                own.store(kernel(run_id, sim_id, sent), progress(run_id, sim_id, sent, sent + 1))
                sent += 1

    thread = threading.Thread(target=simulator)
    thread.start()
    try:
        for _ in range(25):
            with opened(client, run_id) as stream:
                snapshot = next(stream)
                seen = take(stream, 12)
            kernels = [stat["kernel_index"] for stat in snapshot["kernels"]]
            kernels += [event["stat"]["kernel_index"] for event in seen if event["type"] == "kernel"]
            assert kernels == list(range(len(kernels)))
            logs = [event["lines"][0] for event in seen if event["type"] == "log"]
            known = snapshot["run"]["sims"][0]["log_tail"]
            first = int(known[-1].split()[1]) + 1 if known else 0
            assert logs == [f"line {number}" for number in range(first, first + len(logs))]
    finally:
        stop.set()
        thread.join()


def test_a_feed_ends_with_its_last_subscriber(own_servers: Servers) -> None:
    with RunningApi(own_servers.settings()) as api, Client(api) as client:
        run_id, _ = client.new_sim()
        with opened(client, run_id) as one, opened(client, run_id) as two:
            next(one), next(two)
            assert (api.gateway.hub.subscriber_count, api.gateway.hub.feed_count) == (2, 1)
        eventually(lambda: api.gateway.hub.subscriber_count == 0)
        eventually(lambda: api.gateway.hub.feed_count == 0)


def test_who_joins_while_the_last_subscriber_leaves_gets_what_follows(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    gateway = client.api.gateway

    async def joined() -> list[Event]:
        leaver = gateway.hub.stream(run_id)
        await anext(leaver)
        leaving = asyncio.create_task(leaver.aclose())
        await asyncio.sleep(0)  # its feed has begun to end
        return await seen_by_a_joiner(gateway, leaving, run_id, sim_id)

    assert [event["type"] for event in client.api.call(joined())] == ["snapshot", "log"]


def test_who_joins_while_a_feed_ends_that_cut_off_everyone_gets_what_follows(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, sim_id = client.new_sim()
    gateway = client.api.gateway
    ending, may_end = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def follow(*filters: Any, **options: Any) -> AsyncIterator[Any]:
        async with JetStreamLog.follow(gateway.log, *filters, **options) as batches:
            yield batches
        ending.set()
        await may_end.wait()

    async def joined() -> list[Event]:
        with monkeypatch.context() as patched:
            patched.setattr(gateway.hub, "_log", Following(follow))
            cut_off = gateway.hub.stream(run_id)
            await anext(cut_off)
            patched.setattr(feed, "MOST_UNSENT_EVENTS", 0)
            await gateway.append(chunk(run_id, sim_id, 0))
            await ending.wait()
        leaving = asyncio.create_task(cut_off.aclose())
        asyncio.get_running_loop().call_soon(may_end.set)
        return await seen_by_a_joiner(gateway, leaving, run_id, sim_id)

    assert [event["type"] for event in client.api.call(joined())] == ["snapshot", "log"]


class Following:
    """A log that is followed in a test's own way."""

    def __init__(self, follow: Any) -> None:
        self.follow = follow


async def seen_by_a_joiner(
    gateway: Gateway, leaving: "asyncio.Task[None]", run_id: str, sim_id: str
) -> list[Event]:
    """What a stream brings that begins now: its snapshot, and the event of a chunk sent once `leaving` is done."""
    async with aclosing(gateway.hub.stream(run_id)) as joiner:
        frames = [await anext(joiner)]
        await leaving
        await gateway.append(chunk(run_id, sim_id, 1))
        frames += [frame async for frame in limited(joiner)]
    return [json.loads(frame.removeprefix(b"data: ")) for frame in frames]


async def limited(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The next event, if there is one before the end; none of the comments in front of it."""
    async for frame in stream:
        if not frame.startswith(b":"):
            yield frame
            return


def chunk(run_id: str, sim_id: str, seq: int) -> LogAppended:
    return LogAppended(run_id=run_id, sim_id=sim_id, occurred_at=AT, seq=seq, lines=[f"line {seq}"])


def test_streams_end_at_once_when_the_gateway_stops(own_servers: Servers) -> None:
    with RunningApi(own_servers.settings()) as api, Client(api) as client:
        run_id, _ = client.new_sim()
        with opened(client, run_id) as stream:
            next(stream)
            stopping = threading.Thread(target=api.stop)
            stopping.start()
            assert list(stream) == []
        stopping.join(STOPPED_WITHIN_S)
        assert not stopping.is_alive()


def test_a_subscriber_that_stopped_reading_does_not_hold_up_a_stop(own_servers: Servers) -> None:
    with RunningApi(own_servers.settings()) as api, Client(api) as client:
        run_id, sim_id = client.new_sim()
        with client.stream("GET", f"/api/runs/{run_id}/events") as reply:
            next(reply.iter_raw())
            client.send_log(sim_id, 0, ["x" * 20_000_000])
            eventually(lambda: "x" in client.sim(run_id, sim_id)["log_tail"][0])
            api.stop()  # raises where it takes for long
            assert not api.alive
