"""Errors as HTTP: one table from error family to status and `detail`."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import structlog
from cascade_core.errors import Corrupt, NotFound, Refused, Unavailable
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from cascade_api.text import without_surrogates

if TYPE_CHECKING:
    from cascade_api.gateway import Gateway

_logger = structlog.get_logger(__name__)

RETRY_AFTER_S = "1"
_ID_IN_PATH = re.compile(r"/api/(run|sim)s/([^/]+)")
LONGEST_ECHO = 1000
"""An invalid body is echoed in part only: it may be a log chunk of megabytes."""
MOST_PROBLEMS = 50
"""A list of a million wrong lines is one mistake, not a million."""


class Unauthorized(HTTPException):
    """The token is missing or wrong. spec: errors, 401."""

    def __init__(self) -> None:
        super().__init__(401, "missing or wrong token", headers={"WWW-Authenticate": "Bearer"})


EXPECTED = (Refused, Unavailable, Corrupt)
"""What routes raise on purpose."""


def install(app: FastAPI) -> None:
    """Teach the app every error family."""
    for family in (*EXPECTED, RequestValidationError, HTTPException):
        app.add_exception_handler(family, _answered)
    app.add_exception_handler(Exception, _unexpected)


async def _answered(request: Request, error: Exception) -> Response:
    return response_to(error, request.app.state.gateway)


async def _unexpected(request: Request, error: Exception) -> Response:
    log_unexpected(error, request.url.path)
    return unexpected_response()


def problem_response(detail: object, status: int, *, headers: Mapping[str, str] | None = None) -> Response:
    """A `detail` as a JSON response. Whatever the client sent may be in it: it always leaves as strict ASCII."""
    body = json.dumps({"detail": detail}, allow_nan=False)
    return Response(body, status, headers=headers, media_type="application/json")


def response_to(error: Exception, gateway: "Gateway") -> Response:
    """The response to an error of one of the families."""
    match error:
        case NotFound(certain=False) if gateway.gate.is_behind:
            # A simulator stops on a 404. It must not be told so while the views are still filled.
            detail = (
                f"the read models are at position {gateway.gate.position} of {gateway.gate.expected}; "
                "what you ask for may be on its way. Try again in a moment."
            )
            return problem_response(detail, 503, headers={"Retry-After": RETRY_AFTER_S})
        case Refused():
            return problem_response(without_surrogates(error.detail), error.status)
        case Unavailable():
            return problem_response(str(error), 503, headers={"Retry-After": RETRY_AFTER_S})
        case HTTPException():
            return problem_response(error.detail, error.status_code, headers=error.headers)
        case RequestValidationError():
            found = error.errors()[:MOST_PROBLEMS]
            return problem_response([_plain(problem) for problem in found], 422)
        case Corrupt():
            _logger.error("stored data is damaged", error=str(error))
            return problem_response(f"stored data is damaged: {error}. Run `cascade doctor`.", 500)
    raise error


def log_unexpected(error: Exception, path: str) -> None:
    """Nobody meant this to happen."""
    ids = {f"{kind}_id": found for kind, found in _ID_IN_PATH.findall(path)}
    _logger.error("unexpected error", path=path, error=type(error).__name__, exc_info=error, **ids)


def unexpected_response() -> Response:
    """What the client learns of an unexpected error: only that it is not its fault."""
    return problem_response("an error inside Cascade; its log tells more. Try again in a moment.", 500)


def _plain(problem: Mapping[str, object]) -> dict[str, object]:
    loc = problem["loc"]
    assert isinstance(loc, Sequence)
    plain: dict[str, object] = {
        "type": problem["type"],
        "loc": [part if isinstance(part, int) else _short(part) for part in loc],
        "msg": _short(problem["msg"]),
        "input": _short(problem.get("input")),
    }
    ctx = problem.get("ctx")
    if isinstance(ctx, Mapping):
        plain["ctx"] = {str(key): _short(value) for key, value in ctx.items()}
    return plain


def _short(value: object) -> object:
    """`value` where it is plain and small JSON, else its beginning as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 1 << 63:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # NaN is no JSON
    if isinstance(value, list | dict) and not value:
        return value
    try:
        text = value if isinstance(value, str) else json.dumps(value, allow_nan=False, default=str)
    except (ValueError, RecursionError):
        return f"<{type(value).__name__}>"  # such as NaN, which is no JSON
    if len(text) > LONGEST_ECHO:
        return without_surrogates(text[:LONGEST_ECHO]) + "…"
    return without_surrogates(text) if isinstance(value, str) else json.loads(text)
