"""How long requests take, and the spans that join them to their callers' traces. Wraps the app; changes no answer."""

import time
from functools import cache

from cascade_core import telemetry
from cascade_core.metrics import HTTP_SECONDS
from opentelemetry.trace import Span
from prometheus_client import Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OTHER = "other"
"""The route of the dashboard's files and of what no route serves: what strangers ask for must not make labels."""
_ANY_PATH = "{path:path}"
_QUIET_PATHS = frozenset({"/api/health", "/api/ready", "/api/metrics"})
_NAMED_IDS = ("run_id", "sim_id", "trace_id")


class Observed:
    """An ASGI app around another one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, and take note of what was served. Event streams have no time: they last as long as somebody looks."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status, streams = 500, False

        async def noting(message: Message) -> None:
            nonlocal status, streams
            if message["type"] == "http.response.start":
                status = message["status"]
                streams = any(
                    name == b"content-type" and value.startswith(b"text/event-stream")
                    for name, value in message["headers"]
                )
            await send(message)

        traceparent = _traceparent(scope)
        try:
            if traceparent is None and not _is_traced(scope["path"]):
                await self._app(scope, receive, noting)
            else:
                with telemetry.request_span(scope["method"], traceparent) as span:
                    try:
                        await self._app(scope, receive, noting)
                    finally:
                        describe(span, _route_of(scope), status, scope.get("path_params", {}))
        finally:
            if not streams:
                observe(_route_of(scope), status, time.perf_counter() - started)


def observe(route: str, status: int, seconds: float) -> None:
    """Note one answered request. `route`: method and template."""
    _child(route, status // 100).observe(seconds)


def describe(span: Span | None, route: str, status: int, ids: dict[str, str]) -> None:
    """Name a request's span, once its route is known."""
    if span is None:
        return
    span.update_name(route)
    span.set_attribute("http.response.status_code", status)
    for name in _NAMED_IDS:
        if name in ids:
            span.set_attribute(name, ids[name])


@cache
def _child(route: str, status_class: int) -> Histogram:
    return HTTP_SECONDS.labels(route, f"{status_class}xx")


def _route_of(scope: Scope) -> str:
    template = getattr(scope.get("route"), "path", None)
    return OTHER if template is None or _ANY_PATH in template else f"{scope['method']} {template}"


def _traceparent(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"traceparent":
            text: str = value.decode("latin-1")
            return text
    return None


def _is_traced(path: str) -> bool:
    # Probes and the dashboard's own files would hide what matters.
    return path.startswith(("/api/", "/v1/")) and path not in _QUIET_PATHS
