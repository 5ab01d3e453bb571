"""Retries: what is repeated, what is not, and that a repeat never doubles or loses a line."""

import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from subprocess import Popen

import pytest
from cascade_worker.chunking import LogChunk
from cascade_worker.errors import (
    FencedOffError,
    GatewayRefusedError,
    GatewayUnavailableError,
    SettingsError,
)
from cascade_worker.gateway import Gateway, Identity, Outcome, RetryPolicy, open_client
from cascade_worker.settings import load_settings
from cascade_worker.testing import PATIENCE_S, FakeGateway, Fault

StartWorker = Callable[..., "Popen[str]"]

FAST = RetryPolicy(first_pause_s=0.01, longest_pause_s=0.05, give_up_after_s=PATIENCE_S)


@pytest.fixture
async def client(gateway: FakeGateway) -> AsyncIterator[Gateway]:
    identity = Identity(sim_id=gateway.sim_id, attempt="a1", nonce="n1")
    async with open_client(base_url=gateway.url, token=gateway.token, identity=identity) as http:
        yield Gateway(http, identity=identity, engine="accel-sim", retry=FAST, upload_retry=FAST)


@pytest.mark.parametrize("how", [500, 503, "drop-before", "drop-after"])
async def test_a_chunk_is_repeated_until_it_is_stored_once(
    gateway: FakeGateway, client: Gateway, how: int | str
) -> None:
    gateway.faults.append(Fault("logs", how, 3))  # type: ignore[arg-type]
    await client.send_chunk(LogChunk(0, ("one", "two")))
    await client.send_chunk(LogChunk(1, ("three",)))
    assert gateway.log == ["one", "two", "three"]
    assert gateway.calls_failed == 3
    assert gateway.attempts == {"a1.n1"}


async def test_a_4xx_is_not_repeated(gateway: FakeGateway, client: Gateway) -> None:
    gateway.fail("logs", 422)
    with pytest.raises(GatewayRefusedError, match="log chunk 0 was refused with 422: told to fail"):
        await client.send_chunk(LogChunk(0, ("one",)))
    assert gateway.calls_failed == 1
    assert gateway.chunks == {}


async def test_a_409_says_that_another_start_has_taken_over(gateway: FakeGateway, client: Gateway) -> None:
    gateway.log_owner = "somebody.else"
    with pytest.raises(FencedOffError):
        await client.send_chunk(LogChunk(0, ("one",)))


async def test_a_redirect_is_refused_and_not_followed(gateway: FakeGateway, client: Gateway) -> None:
    gateway.fail("heartbeat", 301)
    with pytest.raises(GatewayRefusedError, match="301"):
        await client.beat()


async def test_half_of_a_surrogate_pair_does_not_keep_a_body_from_travelling(
    gateway: FakeGateway, client: Gateway
) -> None:
    await client.send_step_timing(simulated={"name": "bad\ud800 é"}, compare=None)
    assert gateway.step_timeline == {"simulated": {"name": "bad? é"}, "compare": None}
    await client.finish(Outcome(state="failed", exit_code=1, error=os.fsdecode(b"no such file: \xff")))
    assert gateway.final is not None
    assert gateway.final["error"] == "no such file: ?"


async def test_a_token_beyond_ascii_is_sent_as_utf_8(gateway: FakeGateway) -> None:
    identity = Identity(sim_id=gateway.sim_id)
    async with open_client(base_url=gateway.url, token="schlüssel", identity=identity) as http:
        assert dict(http.headers.raw)[b"Authorization"] == "Bearer schlüssel".encode()


@pytest.mark.parametrize(
    ("given", "kept"), [("a-token\n", "a-token"), (" a ", "a"), ("schlüssel", "schlüssel")]
)
def test_what_surrounds_the_token_is_left_out(given: str, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, token=given)
    assert load_settings().token.get_secret_value() == kept


def test_a_token_that_no_header_can_carry_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_environment(monkeypatch, token="hunter\n2")
    with pytest.raises(SettingsError, match="CASCADE_TOKEN holds a line break") as refused:
        load_settings()
    assert "hunter" not in str(refused.value)


def set_environment(monkeypatch: pytest.MonkeyPatch, *, token: str) -> None:
    values = {"SIM_ID": "sim-1", "MAIN_URL": "http://x", "GPU_CONFIG": "A", "TRACE_DIR": "/x", "TOKEN": token}
    for name, value in values.items():
        monkeypatch.setenv(f"CASCADE_{name}", value)


