"""The MCP server of one app."""

from importlib.metadata import version

from cascade_client.async_client import AsyncCascadeClient
from mcp.server.mcpserver import MCPServer

from cascade_mcp.acting import add_acting_tools
from cascade_mcp.finding import FindingTools
from cascade_mcp.reading import ReadingTools
from cascade_mcp.rules import INSTRUCTIONS


def build_server(url: str, token: str | None) -> MCPServer[None]:
    """A server whose tools work the app at `url`. The token goes into its requests and nowhere else."""
    server: MCPServer[None] = MCPServer(
        "cascade",
        title="Cascade",
        version=version("cascade-mcp"),
        instructions=INSTRUCTIONS,
        log_level="WARNING",
    )

    def open_client() -> AsyncCascadeClient:
        return AsyncCascadeClient(url, token)

    ReadingTools(open_client).add_to(server)
    FindingTools(open_client).add_to(server)
    add_acting_tools(server, open_client)
    return server
