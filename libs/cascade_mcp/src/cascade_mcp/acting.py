"""Tools that start, follow and stop work."""

import asyncio
from contextlib import aclosing
from typing import Annotated, Final

from cascade_client.errors import ServerError, Unreachable
from cascade_client.launching import MOST_UNASKED_SIMS, described, total_sims
from cascade_client.progress import RunProgress
from cascade_client.wire.events import SimEvent, SnapshotEvent
from cascade_client.wire.runs import RunEntry
from cascade_client.wire.scenarios import ScenarioRequest
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from cascade_mcp import answers
from cascade_mcp.calling import OpenClient, advice, calling

LONGEST_WAIT_S: Final = 300.0
"""One call waits no longer, so that the user hears of the progress; call again."""


def add_acting_tools(server: MCPServer[None], open_client: OpenClient) -> None:
    """Give the server its acting tools."""

    @server.tool(
        annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False)
    )
    async def launch_run(
        trace_id: Annotated[str, Field(description="A `ready` trace.")],
        entries: Annotated[
            list[RunEntry],
            Field(
                min_length=1, description="GPU configs of the trace's architecture, each with its replicas."
            ),
        ],
        confirmed: Annotated[
            bool,
            Field(
                description=f"True only after the user said yes to these entries; needed above {MOST_UNASKED_SIMS}."
            ),
        ] = False,
    ) -> answers.RunAnswer:
        """Launch sims. Only when the user asked for a run. One replica a config unless the user wants more; 3 show
        whether numbers are stable. Above 4 sims in total it refuses until the user has said yes to the entries."""
        total = total_sims(entries)
        if total > MOST_UNASKED_SIMS and not confirmed:
            raise ToolError(
                f"Nothing was launched. This run would start {total} sims on trace {trace_id}: {described(entries)}. "
                "Show the user these entries and the total, and call again with confirmed: true only after they agree."
            )
        async with calling(open_client) as client:
            try:
                run = await client.launch(trace_id, entries)
                return answers.run_answer(run, await client.statements(run))
            except (Unreachable, ServerError) as error:
                raise ToolError(
                    f"{advice(error)} The run may exist all the same: look for a new run of {trace_id} with list_runs "
                    "before you launch again."
                ) from error

    @server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    async def wait_for_run(
        run_id: str,
        context: Context[None, object],
        at_most_s: Annotated[float, Field(gt=0, le=LONGEST_WAIT_S, description="Wait no longer. [s]")] = 60.0,
    ) -> answers.RunAnswer:
        """Follow a run until it ends or the time is up, then show it. Call again while it is `active`."""
        progress = RunProgress()
        async with calling(open_client) as client:
            try:
                async with asyncio.timeout(at_most_s), aclosing(client.events(run_id)) as events:
                    async for event in events:
                        progress.take(event)
                        if isinstance(event, SnapshotEvent | SimEvent):
                            done = sum(sim.kernels_done for sim in progress.sims.values())
                            total = sum(
                                max(sim.kernels_total, sim.kernels_done) for sim in progress.sims.values()
                            )
                            await context.report_progress(done, total, f"{done} of {total} kernels")
            except TimeoutError:
                pass  # the answer says that the run is still active
            run = await client.run(run_id)
            return answers.run_answer(run, await client.statements(run))

    @server.tool(
        annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True)
    )
    async def cancel_run(run_id: str) -> answers.RunAnswer:
        """Stop every sim of a run that has not finished. Only when the user asked for it. Cannot be undone."""
        async with calling(open_client) as client:
            run = await client.cancel(run_id)
            return answers.run_answer(run, await client.statements(run))

    @server.tool(
        annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False)
    )
    async def simulate_scenario(scenario: ScenarioRequest) -> answers.ScenarioAnswer:
        """Predict how a serving load would fare (latencies, throughput) on a simulated GPU profile. Without a finished
        base sim on that config it launches one: only when the user asked for it. The answer says what is not
        validated."""
        async with calling(open_client) as client:
            response = await client.scenario(scenario)
            base = await client.run(response.run_id) if response.run_id is not None else None
            statements = await client.statements(base, sim_id=response.sim_id) if base is not None else []
        return answers.scenario_answer(response, base, statements)
