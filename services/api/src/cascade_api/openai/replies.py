"""Replies in OpenAI's shapes, whole and as chunks of a stream. Pure: ids and times come in as arguments.

A chunk without choices is only sent where it was asked for, once and last. Progress travels in comments.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from cascade_api.openai.text import SampledText

FINGERPRINT = "cascade"
FINISH = "length"
"""The text ends because it is as long as was asked for, always."""
DONE = b"data: [DONE]\n\n"

Api = Literal["completions", "chat"]
_PREFIX: dict[Api, str] = {"completions": "cmpl-", "chat": "chatcmpl-"}
_OBJECT: dict[Api, tuple[str, str]] = {
    "completions": ("text_completion", "text_completion"),
    "chat": ("chat.completion", "chat.completion.chunk"),
}
"""Object name of a whole reply and of a chunk."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Everything that an answer says."""

    api: Api
    key: str
    created_s: int
    model: str
    prompt_tokens: int
    output_tokens: int
    text: SampledText
    cascade: dict[str, JsonValue]

    @property
    def usage(self) -> dict[str, int]:
        """Tokens, as OpenAI counts them."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.prompt_tokens + self.output_tokens,
        }


def whole(reply: Reply) -> bytes:
    """The reply as one JSON document."""
    text = reply.text.text
    if reply.api == "chat":
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": FINISH}
    else:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": FINISH}
    head = _head(reply, chunk=False)
    return _ascii(head | {"choices": [choice], "usage": reply.usage, "cascade": reply.cascade})


def chunks(reply: Reply, *, with_usage: bool) -> Iterator[bytes]:
    """The reply as the events of a stream, `[DONE]` included.

    with_usage: the client asked for a last chunk that holds the usage and no choice.
    """
    head = _head(reply, chunk=True) | ({"usage": None} if with_usage else {})
    if reply.api == "chat":
        yield _event(head | {"choices": [_delta({"role": "assistant", "content": ""})]})
    for piece in reply.text.in_pieces(reply.output_tokens):
        choice = _delta({"content": piece}) if reply.api == "chat" else _piece(piece)
        yield _event(head | {"choices": [choice]})
    last = _delta({}, FINISH) if reply.api == "chat" else _piece("", FINISH)
    yield _event(head | {"choices": [last], "cascade": reply.cascade})
    if with_usage:
        yield _event(head | {"choices": [], "usage": reply.usage, "cascade": reply.cascade})
    yield DONE


def comment(text: str) -> bytes:
    """A note that clients skip; it keeps proxies from closing a quiet stream."""
    line = text.encode("ascii", "backslashreplace").replace(b"\n", b" ").replace(b"\r", b" ")
    return b": %b\n\n" % line


def _head(reply: Reply, *, chunk: bool) -> dict[str, object]:
    return {
        "id": _PREFIX[reply.api] + reply.key,
        "object": _OBJECT[reply.api][chunk],
        "created": reply.created_s,
        "model": reply.model,
        "system_fingerprint": FINGERPRINT,
    }


def _delta(delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _piece(text: str, finish: str | None = None) -> dict[str, object]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


def _event(body: dict[str, object]) -> bytes:
    return b"data: %b\n\n" % _ascii(body)


def _ascii(body: dict[str, object]) -> bytes:
    # Escaped, no character of the text can be taken for the end of a line.
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
