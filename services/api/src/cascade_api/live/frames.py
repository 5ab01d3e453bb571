"""SSE bytes: one ASCII JSON object on one `data:` line, so that no client's idea of a line end can split it."""

import codecs
import json

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
    # In JSON such characters stand in strings only, so they are escaped where they are, without parsing.
    text = document.decode().encode("ascii", _ESCAPES)
    return text.replace(b"\x7f", rb"\u007f")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    met = error.object[error.start : error.end]
    return json.dumps(met)[1:-1], error.end


_ESCAPES = "cascade-json-escapes"
codecs.register_error(_ESCAPES, _escaped)
