"""The official OpenAI client against a running app on the bundled samples, without any network."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

from .conftest import TOKEN, App

pytestmark = pytest.mark.timeout(300)  # whichever test is first waits for the app

H100 = "sample__facebook_opt-125m__h100-e2e"
A100 = "sample__facebook_opt-125m__a100-e2e"


@pytest.fixture(scope="module")
def ai(app: App) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{app.url}/v1", api_key=TOKEN, max_retries=0) as client:
        yield client


def cascade_of(reply: Any) -> dict[str, Any]:
    """What Cascade adds to a reply."""
    found: dict[str, Any] = reply.model_extra["cascade"]
    return found


def test_a_completion_carries_text_usage_and_timing(ai: openai.OpenAI) -> None:
    reply = ai.completions.create(model=H100, prompt="Hello, my name is", max_tokens=32, seed=42)
    assert reply.object == "text_completion"
    assert reply.choices[0].finish_reason == "length"
    assert reply.choices[0].text
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (5, 32, 37)
    cascade = cascade_of(reply)
    assert cascade["prompt_tokens_source"] == "estimated:utf8-bytes/4"
    assert cascade["text_source"] == "placeholder:tok"
    # The seeded run, or a later replay of it that another test asked for.
    assert cascade["run_id"].startswith("run-")
    assert cascade["cached"] is True
    assert round(cascade["timing"]["ttft_ms"], 3) == 8.946
    assert any("Reconstructed from published statistics" in line for line in cascade["timing"]["assumptions"])


def test_the_profiled_shape_gives_the_published_figures(ai: openai.OpenAI) -> None:
    # Six ids stand for the six tokens that OPT's own tokenizer makes of the prompt.
    for model, ttft, itl, e2e in ((H100, 8.946, 8.125, 260.593), (A100, 8.190, 7.139, 229.340)):
        reply = ai.completions.create(model=model, prompt=[2, 31414, 6, 127, 766, 16], max_tokens=32)
        timing = cascade_of(reply)["timing"]
        assert round(timing["ttft_ms"], 3) == ttft
        assert round(timing["itl_ms_mean"], 3) == itl
        assert round(timing["e2e_ms"], 3) == e2e
        assert cascade_of(reply)["profile_match"] is True


def test_the_profiled_metrics_stand_beside_the_prediction(ai: openai.OpenAI) -> None:
    profiled = cascade_of(ai.completions.create(model=H100, prompt="x", max_tokens=1))["profiled"]
    assert round(profiled["real"]["e2e_ms"], 2) == 254.45
    assert round(profiled["simulated"]["e2e_ms"], 2) == 262.14
    assert round(profiled["compare"]["wall_ns"]["mean_error_pct"], 2) == 3.04


def test_a_config_without_a_measurement_is_called_counterfactual(ai: openai.OpenAI) -> None:
    def flag(config: str) -> bool:
        reply = ai.completions.create(model=H100, prompt="x", max_tokens=1, extra_body={"gpu_config": config})
        return bool(cascade_of(reply)["counterfactual"])

    assert flag("SM90_H200")
    assert not flag("SM90_H100")


def test_a_chat_takes_strings_and_parts_alike(ai: openai.OpenAI) -> None:
    plain = ai.chat.completions.create(
        model=H100, messages=[{"role": "user", "content": "Hello, my name is"}], max_completion_tokens=4
    )
    parts = ai.chat.completions.create(
        model=H100,
        messages=[
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hello, my "}, {"type": "text", "text": "name is"}],
            }
        ],
        max_tokens=4,
    )
    assert plain.choices[0].message.role == "assistant"
    assert plain.choices[0].message.content
    assert plain.usage == parts.usage
    assert cascade_of(plain)["timing"] == cascade_of(parts)["timing"]


def test_the_model_may_be_named_by_its_name(ai: openai.OpenAI) -> None:
    named = ai.completions.create(model="facebook/opt-125m", prompt="x", max_tokens=2)
    assert cascade_of(named)["trace_id"] == H100  # the newest
    on_a100 = ai.completions.create(
        model="facebook/opt-125m", prompt="x", max_tokens=2, extra_body={"gpu_config": "SM80_A100"}
    )
    assert cascade_of(on_a100)["trace_id"] == A100


def test_a_stream_gives_the_same_text_and_ends_with_timing(ai: openai.OpenAI) -> None:
    chunks = list(ai.completions.create(model=H100, prompt="Hello", max_tokens=5, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "tok tok tok tok tok"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 5 + ["length"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert cascade_of(chunks[-1])["timing"]["output_tokens"] == 5


def test_a_chat_stream_begins_with_the_role_and_ends_with_usage_when_asked(ai: openai.OpenAI) -> None:
    chunks = list(
        ai.chat.completions.create(
            model=H100,
            messages=[{"role": "user", "content": "Hi"}],
            max_tokens=3,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "tok tok tok"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_fresh_stream_comments_on_the_replay_while_it_waits(client: httpx.Client) -> None:
    body = {"model": H100, "prompt": "Hi", "max_tokens": 2, "stream": True, "fresh": True}
    with client.stream("POST", "/v1/completions", json=body) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        frames = reply.read().decode().split("\n\n")
    assert frames[0].startswith(": waiting for base simulation sim-")
    assert frames[-2:] == ["data: [DONE]", ""]
    assert '"replay"' not in frames[-3]
    run_id = frames[0].split(" of ")[1].split(" ")[0]
    run = client.get(f"/api/runs/{run_id}").json()
    assert (run["replay"], run["sample"], run["state"]) == (True, False, "succeeded")
    assert run["sims"][0]["kernels_done"] == 712


def test_models_lists_traces_and_names(ai: openai.OpenAI) -> None:
    names = {model.id for model in ai.models.list()}
    assert {H100, A100, "facebook/opt-125m"} <= names
    assert ai.models.retrieve(H100).owned_by == "cascade"


async def test_the_async_client_works_and_calls_never_share_a_batch(app: App) -> None:
    import asyncio

    async with openai.AsyncOpenAI(base_url=f"{app.url}/v1", api_key=TOKEN, max_retries=0) as ai:
        replies = await asyncio.gather(
            *(ai.completions.create(model=H100, prompt="Hello, my name is", max_tokens=8) for _ in range(16))
        )
    timings = [cascade_of(reply)["timing"]["e2e_ms"] for reply in replies]
    assert len(set(timings)) == 1


Call = Callable[[openai.OpenAI], object]


@pytest.mark.parametrize(
    ("call", "status", "words"),
    [
        (lambda ai: ai.completions.create(model="nope", prompt="x"), 404, "no ready trace of model 'nope'"),
        (lambda ai: ai.completions.create(model=H100, prompt="x", n=2), 400, "n is 2"),
        (lambda ai: ai.completions.create(model=H100, prompt="x", best_of=3), 400, "best_of is 3"),
        (lambda ai: ai.completions.create(model=H100, prompt="x", echo=True), 400, "echo: not supported"),
        (
            lambda ai: ai.completions.create(model=H100, prompt="x", logprobs=2),
            400,
            "logprobs: not supported",
        ),
        (lambda ai: ai.completions.create(model=H100, prompt=["a", "b"]), 400, "2 prompts were sent"),
        (lambda ai: ai.completions.create(model=H100, prompt=[]), 400, "prompt must be"),
        (
            lambda ai: ai.completions.create(model=H100, prompt="x", max_tokens=4096),
            422,
            "model limit of 2048",
        ),
        (
            lambda ai: ai.completions.create(model=H100, prompt="x", extra_body={"gpu_config": "SM80_A100"}),
            422,
            "SM80_A100 is sm_80",
        ),
        (
            lambda ai: ai.completions.create(
                model=H100, prompt="x", extra_body={"gpu_config": "SM86_RTX3070"}
            ),
            422,
            "expected one of SM90_H100, SM90_H200, SM80_A100",
        ),
        (lambda ai: ai.chat.completions.create(model=H100, messages=[]), 400, "messages"),
        (
            lambda ai: ai.chat.completions.create(
                model=H100,
                messages=[{"role": "user", "content": "x"}],
                tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}],
            ),
            400,
            "tools are not supported",
        ),
        (
            lambda ai: ai.chat.completions.create(
                model=H100,
                messages=[{"role": "user", "content": "x"}],
                response_format={"type": "json_object"},
            ),
            400,
            "response_format must be",
        ),
        (lambda ai: ai.embeddings.create(model=H100, input="x"), 404, "/v1/embeddings is not served here"),
        (lambda ai: ai.models.retrieve("nope"), 404, "does not exist"),
        (lambda ai: ai.with_options(api_key="wrong").models.list(), 401, "missing or wrong token"),
    ],
)
def test_what_is_refused_says_why_in_openais_shape(
    ai: openai.OpenAI, call: Call, status: int, words: str
) -> None:
    with pytest.raises(openai.APIStatusError) as refusal:
        call(ai)
    assert refusal.value.status_code == status
    assert words in refusal.value.message
    body = refusal.value.response.json()
    assert set(body) == {"error"}
    assert {"message", "type", "param", "code"} <= set(body["error"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b'{"model": NaN}',
        b'{"model": 1, "prompt": "x"}',
        b"\xff\xfe",
        b"[" * 200_000,
    ],
)
def test_a_body_that_is_no_request_is_refused_in_openais_shape(client: httpx.Client, body: bytes) -> None:
    for path in ("/v1/completions", "/v1/chat/completions"):
        reply = client.post(path, content=body, headers={"content-type": "application/json"})
        assert reply.status_code == 400
        assert reply.json()["error"]["type"] == "invalid_request_error"


def test_a_warm_completion_is_quick(ai: openai.OpenAI) -> None:
    took = []
    for _ in range(10):
        started = time.perf_counter()
        ai.completions.create(model=H100, prompt="Hello", max_tokens=32)
        took.append(time.perf_counter() - started)
    # Many times what a quiet machine takes: a busy one is no fault.
    assert min(took) < 0.5
