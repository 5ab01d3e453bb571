"""Errors in OpenAI's shape, so that its clients show what was wrong: `{"error": {message, type, param, code}}`."""

import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, assert_never

import structlog
from cascade_core.errors import Corrupt, NotFound, Refused, Unavailable
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from cascade_api import absence
from cascade_api.auth import TokenCheck
from cascade_api.problems import RETRY_AFTER_S
from cascade_api.scenarios.errors import BaseRunError, BaseSimFailed

_logger = structlog.get_logger(__name__)

Failure: TypeAlias = Refused | Unavailable | Corrupt
_INVALID = "invalid_request_error"
_SERVER = "server_error"
_CODES = {404: "model_not_found", 409: "model_not_ready", 413: "request_too_large"}


class OpenAIRoute(APIRoute):
    """A route that checks the token first and answers every error in OpenAI's shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The checked handler."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            check: TokenCheck = request.app.state.gateway.token_check
            if not check.accepts_header(request):
                return _response(
                    401,
                    "missing or wrong token: pass CASCADE_TOKEN as api_key",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
            try:
                with absence.judged(request.app.state.gateway.gate):
                    return await handle(request)
            except RequestValidationError as error:
                return _invalid(error)
            except HTTPException as error:
                return _response(error.status_code, str(error.detail), headers=dict(error.headers or {}))
            except (Refused, Unavailable, Corrupt) as error:
                return response_of(error, still_filling=request.app.state.gateway.gate.is_behind)

        return checked


def response_of(error: Failure, *, still_filling: bool = False) -> Response:
    """What a failed request is answered.

    still_filling: the views do not hold all of the log yet, so what was not found may be on its way.
    """
    if isinstance(error, NotFound) and still_filling and not error.certain:
        error = Unavailable("the read models are still filled; what you ask for may be on its way. Try again")
    status, body = _described(error)
    headers = {"Retry-After": RETRY_AFTER_S} if status == 503 else {}
    return Response(_ascii(body), status, headers=headers, media_type="application/json")


def frame_of(error: Failure) -> bytes:
    """The same as an event of a stream whose status has left already."""
    return b"data: %b\n\n" % _ascii(_described(error)[1])


def _described(error: Failure) -> tuple[int, dict[str, Any]]:
    match error:
        case BaseRunError():
            code = "base_simulation_failed" if isinstance(error, BaseSimFailed) else "base_simulation_late"
            body = _body(error.status, error.detail, code=code)
            body["error"] |= {"run_id": error.run_id, "sim_id": error.sim_id}
            return error.status, body
        case Refused():
            return error.status, _body(error.status, error.detail, code=_CODES.get(error.status))
        case Corrupt():
            _logger.error("stored data is damaged", error=str(error))
            return 500, _body(500, f"stored data is damaged: {error}. Run `cascade doctor`.")
        case Unavailable():
            return 503, _body(503, str(error), code="unavailable")
        case _:
            assert_never(error)


def _invalid(error: RequestValidationError) -> Response:
    """The first problem: OpenAI's shape has room for one."""
    problem = error.errors()[0]
    path = [str(part) for part in problem["loc"] if part != "body"]
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not path and problem["type"] == "missing":
        message = "the body is empty; send JSON with at least a model"
    param = ".".join(path) or None
    named = param is None or message.startswith(param)
    return _response(400, message if named else f"{param}: {message}", param=param)


def _response(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    body = _ascii(_body(status, message, param=param, code=code))
    return Response(body, status, headers=headers, media_type="application/json")


def _body(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    kind = _SERVER if status >= 500 else _INVALID
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _ascii(body: dict[str, Any]) -> bytes:
    # Whatever the client sent may be in it; escaped, even lone surrogates are ASCII.
    return json.dumps(body, allow_nan=False).encode()
