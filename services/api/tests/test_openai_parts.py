"""The pure parts of the OpenAI-compatible routes: bodies, made-up text, replies."""

import json
from random import Random
from typing import Any

import pytest
from cascade_api.openai import replies
from cascade_api.openai.bodies import ChatBody, CompletionBody, Prompt
from cascade_api.openai.predicting import counterfactual
from cascade_api.openai.replies import Api, Reply
from cascade_api.openai.text import SampledText, sampled_text
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError


def completion(**fields: Any) -> CompletionBody:
    return CompletionBody.model_validate({"model": "m", "prompt": "p", **fields})


def chat(content: Any, **fields: Any) -> ChatBody:
    return ChatBody.model_validate(
        {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
    )


@pytest.mark.parametrize(
    ("told", "captured_on", "wanted"),
    [
        (True, None, True),
        (True, "SM90_H200", True),
        (False, "SM90_H100", False),
        (None, "SM90_H100", True),
        (None, "SM90_H200", False),
        (None, None, None),
    ],
)
def test_what_is_not_known_to_be_counterfactual_is_not_called_so(
    told: bool | None, captured_on: str | None, wanted: bool | None
) -> None:
    assert counterfactual(told, captured_on, "SM90_H200") is wanted


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ("text", Prompt(text="text")),
        ("", Prompt(text="")),
        (["text"], Prompt(text="text")),
        ([1, 2, 3], Prompt(token_ids=3)),
        ([[1, 2]], Prompt(token_ids=2)),
    ],
)
def test_every_form_of_one_prompt_is_taken(prompt: Any, wanted: Prompt) -> None:
    assert completion(prompt=prompt).one_prompt == wanted


@pytest.mark.parametrize(
    "prompt", [None, 1, [], [[]], ["a", "b"], [[1], [2]], [1, "a"], [True], [-1], {"a": 1}]
)
def test_other_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(ValidationError):
        completion(prompt=prompt)


@pytest.mark.parametrize(
    "fields",
    [
        {
            "n": None,
            "best_of": None,
            "echo": None,
            "suffix": None,
            "logprobs": None,
            "stop": None,
            "logit_bias": None,
        },
        {"n": 1, "best_of": 1, "echo": False, "suffix": "", "logprobs": 0, "stop": [], "logit_bias": {}},
        {"temperature": 0.5, "top_p": 1, "user": "u", "metadata": {"a": "b"}, "something_new": [1, 2]},
        {
            "max_tokens": None,
            "max_completion_tokens": None,
            "seed": None,
            "stream": None,
            "stream_options": None,
        },
        {"seed": -5, "stream_options": {"include_usage": None, "include_obfuscation": True}},
    ],
)
def test_nulls_defaults_and_unknown_fields_change_nothing(fields: dict[str, Any]) -> None:
    assert completion(**fields).output_tokens is None


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"n": 0},
        {"n": "1"},
        {"max_tokens": -1},
        {"max_tokens": 2.5},
        {"max_tokens": True},
        {"max_tokens": 5, "max_completion_tokens": 6},
        {"stop": ["a"] * 5},
        {"stop": 3},
        {"stop": [1]},
        {"logit_bias": {"1": 5}},
        {"echo": True},
        {"suffix": "x"},
        {"logprobs": 1},
        {"model": ""},
        {"model": None},
        {"seed": 1.5},
        {"stream": "yes"},
        {"stream_options": {"include_usage": "yes"}},
    ],
)
def test_what_is_not_supported_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        completion(**fields)


def test_both_spellings_of_the_limit_are_one() -> None:
    assert completion(max_tokens=5).output_tokens == 5
    assert completion(max_completion_tokens=5).output_tokens == 5
    assert completion(max_tokens=0, max_completion_tokens=0).output_tokens == 0


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hi", "hi"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}], "a b"),
        ([{"type": "refusal", "refusal": "no"}], "no"),
    ],
)
def test_a_message_is_one_text(content: Any, text: str) -> None:
    assert chat(content).messages[0].text == text


