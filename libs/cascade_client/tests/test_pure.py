"""Errors, retries, events, lines and progress: the parts without a connection."""

import importlib.util
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cascade_client import calls
from cascade_client.client import CascadeClient
from cascade_client.connection import InvalidToken, InvalidUrl, checked_url, headers_of
from cascade_client.errors import (
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    ServerError,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    error_of,
)
from cascade_client.failures import explains, signal_of
from cascade_client.lines import LineReader
from cascade_client.progress import RunProgress
from cascade_client.retry import RetryPolicy
from cascade_client.sse import SseReader
from cascade_client.wire.events import LogEvent, SimEvent, SnapshotEvent
from cascade_client.wire.runs import RunDetail, RunState, SimMetrics, SimState, SimSummary
from cascade_client.wire.traces import TraceState, TraceSummary
from hypothesis import given, settings
from hypothesis import strategies as st

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def a_sim(name: str, state: SimState) -> SimSummary:
    return SimSummary(
        id=name, run_id="run-1", gpu_config="SM80_A100", replica=0, state=state, error=None, launcher_ref=None,
        created_at=NOW, started_at=None, finished_at=None, last_heartbeat_at=None, exit_code=None, kernels_done=0,
        kernels_total=3, current_kernel=None, latest=SimMetrics(), log_tail=[],
    )  # fmt: skip


def a_snapshot(*sims: SimSummary) -> SnapshotEvent:
    trace = TraceSummary(
        id="demo", state=TraceState.READY, error=None, created_at=NOW, updated_at=NOW, model=None, layers=[],
        source_gpu=None, trace_gpu_arch="sm_80", suggested_sim_config=None, kernel_count=3, bytes=1,
        has_real_timing=False, has_step_timeline=False, sample=False,
    )  # fmt: skip
    run = RunDetail(
        id="run-1", trace_id="demo", created_at=NOW, state=RunState.ACTIVE, entries=[], sim_counts={}, sample=False,
        trace=trace, sims=list(sims),
    )  # fmt: skip
    return SnapshotEvent(run=run, kernels=[])


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Unauthorized),
        (404, NotFound),
        (409, Conflict),
        (413, TooLarge),
        (422, Invalid),
        (500, ServerError),
    ],
)
def test_a_status_has_its_own_error_with_the_apps_sentence(status: int, kind: type[ApiError]) -> None:
    error = error_of(status, b'{"detail": "trace demo is failed, not ready"}')
    assert type(error) is kind
    assert error.status == status
    assert error.detail == "trace demo is failed, not ready"


def test_a_body_that_failed_validation_lists_its_problems() -> None:
    body = (
        b'{"detail": [{"type": "x", "loc": ["body", "entries", 0, "count"], "msg": "too small", "input": 0}]}'
    )
    error = error_of(422, body)
    assert [str(problem) for problem in error.problems] == ["body.entries.0.count: too small"]
    assert error.detail == "body.entries.0.count: too small"


def test_a_page_of_a_proxy_is_still_an_error_with_a_detail() -> None:
    error = error_of(502, b"<html>Bad Gateway</html>")
    assert isinstance(error, ServerError)
    assert error.detail == "<html>Bad Gateway</html>"


def test_a_scenario_error_keeps_the_base_run() -> None:
    error = error_of(504, b'{"detail": "not in time", "run_id": "run-1", "sim_id": "sim-1"}')
    assert error.members == {"run_id": "run-1", "sim_id": "sim-1"}


def test_waits_grow_and_end() -> None:
    policy = RetryPolicy(attempts=3, first_wait_s=1, longest_wait_s=10)
    gone = Unreachable("gone")
    waits = [policy.wait_s(gone, failures=n, idempotent=True) for n in (1, 2, 3)]
    assert waits == [1.0, 2.0, None]


def test_a_call_that_may_have_been_done_is_never_repeated() -> None:
    assert RetryPolicy().wait_s(Unreachable("gone"), failures=1, idempotent=False) is None
    assert not calls.create_run("demo", [{"gpu_config": "SM80_A100", "count": 1}]).idempotent  # type: ignore[list-item]


def test_a_refusal_is_never_repeated() -> None:
    assert RetryPolicy().wait_s(error_of(409, b"{}"), failures=1, idempotent=True) is None


def test_the_apps_own_wait_is_kept_up_to_a_bound() -> None:
    busy = error_of(503, b'{"detail": "busy"}', retry_after="3")
    endless = error_of(503, b'{"detail": "busy"}', retry_after="1e9")
    assert isinstance(busy, Unavailable)
    assert RetryPolicy().wait_s(busy, failures=1, idempotent=True) == 3.0
    assert RetryPolicy().wait_s(endless, failures=1, idempotent=True) == 10.0


def test_hostile_ids_stay_inside_their_path() -> None:
    assert calls.get_trace("a b/../c*>é").path == "/api/traces/a%20b%2F..%2Fc%2A%3E%C3%A9"
    assert calls.get_trace("..").path == "/api/traces/%2E%2E"


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host", "http://", "http://host:port"])
def test_a_wrong_url_is_told_at_once(url: str) -> None:
    with pytest.raises(InvalidUrl, match="such as http"):
        checked_url(url)