async def test_giving_up_says_what_the_last_attempt_met(gateway: FakeGateway) -> None:
    gateway.fail("logs", 503, times=10_000)
    identity = Identity(sim_id=gateway.sim_id)
    short = RetryPolicy(first_pause_s=0.01, longest_pause_s=0.02, give_up_after_s=0.2)
    async with open_client(base_url=gateway.url, token=gateway.token, identity=identity) as http:
        client = Gateway(http, identity=identity, engine="accel-sim", retry=short, upload_retry=short)
        started = time.monotonic()
        with pytest.raises(GatewayUnavailableError, match="log chunk 4 failed: 503 told to fail"):
            await client.send_chunk(LogChunk(4, ("one",)))
    # Not how often it tried: one call of a machine that stands still takes all the time there is.
    assert time.monotonic() - started >= 0.2


async def test_a_gateway_that_is_away_is_waited_for(gateway: FakeGateway) -> None:
    identity = Identity(sim_id=gateway.sim_id)
    short = RetryPolicy(first_pause_s=0.01, longest_pause_s=0.02, give_up_after_s=0.1)
    async with open_client(base_url="http://127.0.0.1:1", token="", identity=identity) as http:
        client = Gateway(http, identity=identity, engine="accel-sim", retry=short, upload_retry=short)
        with pytest.raises(GatewayUnavailableError, match="ConnectError"):
            await client.announce()


async def test_the_final_heartbeat_is_repeated(gateway: FakeGateway, client: Gateway) -> None:
    gateway.fail("heartbeat", "drop-after", times=2)
    ack = await client.finish(Outcome(state="failed", exit_code=3, error="why"))
    assert ack.state == "failed"
    assert gateway.final == {"state": "failed", "exit_code": 3, "error": "why", "engine": "accel-sim"}


async def test_lines_with_nul_and_separators_arrive_as_they_are(
    gateway: FakeGateway, client: Gateway
) -> None:
    lines = ("\0", "a\u2028b", "\r", "\ufffd", "\U0001f600", "")
    await client.send_chunk(LogChunk(0, lines))
    assert gateway.log == list(lines)


def test_a_nonce_is_new_in_every_process() -> None:
    assert Identity(sim_id="sim").nonce != Identity(sim_id="sim").nonce


def test_heartbeats_go_on_while_a_chunk_waits_on_retries(
    gateway: FakeGateway, start_worker: StartWorker, recorded: Callable[[str], Path]
) -> None:
    gateway.fail("logs", 503, times=10_000)
    log = recorded("rtx3070-babelstream")
    worker = start_worker("--replay", str(log), "--delay", "0", CASCADE_HEARTBEAT_INTERVAL_S="0.1")
    gateway.wait_for(lambda state: state.calls_failed >= 1)
    beats = len(gateway.heartbeats)
    gateway.wait_for(lambda state: len(state.heartbeats) >= beats + 3)
    assert gateway.chunks == {}
    gateway.work_again()
    assert worker.wait(60) == 0
    assert len(gateway.log) == 10248


def test_heartbeats_keep_their_pace_and_survive_failures(
    gateway: FakeGateway, start_worker: StartWorker, play: Callable[..., None]
) -> None:
    play("rtx3070-babelstream", hang_after_lines=10)
    gateway.wait_for(lambda state: not state.heartbeats)
    start_worker(CASCADE_HEARTBEAT_INTERVAL_S="0.2")
    gateway.wait_for(lambda state: len(state.heartbeats) >= 2)
    gateway.fail("heartbeat", 503, times=2)
    gateway.wait_for(lambda state: state.calls_failed == 2 and len(state.heartbeats) >= 6)
    times = list(gateway.heartbeat_times)
    # Each call takes its own turn, a failed one too: nothing is sent at once to make up for it.
    assert len(times) + gateway.calls_failed <= (times[-1] - times[0]) / 0.2 + 2


def test_a_log_with_every_kind_of_failure_arrives_whole(
    gateway: FakeGateway, start_worker: StartWorker, recorded: Callable[[str], Path]
) -> None:
    for how in (503, "drop-before", "drop-after", 500):
        gateway.faults.append(Fault("logs", how, 1))
        gateway.faults.append(Fault("heartbeat", how, 1))
    worker = start_worker("--replay", str(recorded("rtx3070-babelstream")), "--delay", "0")
    assert worker.wait(90) == 0
    assert len(gateway.log) == 10248
    assert gateway.final is not None
    assert gateway.final["state"] == "succeeded"