@pytest.mark.parametrize(
    "content",
    [1, {"type": "text"}, ["a"], [{"type": "image_url"}], [{"type": "text"}], [{"type": "text", "text": 1}]],
)
def test_a_part_that_is_not_text_is_refused(content: Any) -> None:
    with pytest.raises(ValidationError):
        chat(content)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function"}]},
        {"functions": [{}]},
        {"tool_choice": "required"},
        {"response_format": {"type": "json_object"}},
        {"modalities": ["text", "audio"]},
        {"audio": {"voice": "x"}},
        {"logprobs": True},
        {"top_logprobs": 3},
    ],
)
def test_what_a_chat_cannot_do_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        chat("x", **fields)


class Letters:
    """A tokenizer of single letters."""

    vocabulary = tuple(range(26))

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(ord("a") + token) for token in ids)


def test_the_same_seed_gives_the_same_text() -> None:
    one, two, other = (sampled_text(Letters(), 50, stops=(), random=Random(seed)) for seed in (1, 1, 2))
    assert one == two
    assert one.text != other.text
    assert len(one.text) == 50
    assert one.source == "sampled:tokenizer"


def test_without_a_tokenizer_there_are_flagged_placeholders() -> None:
    assert sampled_text(None, 3, stops=(), random=Random(1)) == SampledText("tok tok tok", "placeholder:tok")
    assert sampled_text(None, 0, stops=(), random=Random(1)).text == ""


@given(st.lists(st.text("abc", min_size=1, max_size=3), max_size=4), st.integers(0, 40), st.integers())
@settings(max_examples=50, deadline=None)
def test_no_text_ever_holds_a_stop_sequence(stops: list[str], tokens: int, seed: int) -> None:
    for decoder in (Letters(), None):
        text = sampled_text(decoder, tokens, stops=(*stops, "tok"), random=Random(seed)).text
        assert not any(stop in text for stop in stops)


@given(st.text(max_size=200), st.integers(0, 60))
@settings(max_examples=50, deadline=None)
def test_pieces_are_the_text(text: str, count: int) -> None:
    pieces = SampledText(text, "placeholder:tok").in_pieces(count)
    assert "".join(pieces) == (text if count else "")
    assert all(pieces)
    assert len(pieces) <= count


def reply(api: Api, text: str = "tok tok") -> Reply:
    return Reply(
        api=api,
        key="k",
        created_s=5,
        model="m\ud800",
        prompt_tokens=3,
        output_tokens=2,
        text=SampledText(text, "placeholder:tok"),
        cascade={"timing": {"e2e_ms": 1.5}},
    )


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_whole_reply_is_strict_json_with_one_choice(api: Api) -> None:
    body = json.loads(replies.whole(reply(api)))
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["cascade"] == {"timing": {"e2e_ms": 1.5}}


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("with_usage", [True, False])
def test_a_stream_ends_with_done_and_has_usage_only_when_asked(api: Api, with_usage: bool) -> None:
    frames = list(replies.chunks(reply(api), with_usage=with_usage))
    assert frames[-1] == b"data: [DONE]\n\n"
    bodies = [json.loads(frame.removeprefix(b"data: ")) for frame in frames[:-1]]
    assert [not body["choices"] for body in bodies] == [False] * (len(bodies) - with_usage) + [
        True
    ] * with_usage
    assert all(frame.startswith(b"data: {") and frame.count(b"\n") == 2 for frame in frames[:-1])


def test_a_stream_of_no_tokens_still_finishes() -> None:
    (only, done) = list(replies.chunks(reply("completions", ""), with_usage=False))
    assert json.loads(only.removeprefix(b"data: "))["choices"][0]["finish_reason"] == "length"
    assert done == replies.DONE


def test_a_comment_is_one_ascii_line() -> None:
    assert replies.comment("a\nb\rc\u2028d") == b": a b c\\u2028d\n\n"
