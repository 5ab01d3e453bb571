"""What can go wrong in a call: the app refused it, the app is in trouble, or nobody answered.

ClientError
├── Unreachable         no answer: wrong URL, app down, connection lost
├── UnexpectedAnswer    an answer that this client cannot read
└── ApiError            an answer with an error status and its `detail`
    ├── Unauthorized    401
    ├── NotFound        404
    ├── Conflict        409
    ├── TooLarge        413
    ├── Invalid         422
    └── ServerError     5xx
        └── Unavailable 503: try again after `retry_after_s`
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_LONGEST_DETAIL: Final = 2000


class ClientError(Exception):
    """A call failed. The message says what was met and what to do."""


class Unreachable(ClientError):
    """Nobody answered, or the answer broke off."""


class UnexpectedAnswer(ClientError):
    """The answer is not what the API promises: another server, or a version apart."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One problem of a body that failed validation."""

    where: str
    """Path into the request, such as `body.entries.0.count`."""
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class ApiError(ClientError):
    """The app answered with an error status."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        problems: tuple[FieldProblem, ...] = (),
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(f"{detail} (HTTP {status})")
        self.status = status
        self.detail = detail
        """The app's own sentence; for a body that failed validation, its problems in one line."""
        self.problems = problems
        self.members = dict(members or {})
        """What the body holds besides, such as a scenario's `run_id` and `sim_id`."""


class Unauthorized(ApiError):
    """The token is missing or wrong. Do not try others; ask whoever runs the app."""


class NotFound(ApiError):
    """No such trace, run, sim or file, or no such route."""


class Conflict(ApiError):
    """The trace is not ready, or the sim does not take this any more."""


class TooLarge(ApiError):
    """The file, or the sim's files together, would pass a limit."""


class Invalid(ApiError):
    """The body is not acceptable: see `problems`, or `detail` alone where the app gave a sentence."""


class ServerError(ApiError):
    """The app failed. Calls that are safe to repeat have been repeated before this is raised."""


class Unavailable(ServerError):
    """The app cannot take the call right now."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        members: Mapping[str, object] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(status, detail, members=members)
        self.retry_after_s = retry_after_s


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    401: Unauthorized,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: Invalid,
}


def error_of(status: int, body: bytes, *, retry_after: str | None = None) -> ApiError:
    """The error that an answer means. A body that is not the API's still gives its beginning as the detail."""
    members = _members(body)
    detail, problems = _detail(members.pop("detail", None), body)
    if status == 503:
        return Unavailable(status, detail, members=members, retry_after_s=_seconds(retry_after))
    if status >= 500:
        return ServerError(status, detail, members=members)
    return _BY_STATUS.get(status, ApiError)(status, detail, problems=problems, members=members)


def _members(body: bytes) -> dict[str, object]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _detail(detail: object, body: bytes) -> tuple[str, tuple[FieldProblem, ...]]:
    if isinstance(detail, str):
        return detail, ()
    if isinstance(detail, list):
        problems = tuple(_problem(item) for item in detail if isinstance(item, dict))
        return "; ".join(map(str, problems)) or "the body is not valid", problems
    return body.decode("utf-8", "replace").strip()[:_LONGEST_DETAIL] or "no detail was given", ()


def _problem(item: Mapping[str, object]) -> FieldProblem:
    where = item.get("loc")
    path = ".".join(str(part) for part in where) if isinstance(where, list) else "body"
    return FieldProblem(path, str(item.get("msg", "is not valid")))


def _seconds(retry_after: str | None) -> float | None:
    try:
        seconds = float(retry_after) if retry_after is not None else None
    except ValueError:
        return None  # an HTTP date: nothing of ours sends one
    return seconds if seconds is not None and 0 <= seconds < float("inf") else None
