"""Bodies of errors. spec: errors."""

from typing import Any

from pydantic import BaseModel, Field, JsonValue

ResponseDocs = dict[int | str, dict[str, Any]]


class Problem(BaseModel):
    """Why a request was refused or could not be carried out, in a sentence."""

    detail: str = Field(description="What was met, what was expected and what to do.")


class FieldProblem(BaseModel):
    """One thing in a body that does not fit its model."""

    type: str = Field(description="The kind of problem, such as `greater_than_equal`.")
    loc: list[str | int] = Field(description="Path into the request, beginning with `body`.")
    msg: str
    input: JsonValue = Field(description="What was met, shortened where it is long.")
    ctx: dict[str, JsonValue] = Field(default_factory=dict, description="The limit, where there is one.")


class InvalidRequest(BaseModel):
    """A request that does not fit: a sentence, or one entry for each problem of a body."""

    detail: str | list[FieldProblem]


_WHEN = {
    400: "The request is not HTTP that can be read.",
    401: "The `Authorization` header is missing, is not `Bearer <token>`, or the token is wrong.",
    404: "What the path or the body names does not exist.",
    409: "What was asked for does not go with the present state.",
    413: "The body is larger than what is kept.",
    422: "The body or the name does not fit its model.",
    503: "A server that Cascade needs does not answer. Nothing was lost; send the same request again.",
}


def documented(*statuses: int, token: bool = True, unavailable: str = _WHEN[503]) -> ResponseDocs:
    """The error responses of a route for its OpenAPI entry; 503 always, 401 unless the route is open.

    unavailable: what a 503 means where sending the same request again is not harmless.
    """
    every = {*statuses, 503} | ({401} if token else set())
    when = _WHEN | {503: unavailable}
    return {
        status: {"model": InvalidRequest if status == 422 else Problem, "description": when[status]}
        for status in sorted(every)
    }
