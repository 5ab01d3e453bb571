"""Whatever a client sends: a 4xx that says what to do or a success, never a 5xx, and the gateway goes on."""

import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cascade_api import bodies
from cascade_api.bodies import parsed
from cascade_api.testing.client import Client
from cascade_api.testing.running import RunningApi
from cascade_api.testing.servers import TOKEN
from cascade_api.wire.simulator import LogChunk
from fastapi.exceptions import RequestValidationError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

EXAMPLES = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
CALLS = ["/api/runs", "/api/sims/{sim}/heartbeat", "/api/sims/{sim}/logs", "/api/sims/{sim}/step-timeline"]


class Target:
    """One sim to send things at."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.run_id, self.sim_id = client.new_sim()

    def post(self, call: str, body: bytes, **headers: str) -> httpx.Response:
        """Send it; the answer, which must be no 5xx and, where it refuses, say why in strict JSON."""
        reply = self.client.post(call.format(sim=self.sim_id), content=body, headers=headers)
        assert reply.status_code < 500, reply.text
        if reply.status_code >= 400:
            detail = json.loads(reply.content, parse_constant=pytest.fail)["detail"]
            assert detail
            assert len(reply.content) < 100_000
        return reply


@pytest.fixture(scope="module")
def target(api: RunningApi) -> Iterator[Target]:
    with Client(api) as client:
        target = Target(client)
        yield target
        # After all that: facts still become views, and every page can still be read.
        run_id, sim_id = client.new_sim()
        assert client.beat(sim_id)["state"] == "running"
        client.body(f"/api/runs/{run_id}")
        for rest in ("", "/kernels", "/results", "/step-timelines", "/perfetto"):
            client.body(f"/api/runs/{target.run_id}{rest}")
        client.get(f"/api/sims/{target.sim_id}/log").raise_for_status()


texts = st.text(max_size=8) | st.sampled_from(
    ["\x00", "\ud800", "\udfff", "\u2028", "é", "\U0001f680", "x" * 3000]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**31, 2**53, 2**63, 2**64, -(2**70), 10**400])
    | st.floats()
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
known_keys = st.sampled_from(
    ["trace_id", "entries", "gpu_config", "count", "state", "exit_code", "error", "engine", "seq", "lines"]
) | st.sampled_from(["simulated", "compare", "steps", "summary"])
near_misses = st.recursive(
    scalars | st.sampled_from(["running", "failed", "SM86_RTX3070"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(known_keys, inner, max_size=6),
    max_leaves=12,
)


@EXAMPLES
@given(call=st.sampled_from(CALLS), body=st.binary(max_size=60))
@example(call=CALLS[2], body=b"")
@example(call=CALLS[0], body=b"\xef\xbb\xbf{}")
@example(call=CALLS[0], body='{"trace_id": "x"}'.encode("utf-16"))
@example(call=CALLS[1], body=b'{"state": "running"')
def test_any_bytes_are_answered(call: str, body: bytes, target: Target) -> None:
    target.post(call, body)


@EXAMPLES
@given(call=st.sampled_from(CALLS), body=values | near_misses)
@example(call=CALLS[3], body={"simulated": {"steps": [10**400, -1e999], "summary": {"\ud800": "\udfff\x00"}}})
@example(call=CALLS[1], body={"state": "failed", "error": "\ud800\x00" * 20_000, "exit_code": None})
@example(call=CALLS[2], body={"seq": 1, "lines": ["\ud800", "\x00", "\ud83d\ude80", "\ude80\ud83d"]})
@example(call=CALLS[0], body={"trace_id": "\ud800\x00", "entries": [{"gpu_config": "\udfff", "count": 1}]})
def test_any_json_is_answered(call: str, body: Any, target: Target) -> None:
    target.post(call, json.dumps(body).encode())


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("depth", [50, 150, 250, 1_500, 200_000])
def test_deep_nesting_is_refused_or_kept(call: str, depth: int, target: Target) -> None:
    nested = b"[" * depth + b"]" * depth
    target.post(call, nested)
    target.post(call, b'{"seq":0,"lines":[],"simulated":{"steps":%b,"summary":{}}}' % nested)
    target.post(call, b'{"seq":0,"lines":["\\ud800"],"simulated":{"steps":%b,"summary":{}}}' % nested)
    target.client.body(f"/api/runs/{target.run_id}/step-timelines")


@pytest.mark.parametrize(
    "number", ["1" * 5000, "1e400", "-1e400", "1e-400", "NaN", "-Infinity", "0x10", "1."]
)
def test_odd_numbers_are_refused_or_kept(number: str, target: Target) -> None:
    for call, body in (
        (CALLS[0], '{"trace_id": "t", "entries": [{"gpu_config": "x", "count": NUMBER}]}'),
        (CALLS[1], '{"state": "failed", "exit_code": NUMBER}'),
        (CALLS[2], '{"seq": NUMBER, "lines": []}'),
        (CALLS[3], '{"simulated": {"steps": [NUMBER], "summary": {}}}'),
    ):
        target.post(call, body.replace("NUMBER", number).encode())


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/x-www-form-urlencoded", "image/png; x=y;;"]
)
def test_the_content_type_of_a_body_does_not_matter(content_type: str, target: Target) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    reply = target.client.post(
        f"/api/sims/{target.sim_id}/heartbeat", content=b'{"state": "running"}', headers=headers
    )
    assert reply.status_code == 200


def test_an_empty_body_is_called_missing(target: Target) -> None:
    for call in CALLS:
        reply = target.post(call, b"")
        assert reply.status_code == 422
        assert reply.json()["detail"] == [
            {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}
        ]


def test_broken_json_says_where(target: Target) -> None:
    [problem] = target.post(CALLS[2], b'{"seq": 0, "lines": ["a",}').json()["detail"]
    assert (problem["type"], problem["loc"]) == ("json_invalid", ["body"])
    assert "column" in problem["msg"]


def test_a_million_wrong_lines_are_one_short_answer(target: Target) -> None:
    reply = target.post(CALLS[2], b'{"seq": 0, "lines": [%b1]}' % (b"1," * 1_000_000))
    assert reply.status_code == 422
    assert len(reply.content) < 20_000


@pytest.mark.parametrize("size", [1_000_000, 2_500_000])
@pytest.mark.parametrize("char", ["x", "\x00", "é", "\u2028", "\U0001f680", "\\", '"'])
def test_a_line_of_megabytes_comes_back_whole(char: str, size: int, client: Client) -> None:
    run_id, sim_id = client.new_sim()
    client.send_log(sim_id, 0, [char * size, "end"])
    assert client.get(f"/api/sims/{sim_id}/log").content == (char * size + "\nend\n").encode()
    tail = client.sim(run_id, sim_id)["log_tail"]
    assert (tail[0][0], tail[1]) == (char, "end")
    assert len(client.get(f"/api/runs/{run_id}").content) < 1_000_000


def test_lone_surrogates_and_bad_bytes_become_replacement_characters(client: Client) -> None:
    _, sim_id = client.new_sim()
    escaped = rb'"a\ud800b", "\\ud800", "\ud83d\ude80", "\udc00\ud800", "\u0000"'
    lines = b'[%b, "\xff\xc3"]' % escaped
    reply = client.post(f"/api/sims/{sim_id}/logs", content=b'{"seq": 0, "lines": %b}' % lines)
    assert reply.status_code == 204
    wanted = ["a\ufffdb", "\\ud800", "\U0001f680", "\ufffd\ufffd", "\x00", "\ufffd\ufffd", ""]
    assert client.get(f"/api/sims/{sim_id}/log").text.split("\n") == wanted


def test_a_body_beyond_the_limit_is_read_and_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    _, sim_id = client.new_sim()
    body = b'{"seq": 0, "lines": ["%b"]}' % (b"x" * bodies.MOST_BODY_BYTES)
    for call in ("logs", "heartbeat", "step-timeline"):
        reply = client.post(f"/api/sims/{sim_id}/{call}", content=body)
        assert reply.status_code == 413
        assert "send it in smaller parts" in reply.json()["detail"]
    assert client.post("/api/runs", content=body).status_code == 413


def test_an_attempt_that_is_too_long_is_refused(target: Target) -> None:
    reply = target.post(CALLS[1], b'{"state": "running"}', **{"X-Cascade-Attempt": "a" * 129})
    assert reply.status_code == 422
    assert "at most 128" in reply.json()["detail"]


@pytest.mark.parametrize(
    "line",
    [
        b"GET /api/runs/\xff\xfe HTTP/1.1",
        b"GET /api/traces/%ff%00%2f..%2f..%2fetc%2fpasswd HTTP/1.1",
        b"GET //api//runs HTTP/1.1",
        b"GET /api/runs/../../etc/passwd HTTP/1.1",
        b"GET /%00 HTTP/1.1",
        b"GET /assets/%00 HTTP/1.1",
        b"GET /" + b"a" * 5000 + b" HTTP/1.1",
        b"GET /assets/" + b"a/" * 3000 + b" HTTP/1.1",
        b"GET /..%2f..%2f..%2fetc/passwd HTTP/1.1",
        b"GET http://elsewhere/api/runs HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"BREW /api/runs HTTP/1.1",
        b"GET /api/runs HTTP/9.9",
        b"nonsense",
        b"\x16\x03\x01\x02\x00\x01",
    ],
)
def test_any_request_line_is_answered_or_cut(line: bytes, api: RunningApi) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = b"\r\nHost: x\r\nAuthorization: Bearer %b\r\nConnection: close\r\n\r\n" % TOKEN.encode()
        connection.sendall(line + head)
        answer = b""
        while piece := connection.recv(1 << 16):
            answer += piece
    assert answer == b"" or answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4")), answer[:200]
    assert b"root:" not in answer


@EXAMPLES
@given(body=st.dictionaries(st.sampled_from(["seq", "lines"]), values, max_size=2))
def test_a_parsed_chunk_can_always_be_stored(body: dict[str, Any]) -> None:
    try:
        chunk = parsed(LogChunk, json.dumps(body).encode())
    except RequestValidationError:
        return
    for line in chunk.lines:
        line.encode()


@pytest.mark.parametrize("call", CALLS)
def test_a_compressed_body_is_told_what_it_is(call: str, target: Target) -> None:
    body = gzip.compress(b'{"state": "running"}')
    reply = target.post(call, body, **{"Content-Encoding": "gzip"})
    assert reply.status_code == 422
    assert reply.json()["detail"] == "the body is compressed; send it as plain JSON, without Content-Encoding"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_shown_as_it_was_read(number: str, target: Target) -> None:
    reply = target.post(
        "/api/sims/{sim}/heartbeat", b'{"state": "running", "exit_code": %b}' % number.encode()
    )
    assert reply.status_code == 422
    (problem,) = reply.json()["detail"]
    assert (problem["loc"], problem["input"]) == (["body", "exit_code"], str(float(number)))
