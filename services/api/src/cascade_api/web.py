"""Serves the built dashboard: hashed assets for ever, `index.html` for every other path outside `/api/`."""

from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from starlette.exceptions import HTTPException

BUNDLED = Path(__file__).parent / "static"
_FOR_EVER = "public, max-age=31536000, immutable"
_SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Cascade</title>
<body style="font-family:system-ui;margin:3rem;max-width:40rem"><h1>Cascade is running</h1>
<p>The dashboard is not built yet. Build it with <code>uv run cascade web build</code>, then reload this page.
The HTTP API works without it: see <a href="/api/openapi.json">/api/openapi.json</a>.</p></body></html>"""


def install(app: FastAPI, directory: Path | None) -> None:
    """Serve the dashboard from `directory`, or from the bundled build. Looked up on each request: it may come later."""
    root = (directory or BUNDLED).resolve()

    @app.api_route(
        "/api/{path:path}", methods=["GET", "POST", "PUT", "DELETE", "PATCH"], include_in_schema=False
    )
    async def unknown_route(path: str) -> Response:
        del path
        raise HTTPException(404, "Not Found")

    @app.get("/{path:path}", include_in_schema=False)
    async def page(path: str, request: Request) -> Response:
        del request
        asset = (root / path).resolve()
        if path and asset.is_relative_to(root) and asset.is_file():
            headers = dict(_SECURITY_HEADERS)
            headers["Cache-Control"] = _FOR_EVER if path.startswith("assets/") else "no-cache"
            return FileResponse(asset, headers=headers)
        index = root / "index.html"
        if not index.is_file():
            return HTMLResponse(_NOT_BUILT, headers=_SECURITY_HEADERS)
        return FileResponse(index, headers={**_SECURITY_HEADERS, "Cache-Control": "no-cache"})
