"""The Get started page and its one endpoint. It keeps nothing: no key, no workspace, no log of either.

Each request runs in a process of its own (`child`), which gets the key on standard input and ends with the answer. A
page that is closed ends its process; a deploy that broke off is finished by the next one.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cascade_cli import bundled
from cascade_cli.deploy_sail.child import Request
from cascade_cli.deploy_sail.options import OptionError, check_workspace

PAGE = bundled.ROOT / "deploy" / "get-started"
FILES = {"/": "start.html", "/start.html": "start.html", "/start.js": "start.js", "/start.css": "start.css"}
MAX_BODY_BYTES = 8 * 1024
MAX_AT_ONCE = 8
"""Requests under way. A deploy waits for Sail most of its time; the limit is for memory."""
REQUEST_TIMEOUT_S = 1800.0
"""An image that Sail does not know yet may take this long to be pulled."""
LINE_LIMIT_BYTES = 64 * 1024

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}

Runner = Callable[[Request], AsyncIterator[bytes]]
"""Answers one request with lines of JSON."""


def build_app(runner: Runner) -> Starlette:
    """The page with `runner` behind its endpoint."""
    slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def file(request: HttpRequest) -> Response:
        return FileResponse(PAGE / FILES[request.url.path])

    async def workspaces(request: HttpRequest) -> Response:
        refused = _foreign(request)
        if refused is not None:
            return JSONResponse({"error": refused}, 403)
        body = await _body(request)
        if body is None:
            return JSONResponse({"error": f"the request is larger than {MAX_BODY_BYTES} bytes"}, 413)
        try:
            asked = Request.model_validate_json(body)
            check_workspace(asked.workspace)
        except ValidationError as error:
            fields = ", ".join(".".join(map(str, problem["loc"])) or "the body" for problem in error.errors())
            return JSONResponse({"error": f"the request cannot be used; look at: {fields}"}, 422)
        except OptionError as error:
            return JSONResponse({"error": str(error)}, 422)
        if slots.locked():
            return JSONResponse({"error": "too many requests are under way; try again in a minute"}, 503)

        async def lines() -> AsyncIterator[bytes]:
            async with slots:
                async for line in runner(asked):
                    yield line

        return StreamingResponse(
            lines(), media_type="application/x-ndjson", headers={"x-accel-buffering": "no"}
        )

    routes = [Route(path, file) for path in FILES]
    return Starlette(
        routes=[*routes, Route("/api/workspaces", workspaces, methods=["POST"])],
        middleware=[Middleware(_SecurityHeaders)],
    )


async def in_own_process(
    request: Request, *, command: Sequence[str] = (), timeout_s: float = REQUEST_TIMEOUT_S
) -> AsyncGenerator[bytes, None]:
    """The lines of a `child` for `request`. The child ends with the iteration, at the latest after `timeout_s`."""
    words = command or (sys.executable, "-m", "cascade_cli.deploy_sail.child")
    async with _process(words) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = request.model_dump(mode="json") | {"api_key": request.api_key.get_secret_value()}
        process.stdin.write(_json(said))
        process.stdin.close()
        try:
            async with asyncio.timeout(timeout_s):
                finished = False
                while line := await process.stdout.readline():
                    finished = finished or b'"step"' not in line
                    yield line
                if not finished:
                    yield _json({"error": "the request ended without an answer; try again"})
        except TimeoutError:
            yield _json(
                {"error": f"Sail did not finish within {timeout_s:.0f} s; try again, it goes on from there"}
            )


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"


@asynccontextmanager
async def _process(words: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    # No credentials of this machine: neither the environment's nor those of `sail auth login` in its home.
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "SAIL_API_URL") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # a traceback might quote what must not be kept
        env=environment | {"HOME": "/nonexistent"},
        limit=LINE_LIMIT_BYTES,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it may have ended without the event loop knowing yet
                os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _foreign(request: HttpRequest) -> str | None:
    """Why a request is not one of this page's own; None if it is."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return "send application/json"
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        return "requests from other pages are not answered"
    return None


async def _body(request: HttpRequest) -> bytes | None:
    """The body; None for one that is too large."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            return None
    return bytes(body)


class _SecurityHeaders:
    """Adds the headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                kept = [pair for pair in message.get("headers", []) if pair[0].decode() not in _HEADERS]
                message = {**message, "headers": [*kept, *added]}
            await send(message)

        await self._app(scope, receive, with_headers)


def run_get_started(host: str, port: int) -> int:
    """Serve the page until a signal."""
    import uvicorn

    if not Path(PAGE / "start.html").is_file():
        from cascade_cli.output import fail

        fail("the page's files are not here", "run this from a checkout of the repository")
    # Without an access log: it would say who made which workspace when.
    uvicorn.run(
        build_app(in_own_process),
        host=host,
        port=port,
        access_log=False,
        server_header=False,
        log_level="warning",
    )
    return 0
