"""Tools that look and change nothing."""

from typing import Annotated, Final

from cascade_client.errors import Unauthorized
from cascade_client.wire.runs import RunSummary
from cascade_client.wire.traces import GpuConfig, TraceState
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from cascade_mcp import answers
from cascade_mcp.calling import OpenClient, calling

READ_ONLY: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)


class AppStatus(BaseModel):
    """The app and the servers behind it."""

    ok: bool
    token_needed: bool
    token_accepted: bool
    workspace: str | None
    servers: dict[str, str] = Field(description="`ok`, or what is wrong, by server.")


class ReadingTools:
    """Looks at the app, its traces, configs and runs."""

    def __init__(self, open_client: OpenClient) -> None:
        self._open_client = open_client

    def add_to(self, server: MCPServer[None]) -> None:
        """Give the server these tools."""
        for tool in (
            self.check_app,
            self.list_traces,
            self.get_trace,
            self.list_gpu_configs,
            self.list_runs,
            self.get_run,
        ):
            server.add_tool(tool, annotations=READ_ONLY)

    async def check_app(self) -> AppStatus:
        """Check that the app answers, that it accepts the token, and that the servers behind it are up."""
        async with calling(self._open_client) as client:
            health = await client.health()
            ready = await client.ready()
            try:
                await client.gpu_configs()
                accepted = True
            except Unauthorized:
                accepted = False
            return AppStatus(
                ok=ready.ok,
                token_needed=health.auth,
                token_accepted=accepted,
                workspace=health.workspace,
                servers=ready.model_dump(exclude={"ok"}),
            )

    async def list_traces(
        self,
        state: Annotated[TraceState | None, Field(description="Only traces in this state.")] = None,
        model: Annotated[str | None, Field(description="Only traces whose model contains this.")] = None,
    ) -> list[answers.TraceLine]:
        """List traces, newest first. Only a `ready` trace that is no sample can be launched."""
        async with calling(self._open_client) as client:
            traces = await client.traces()
        return [
            answers.trace_line(trace)
            for trace in traces
            if state in (None, trace.state)
            and (model is None or model.lower() in (trace.model or "").lower())
        ]

    async def get_trace(self, trace_id: str) -> answers.TraceAnswer:
        """Show one trace: its state, its error if it failed, where its data come from, and its kernels by name."""
        async with calling(self._open_client) as client:
            return answers.trace_answer(await client.trace(trace_id))

    async def list_gpu_configs(
        self,
        trace_id: Annotated[str | None, Field(description="Only configs that this trace can run on.")] = None,
    ) -> list[GpuConfig]:
        """List GPU configs, all or those of a trace's architecture."""
        async with calling(self._open_client) as client:
            configs = await client.gpu_configs()
            arch = (await client.trace(trace_id)).trace_gpu_arch if trace_id is not None else None
        return [config for config in configs if arch in (None, config.arch)]

    async def list_runs(
        self,
        trace_id: Annotated[str | None, Field(description="Only runs of this trace.")] = None,
        limit: Annotated[int, Field(ge=1, le=200)] = 20,
    ) -> list[RunSummary]:
        """List runs, newest first."""
        async with calling(self._open_client) as client:
            runs = await client.runs()
        return [run for run in runs if trace_id in (None, run.trace_id)][:limit]

    async def get_run(self, run_id: str) -> answers.RunAnswer:
        """Show one run: its state, its sims' progress, and what must be said before any of its numbers."""
        async with calling(self._open_client) as client:
            run = await client.run(run_id)
            return answers.run_answer(run, await client.statements(run))
