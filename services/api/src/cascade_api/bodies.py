"""Request bodies: read up to a bound, parsed once, at the edge, into their model.

Parsed here and not by the framework: a body may be megabytes of log lines, and whatever is in it must end in a model
or in a 422 that says where it does not fit. The parser bounds nesting and numbers as the log's own reader does, so
what is accepted here can be read back for ever.
"""

import math
import re
from typing import TypeVar, cast

from cascade_core.errors import Refused
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, JsonValue, ValidationError
from starlette.requests import ClientDisconnect

M = TypeVar("M", bound=BaseModel)

MOST_BODY_BYTES = 64 * 1024 * 1024
"""Of a JSON body. A log chunk is some kilobytes, a step timeline of a real model some megabytes."""
_ESCAPE = re.compile(
    # A pair stays; `\\` is one unit, so that the `u` behind it is no escape; a lone half is replaced.
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)",
    re.DOTALL,
)
_GZIP = b"\x1f\x8b"
_LONE_HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_REPLACED = rb"\ufffd"


async def body_of(request: Request, *, most: int = MOST_BODY_BYTES) -> bytes:
    """The whole body. Raises Refused (413) beyond `most` bytes."""
    held: list[bytes] = []
    size = 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size <= most:
                held.append(piece)
            elif held:
                held.clear()  # the rest is read and dropped, so that the client gets the answer
    except ClientDisconnect as error:
        raise Refused("the request broke off before its body was whole", status=400) from error
    if size > most:
        raise Refused(
            f"the body is {size} bytes, over the limit of {most}; send it in smaller parts", status=413
        )
    return b"".join(held)


async def model_of(request: Request, model: type[M]) -> M:
    """The body as `model`. Raises RequestValidationError (422), Refused (413)."""
    return parsed(model, await body_of(request))


def parsed(model: type[M], body: bytes) -> M:
    """`body` as `model`. Raises RequestValidationError, Refused (422) for a compressed one.

    What other JSON writers let through is mended: bytes that are no UTF-8 and lone surrogates become U+FFFD.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if not body.strip():
            missing = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}
            raise RequestValidationError([missing]) from error
        if error.errors(include_url=False)[0]["type"] != "json_invalid":
            raise _located(error) from error
        if body.startswith(_GZIP):
            raise Refused(
                "the body is compressed; send it as plain JSON, without Content-Encoding"
            ) from error
    try:
        return model.model_validate_json(_mended(body))
    except ValidationError as error:
        raise _located(error) from error


J = TypeVar("J", bound=JsonValue)


def finite(value: J) -> J:
    """`value` with null for every NaN and Infinity, which are no JSON but which other writers let through."""
    return cast(J, _finite(value))


def _finite(value: JsonValue) -> JsonValue:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case list():
            return [_finite(item) for item in value]
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case _:
            return value


def _mended(body: bytes) -> bytes:
    return _ESCAPE.sub(_whole, body.decode("utf-8", "replace").encode())


def _whole(escape: re.Match[bytes]) -> bytes:
    return _REPLACED if _LONE_HALF.fullmatch(escape[0]) else escape[0]


def _located(error: ValidationError) -> RequestValidationError:
    problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors(include_url=False)]
    for problem in problems:
        if problem["type"] == "json_invalid":
            problem["input"] = {}  # the parser would echo the whole body
    return RequestValidationError(problems)
