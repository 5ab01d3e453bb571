"""Errors as HTTP: one table from error family to status and `detail`."""

import asyncpg
from cascade_core.errors import Corrupt, Refused, Unavailable
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic_core import to_jsonable_python
from starlette.exceptions import HTTPException

RETRY_AFTER_S = "1"


class Unauthorized(HTTPException):
    """The token is missing or wrong. spec: errors, 401."""

    def __init__(self) -> None:
        super().__init__(401, "missing or wrong token", headers={"WWW-Authenticate": "Bearer"})


def install(app: FastAPI) -> None:
    """Teach the app every error family."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(Unavailable, _unavailable)
    app.add_exception_handler(Corrupt, _corrupt)
    app.add_exception_handler(RequestValidationError, _invalid)
    for family in (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
        app.add_exception_handler(family, _server_gone)


async def _refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    return JSONResponse({"detail": error.detail}, error.status)


async def _unavailable(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 503, headers={"Retry-After": RETRY_AFTER_S})


async def _server_gone(_request: Request, error: Exception) -> JSONResponse:
    # A lost Postgres shows as one of many driver errors; what the client should do is the same.
    detail = f"the database does not answer ({type(error).__name__}); try again in a moment"
    return JSONResponse({"detail": detail}, 503, headers={"Retry-After": RETRY_AFTER_S})


async def _corrupt(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": f"stored data is damaged: {error}. Run `cascade doctor`."}, 500)


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = [{key: value for key, value in problem.items() if key != "url"} for problem in error.errors()]
    for problem in problems:
        if "ctx" in problem:
            problem["ctx"] = {key: _plain(value) for key, value in problem["ctx"].items()}
        problem["input"] = _short(
            to_jsonable_python(problem.get("input"), fallback=str, inf_nan_mode="strings")
        )
    return JSONResponse({"detail": problems}, 422)


_LONGEST_ECHO = 1000
"""An invalid body is echoed in part only: it may be a log chunk of megabytes."""


def _short(value: object) -> object:
    if isinstance(value, str) and len(value) > _LONGEST_ECHO:
        return value[:_LONGEST_ECHO] + "…"
    if isinstance(value, list | dict) and len(str(value)) > _LONGEST_ECHO:
        return str(value)[:_LONGEST_ECHO] + "…"
    return value


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
