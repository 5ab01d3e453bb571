"""Serves the built dashboard: hashed assets for ever, `index.html` for every other path outside `/api/`."""

from collections.abc import Awaitable, Callable, Sequence
from email.utils import formatdate
from pathlib import Path
from stat import S_ISREG

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route, request_response
from starlette.types import Receive, Scope, Send

from cascade_api.routing import methods_taken

BUNDLED = Path(__file__).parent / "static"
_ASSETS = "assets/"
_FOR_EVER = "public, max-age=31536000, immutable"
_SOURCES = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "worker-src": "'self'",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
CONTENT_SECURITY_POLICY = "; ".join(f"{what} {where}" for what, where in _SOURCES.items())
"""The dashboard's assets hold nothing inline. It opens ui.perfetto.dev in a window and posts to it, which needs none
of these."""
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Not `same-origin`: the dashboard hands a trace to the Perfetto window that it opened.
    "Cross-Origin-Opener-Policy": "same-origin-allow-popups",
}
_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Cascade</title>
<body><h1>Cascade is running</h1>
<p>The dashboard is not built yet. Build it with <code>uv run cascade web build</code>, then reload this page.
The HTTP API works without it: see <a href="/api/openapi.json">/api/openapi.json</a>.</p></body></html>"""


def install(app: FastAPI, api_routes: Sequence[BaseRoute], directory: Path | None) -> None:
    """Serve the dashboard from `directory`, or from the bundled build. Looked up on each request: it may come later.

    api_routes: every route under `/api/`, to tell a wrong method from an unknown path.
    """
    root = (directory or BUNDLED).resolve()

    async def unknown_route(request: Request) -> Response:
        # spec: api, routes. A path that no route serves is not found; a known one says which methods it takes.
        if methods := methods_taken(request.scope, api_routes):
            raise HTTPException(405, "Method Not Allowed", headers={"Allow": ", ".join(methods)})
        raise HTTPException(404, "Not Found")

    async def page(request: Request) -> Response:
        path: str = request.path_params["path"]
        if request.method not in ("GET", "HEAD"):
            raise HTTPException(405, "Method Not Allowed", headers={"Allow": "GET, HEAD"})
        asset = _file(root, path)
        if asset is not None:
            kept = _FOR_EVER if path.startswith(_ASSETS) else "no-cache"
            return _answer(request, asset, kept)
        if path.startswith(_ASSETS):
            raise HTTPException(404, "Not Found")  # a page here would be taken for a broken script
        index = _file(root, "index.html")
        if index is None:
            return HTMLResponse(_NOT_BUILT, headers=SECURITY_HEADERS | {"Cache-Control": "no-store"})
        return _answer(request, index, "no-cache")

    app.router.routes.append(Route("/api/{path:path}", _AnyMethod(unknown_route), include_in_schema=False))
    app.router.routes.append(Route("/{path:path}", _AnyMethod(page), include_in_schema=False))


class _AnyMethod:
    """An endpoint for every method: the framework would answer the others by itself, with a body of its own."""

    def __init__(self, handle: Callable[[Request], Awaitable[Response]]) -> None:
        self._app = request_response(handle)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _file(root: Path, path: str) -> Path | None:
    """The regular file that `path` names under `root`; None for anything else, however it is spelled."""
    if not path or "\x00" in path:
        return None
    try:
        asset = (root / path).resolve()
        return asset if asset.is_relative_to(root) and S_ISREG(asset.stat().st_mode) else None
    except OSError:
        return None  # not there, or a name that no file can have


def _answer(request: Request, asset: Path, cache_control: str) -> Response:
    status = asset.stat()
    etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
    headers = SECURITY_HEADERS | {
        "Cache-Control": cache_control,
        "ETag": etag,
        "Last-Modified": formatdate(status.st_mtime, usegmt=True),
    }
    if etag in (tag.strip() for tag in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    return FileResponse(asset, headers=headers)
