"""The cases that broke other OpenAI-compatible servers, each held to what its `case.json` expects."""

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from .conftest import CASES

pytestmark = pytest.mark.timeout(300)  # whichever test is first waits for the app

Case = Callable[[str, str], Any]
PLAIN = ("openai-content-parts", "openai-null-parameters", "openai-token-limit-spellings")


def at(document: Any, path: str) -> Any:
    """`usage.completion_tokens` of a reply."""
    for key in path.split("."):
        document = document[key]
    return document


def paths_of(case: dict[str, Any]) -> dict[str, str]:
    return {request["body"]: request["path"] for request in case["input"]["requests"]}


@pytest.mark.parametrize("name", PLAIN)
def test_whole_replies(client: httpx.Client, case: Case, name: str) -> None:
    described = case(name, "case.json")
    expected = described["expect"]
    replies: dict[str, httpx.Response] = {}
    for body, path in paths_of(described).items():
        started = time.monotonic()
        replies[body] = client.post(path, content=(CASES / name / body).read_bytes())
        assert time.monotonic() - started < expected.get("answer_within_s", 30)
    for wanted in expected["replies"]:
        reply = replies[wanted["body"]]
        assert reply.status_code < 500
        assert reply.status_code in wanted.get("status_in", [wanted.get("status")]), reply.text
        if reply.status_code >= 400:
            assert len(reply.json()["error"]["message"]) > 10
        for key, value in wanted.items():
            match key:
                case "usage.completion_tokens":
                    assert at(reply.json(), key) == value
                case "cascade.timing.itl":
                    assert at(reply.json(), key) is None
                case key if key.endswith("_same_as"):
                    path = key.removesuffix("_same_as")
                    assert at(reply.json(), path) == at(replies[value].json(), path)
                case _:
                    assert key in ("body", "status", "status_in"), key


def test_streams(client: httpx.Client, case: Case) -> None:
    name = "openai-stream-chunks-and-usage"
    described = case(name, "case.json")
    for wanted in described["expect"]["replies"]:
        path = paths_of(described)[wanted["body"]]
        reply = client.post(path, content=(CASES / name / wanted["body"]).read_bytes())
        assert reply.status_code in wanted.get("status_in", [wanted.get("status")]), reply.text
        if "stream" in case(name, wanted["body"]):
            check_stream(reply, wanted, described["expect"]["every_stream"]["object"][path])


def check_stream(reply: httpx.Response, wanted: dict[str, Any], kind: str) -> None:
    """One stream against what is expected of it and of every stream."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    frames = reply.text.split("\n\n")
    assert frames.pop() == ""
    for frame in frames:
        assert "\n" not in frame  # one line a frame: data, or a comment followed by a blank line
        assert frame.startswith(("data: ", ": "))
        assert not frame.startswith("data: :")
    datas = [frame.removeprefix("data: ") for frame in frames if frame.startswith("data: ")]
    assert datas.pop() == "[DONE]"
    chunks = [json.loads(data) for data in datas]
    assert {chunk["object"] for chunk in chunks} == {kind}
    assert len({chunk["id"] for chunk in chunks}) == 1
    empty = [index for index, chunk in enumerate(chunks) if not chunk["choices"]]
    assert len(empty) == wanted["chunks_with_empty_choices"]
    finished = [chunk for chunk in chunks if chunk["choices"] and chunk["choices"][0]["finish_reason"]]
    assert len(finished) == 1
    assert "timing" in finished[0]["cascade"]
    texts = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert "".join(text["delta"].get("content", "") if "delta" in text else text["text"] for text in texts)
    if "first_delta_role" in wanted:
        assert chunks[0]["choices"][0]["delta"]["role"] == wanted["first_delta_role"]
    if empty:
        assert empty == [len(chunks) - 1]
        assert chunks[-1]["usage"]["completion_tokens"] == wanted["usage"]["completion_tokens"]
        assert chunks[-1]["usage"]["prompt_tokens"] >= 1
    assert all(chunk.get("usage") is None for index, chunk in enumerate(chunks) if index not in empty)
