"""Runs the MCP server on stdio or on streamable http."""

import ipaddress

import uvicorn
from starlette.types import ASGIApp

from cascade_mcp.guard import BearerGuard
from cascade_mcp.server import build_server


class OpenDoorError(Exception):
    """Without a token, anybody on the network could act through this server."""


def serve(url: str, token: str | None, *, http: tuple[str, int] | None = None) -> None:
    """Serve until the client leaves (stdio) or the process is stopped (http).

    http: host and port to listen on; the endpoint is /mcp. Requests must carry the app's token as a bearer.
    Raises OpenDoorError.
    """
    server = build_server(url, token)
    if http is None:
        server.run("stdio")
        return
    host, port = http
    app = http_app(url, token, host=host)
    uvicorn.run(app, host=host, port=port, log_level="warning", server_header=False)


def http_app(url: str, token: str | None, *, host: str) -> ASGIApp:
    """The streamable http endpoint at /mcp. Raises OpenDoorError."""
    if token is None and not _is_loopback(host):
        raise OpenDoorError(
            f"{host} can be reached by others and the app has no token: listen on 127.0.0.1, or set CASCADE_TOKEN"
        )
    app = build_server(url, token).streamable_http_app(host=host)
    return BearerGuard(app, token) if token is not None else app


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
