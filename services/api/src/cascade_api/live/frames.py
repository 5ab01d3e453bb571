"""SSE bytes: one ASCII JSON object on one `data:` line, so that no client's idea of a line end can split it."""

import json

import orjson
from pydantic import BaseModel

KEEPALIVE = b": keepalive\n\n"


def frame(json_object: bytes) -> bytes:
    """The wire form of one event. `json_object` is compact JSON in UTF-8."""
    return b"data: " + ascii_json(json_object) + b"\n\n"


def event_frame(event: BaseModel) -> bytes:
    """The wire form of one event model."""
    return frame(event.model_dump_json().encode())


def ascii_json(document: bytes) -> bytes:
    """The same JSON in ASCII, without DEL: U+2028, U+0085 and friends only as escapes."""
    if document.isascii() and b"\x7f" not in document:
        return document
    text = json.dumps(orjson.loads(document), ensure_ascii=True, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f").encode("ascii")