def test_the_token_is_not_in_the_clients_words() -> None:
    with CascadeClient("http://127.0.0.1:1/", "a-secret") as client:
        assert "a-secret" not in repr(client) + str(vars(client))
        assert client.url == "http://127.0.0.1:1"


def test_an_answer_of_another_server_is_told() -> None:
    with pytest.raises(UnexpectedAnswer, match="same version"):
        calls.get_run("run-1").read(b"<html>")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=5).map(lambda text: text.replace("\n", " ")), max_size=6), st.data())
def test_lines_are_the_same_however_the_bytes_are_cut(lines: list[str], data: st.DataObject) -> None:
    body = "".join(f"{line}\n" for line in lines).encode()
    cut = data.draw(st.integers(0, len(body)))
    reader = LineReader()
    found = [*reader.feed(body[:cut]), *reader.feed(body[cut:]), *reader.close()]
    assert found == lines


def test_a_last_line_without_its_end_is_a_line() -> None:
    reader = LineReader()
    assert [*reader.feed(b"a\nb"), *reader.close()] == ["a", "b"]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_events_are_the_same_however_the_bytes_are_cut(data: st.DataObject) -> None:
    sent = [
        a_snapshot(a_sim("sim-1", SimState.PENDING)),
        LogEvent(sim_id="sim-1", lines=["a\u2028b", "data: x", ""]),
        SimEvent(sim=a_sim("sim-1", SimState.RUNNING)),
    ]
    body = b": keepalive\n\n" + b"".join(
        b"data: " + event.model_dump_json().encode() + b"\n\n" for event in sent
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    reader = SseReader()
    edges = [0, *cuts, len(body)]
    found = [event for i in range(len(edges) - 1) for event in reader.feed(body[edges[i] : edges[i + 1]])]
    assert found == sent


def test_an_event_of_a_kind_unknown_here_is_told() -> None:
    with pytest.raises(UnexpectedAnswer, match="cannot read"):
        list(SseReader().feed(b'data: {"type":"news"}\n\n'))


def test_a_run_is_finished_when_its_last_sim_is() -> None:
    progress = RunProgress()
    states = [progress.state]
    for event in (
        a_snapshot(a_sim("sim-1", SimState.RUNNING), a_sim("sim-2", SimState.FAILED)),
        SimEvent(sim=a_sim("sim-1", SimState.LOST)),
        SimEvent(sim=a_sim("sim-1", SimState.SUCCEEDED)),
    ):
        progress.take(event)
        states.append(progress.state)
    assert states == [RunState.ACTIVE, RunState.ACTIVE, RunState.ACTIVE, RunState.PARTIAL]
    assert progress.finished


def test_a_new_snapshot_replaces_what_was_known() -> None:
    progress = RunProgress()
    progress.take(a_snapshot(a_sim("sim-1", SimState.RUNNING)))
    progress.take(a_snapshot(a_sim("sim-1", SimState.CANCELLED)))
    assert progress.state is RunState.CANCELLED


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (134, "SIGABRT"),
        (137, "SIGKILL"),
        (139, "SIGSEGV"),
        (-6, "SIGABRT"),
        (1, None),
        (0, None),
        (None, None),
    ],
)
def test_an_exit_code_names_its_signal(code: int | None, name: str | None) -> None:
    assert signal_of(code) == name


def test_a_counter_is_no_cause() -> None:
    assert explains("GPGPU-Sim uArch: ERROR ** deadlock detected")
    assert explains("accel-sim.out: Assertion `x' failed")
    assert not explains("gpgpu_n_error = 0")
    assert not explains("-gpgpu_abort_on_error 1 # abort on the first error")


def test_the_sync_client_is_made_of_the_async_one() -> None:
    script = Path(__file__).parents[3] / "scripts" / "build_sync_client.py"
    spec = importlib.util.spec_from_file_location("build_sync_client", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TARGET.read_text() == module.sync_source(), "run scripts/build_sync_client.py"


@pytest.mark.parametrize("given", ["a-token", " a-token\n", "a-token\t"])
def test_what_surrounds_a_pasted_token_is_left_out(given: str) -> None:
    assert headers_of(given)["Authorization"] == "Bearer a-token"


def test_a_token_beyond_ascii_is_sent_as_utf_8() -> None:
    assert dict(headers_of("schlüssel").raw)[b"Authorization"] == "Bearer schlüssel".encode()


@pytest.mark.parametrize("given", ["a\nb", "a\x7fb", "a\udcffb"])
def test_a_token_that_no_header_can_carry_is_refused_without_showing_it(given: str) -> None:
    with pytest.raises(InvalidToken) as refused:
        headers_of(given)
    assert given not in str(refused.value)


@pytest.mark.parametrize("given", [None, "", " \n"])
def test_without_a_token_nothing_is_sent_for_it(given: str | None) -> None:
    assert "Authorization" not in headers_of(given)
