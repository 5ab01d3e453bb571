"""Heartbeats and log chunks without the framework around them.

Thousands of these calls a second arrive, and all that the framework does for a route (matching, dependencies, exit
stacks, response classes) costs several times what the call itself does. The routes stay registered: they document
the calls, and they answer where this module is not in front.
"""

import time

from cascade_core import telemetry
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from cascade_api import problems, reporting
from cascade_api.bodies import MOST_BODY_BYTES, body_of
from cascade_api.gateway import Gateway
from cascade_api.observing import Observed, describe, observe

_PREFIX = "/api/sims/"
_REPORTS: dict[str, reporting.Report] = {
    "logs": reporting.report_log,
    "heartbeat": reporting.report_heartbeat,
}
_ROUTES = {report: f"POST {_PREFIX}{{sim_id}}/{call}" for call, report in _REPORTS.items()}
_NO_CONTENT = {"type": "http.response.start", "status": 204, "headers": []}
_JSON = b"application/json"


class HotRoutes:
    """An ASGI app in front of the whole one."""

    def __init__(self, app: FastAPI) -> None:
        self._app: ASGIApp = Observed(app)
        self._state = app.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a report, or leave everything else to the app."""
        if scope["type"] == "http" and scope["method"] == "POST":
            path: str = scope["path"]
            if path.startswith(_PREFIX):
                sim_id, _, call = path[len(_PREFIX) :].partition("/")
                report = _REPORTS.get(call)
                if report is not None and sim_id:
                    await self._answer(report, sim_id, scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _answer(
        self, report: reporting.Report, sim_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        gateway: Gateway = self._state.gateway
        started = time.perf_counter()
        authorization, attempt, traceparent = b"", None, None
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value
            elif name == b"x-cascade-attempt":
                attempt = value.decode("latin-1")
            elif name == b"traceparent":
                traceparent = value.decode("latin-1")
        route = _ROUTES[report]
        with telemetry.request_span(route, traceparent) as span:
            try:
                if not gateway.token_check.accepts_report(authorization, sim_id):
                    raise problems.Unauthorized
                answer = await report(gateway, sim_id, await _body(scope, receive), attempt)
            except (*problems.EXPECTED, HTTPException, RequestValidationError) as error:
                response = problems.response_to(error, gateway)
                await response(scope, receive, send)
                status = response.status_code
            except Exception as error:  # noqa: BLE001 - the client gets an answer; the log gets the traceback
                problems.log_unexpected(error, scope["path"])
                await problems.unexpected_response()(scope, receive, send)
                status = 500
            else:
                status = await _send(send, answer)
            describe(span, route, status, {"sim_id": sim_id})
        observe(route, status, time.perf_counter() - started)


async def _send(send: Send, answer: bytes) -> int:
    """Send a success; its status."""
    if not answer:
        await send(_NO_CONTENT)
        await send({"type": "http.response.body", "body": b""})
        return 204
    headers = [(b"content-type", _JSON), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
    return 200


async def _body(scope: Scope, receive: Receive) -> bytes:
    # Nearly every body arrives in one piece.
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message["body"]
        if len(body) <= MOST_BODY_BYTES:
            return body

    first = [message]

    async def replayed() -> dict[str, object]:
        return dict(first.pop() if first else await receive())

    return await body_of(Request(scope, replayed))
