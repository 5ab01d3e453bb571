"""What the sync and the async client share: the URL and the headers, and how answers become values or errors."""

from typing import Final, TypeVar
from urllib.parse import urlsplit

import httpx

from cascade_client.calls import Call
from cascade_client.errors import ClientError, Unreachable, error_of

T = TypeVar("T")

TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 10.0
SILENCE_S: Final = 45.0
"""The app sends a comment after 15 quiet seconds, so a stream silent for longer is dead. [s]"""


class InvalidUrl(ClientError):
    """The app's URL is not one."""


def checked_url(url: str) -> str:
    """The base URL without its trailing slash. Raises InvalidUrl."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidUrl(f"{url!r} is no URL of an app: give one such as http://127.0.0.1:8000")
    return url.rstrip("/")


class InvalidToken(ClientError):
    """The token is nothing that a header can carry. The message does not show it."""


def headers_of(token: str | None) -> httpx.Headers:
    """The headers of every request. What surrounds a pasted token is left out. Raises InvalidToken."""
    headers = {"User-Agent": "cascade-client", "Accept-Encoding": "identity"}
    token = (token or "").strip()
    if not token.isprintable():
        raise InvalidToken("the token holds a line break or another character that no header can carry")
    return httpx.Headers(headers | ({"Authorization": f"Bearer {token}"} if token else {}), encoding="utf-8")


def timeout_of(read_s: float) -> httpx.Timeout:
    """Bounds for one request; `read_s` is the longest silence of the server."""
    return httpx.Timeout(read_s, connect=CONNECT_TIMEOUT_S, pool=None)


def answer_of(call: Call[T], response: httpx.Response) -> T:
    """The value of a complete answer. Raises ApiError, UnexpectedAnswer."""
    if not response.is_success and response.status_code not in call.also_ok:
        raise failure_of(response)
    return call.read(response.content)


def failure_of(response: httpx.Response) -> ClientError:
    """The error of a complete answer with an error status."""
    return error_of(response.status_code, response.content, retry_after=response.headers.get("Retry-After"))


def unreachable(url: str, error: httpx.RequestError) -> Unreachable:
    """No answer, in words."""
    reason = str(error) or type(error).__name__
    return Unreachable(f"{url} does not answer ({reason}). Is the app running, and is the URL right?")
