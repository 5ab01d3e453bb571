"""The bearer token, compared in constant time before anything else of a request is looked at."""

import hmac
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from cascade_core.sim_tokens import PREFIX, sim_token
from fastapi import Request, Response
from fastapi.routing import APIRoute

from cascade_api import absence
from cascade_api.problems import Unauthorized
from cascade_api.settings import ApiSettings

_SCHEME = b"Bearer "
_SIM_PREFIX = PREFIX.encode()


class TokenCheck:
    """Who may call."""

    def __init__(self, settings: ApiSettings) -> None:
        self.required = not settings.no_auth
        token = settings.token.get_secret_value() if settings.token else ""
        self._token = token
        self._forms = _forms(token)

    def accepts_header(self, request: Request) -> bool:
        """Whether the Authorization header carries the token."""
        # Header bytes arrive as latin-1 text, whatever they were.
        return self.accepts_authorization(request.headers.get("authorization", "").encode("latin-1"))

    def accepts_authorization(self, value: bytes) -> bool:
        """Whether the Authorization header's value carries the token."""
        return not self.required or (value.startswith(_SCHEME) and self.accepts(value[len(_SCHEME) :]))

    def accepts_report(self, value: bytes, sim_id: str) -> bool:
        """Whether the Authorization header's value carries the token, or that of this very sim."""
        if self.accepts_authorization(value):
            return True
        given = value[len(_SCHEME) :]
        if not value.startswith(_SCHEME) or not given.startswith(_SIM_PREFIX):
            return False
        return hmac.compare_digest(given, sim_token(self._token, sim_id).encode())

    def accepts(self, given: bytes) -> bool:
        """Whether `given` is the token."""
        matches = [hmac.compare_digest(given, form) for form in self._forms]  # all of them, in constant time
        return not self.required or any(matches)


def _forms(token: str) -> list[bytes]:
    """The token's bytes on the wire: UTF-8, or Latin-1, which is what Python's urllib and browsers make of a header."""
    forms = [token.encode()]
    with suppress(UnicodeEncodeError):
        forms.append(token.encode("latin-1"))
    return forms


class AuthedRoute(APIRoute):
    """A route that checks the token before it parses the request: a stranger learns nothing of bodies or ids."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The checked handler."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            check: TokenCheck = request.app.state.gateway.token_check
            if not check.accepts_header(request):
                raise Unauthorized
            with absence.judged(request.app.state.gateway.gate):
                return await handle(request)

        return checked


class SimulatorRoute(APIRoute):
    """A route that a sim's simulator calls: the token of the sim in the path opens it too."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The checked handler."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            check: TokenCheck = request.app.state.gateway.token_check
            given = request.headers.get("authorization", "").encode("latin-1")
            if not check.accepts_report(given, request.path_params["sim_id"]):
                raise Unauthorized
            with absence.judged(request.app.state.gateway.gate):
                return await handle(request)

        return checked


class StreamRoute(APIRoute):
    """A route that also takes the token as `?token=`, since a browser's EventSource cannot send headers."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The checked handler."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            check: TokenCheck = request.app.state.gateway.token_check
            given = request.query_params.get("token")
            # spec: api-events. If present, it is checked instead of the header.
            accepted = check.accepts_header(request) if given is None else check.accepts(_utf8(given))
            if not accepted:
                raise Unauthorized
            with absence.judged(request.app.state.gateway.gate):
                return await handle(request)

        return checked


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
