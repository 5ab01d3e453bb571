"""How a tool talks to the app: one client a call, failures as sentences that an agent can act on."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from cascade_client.async_client import AsyncCascadeClient
from cascade_client.errors import ApiError, ClientError, Conflict, NotFound, Unauthorized
from mcp.server.mcpserver.exceptions import ToolError

OpenClient: TypeAlias = Callable[[], AsyncCascadeClient]


@asynccontextmanager
async def calling(open_client: OpenClient) -> AsyncIterator[AsyncCascadeClient]:
    """A client for one tool call. Raises ToolError for every failed call in the block."""
    try:
        async with open_client() as client:
            yield client
    except ClientError as error:
        raise ToolError(advice(error)) from error


def advice(error: ClientError) -> str:
    """What went wrong and what to do next. Never holds the token."""
    if not isinstance(error, ApiError):
        return str(error)
    said = f"{error.detail.rstrip('.')} (HTTP {error.status})."
    match error:
        case Unauthorized():
            return f"{said} Stop and ask the user to check CASCADE_TOKEN; do not try other tokens."
        case NotFound():
            return f"{said} list_traces and list_runs give the ids that exist."
        case Conflict():
            return f"{said} get_trace tells the trace's state: wait while it is uploading or processing."
        case _:
            return said
