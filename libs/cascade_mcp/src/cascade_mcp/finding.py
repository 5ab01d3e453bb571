"""Tools that tell what runs found."""

from collections import deque
from typing import Annotated, Final

from cascade_client.provenance import Statement
from cascade_client.report import Report
from cascade_client.report_text import markdown
from cascade_client.wire.estimates import RunEstimate
from cascade_client.wire.results import RunFile
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from cascade_mcp import answers
from cascade_mcp.calling import OpenClient, calling
from cascade_mcp.reading import READ_ONLY

MOST_LOG_LINES: Final = 400
MOST_LINE_CHARS: Final = 2000
MOST_STATS: Final = 200


class ReportAnswer(BaseModel):
    """A run's report: as text to show, and as data."""

    text: str = Field(description="Markdown. Give the user its statements before its numbers.")
    report: Report


class LogAnswer(BaseModel):
    """Lines of a sim's output."""

    sim_id: str
    lines: list[str]
    total_lines: int
    matching_lines: int


class StatsAnswer(BaseModel):
    """One kernel's own statistics."""

    statements: list[Statement]
    kernel_name: str
    stats: dict[str, float | str]
    stats_left_out: int


class FindingTools:
    """Tells what a run found."""

    def __init__(self, open_client: OpenClient) -> None:
        self._open_client = open_client

    def add_to(self, server: MCPServer[None]) -> None:
        """Give the server these tools."""
        for tool in (
            self.get_report,
            self.get_comparison,
            self.get_kernel_stats,
            self.read_log,
            self.list_files,
            self.get_step_timing,
            self.get_estimate,
        ):
            server.add_tool(tool, annotations=READ_ONLY)

    async def get_report(self, run_id: str) -> ReportAnswer:
        """Tell what a run found: where its numbers come from, time by config with spread, ties and multiples,
        error against real hardware with its number of rows, the worst kernels, and why sims failed."""
        async with calling(self._open_client) as client:
            report = await client.report(run_id)
        return ReportAnswer(text=markdown(report), report=report)

    async def get_comparison(
        self,
        run_id: str,
        first: Annotated[int, Field(ge=0, description="First kernel position.")] = 0,
        count: Annotated[int, Field(ge=1, le=answers.MOST_ROWS)] = 50,
    ) -> answers.ComparisonAnswer:
        """Compare kernels by position: real time against the sims' time by config. [ns]"""
        async with calling(self._open_client) as client:
            run = await client.run(run_id)
            comparison = await client.comparison(run_id)
            statements = await client.statements(run)
        return answers.comparison_answer(run, statements, comparison, first=first, count=count)

    async def get_kernel_stats(
        self,
        sim_id: str,
        kernel_index: Annotated[int, Field(ge=0)],
        contains: Annotated[str, Field(description="Only statistics whose name contains this.")] = "",
    ) -> StatsAnswer:
        """Show the simulator's own statistics of one kernel (about 950 of them). Use it only when the user asks."""
        async with calling(self._open_client) as client:
            results = await client.sim_results(sim_id)
            run = await client.run(results.sim.run_id)
            statements = await client.statements(run, sim_id=sim_id)
        kernel = next((one for one in results.kernels if one.kernel_index == kernel_index), None)
        if kernel is None:
            raise ToolError(
                f"{sim_id} has finished {len(results.kernels)} kernels, none at index {kernel_index}."
            )
        chosen = {name: value for name, value in kernel.stats.items() if contains.lower() in name.lower()}
        return StatsAnswer(
            statements=statements,
            kernel_name=kernel.kernel_name,
            stats=dict(list(chosen.items())[:MOST_STATS]),
            stats_left_out=max(0, len(chosen) - MOST_STATS),
        )

    async def read_log(
        self,
        sim_id: str,
        pattern: Annotated[
            str | None,
            Field(
                max_length=200,
                description="Only lines that contain this, as plain text without case; | separates alternatives.",
            ),
        ] = None,
        last: Annotated[int, Field(ge=1, le=MOST_LOG_LINES, description="The last so many lines.")] = 60,
    ) -> LogAnswer:
        """Read the end of a sim's output, or search all of it, such as for error|abort|assert|fault|exception."""
        # Plain text: a regular expression may take for ever on one line, and every other call with it.
        wanted = [text for text in (pattern or "").lower().split("|") if text]
        kept: deque[str] = deque(maxlen=last)
        total = matching = 0
        async with calling(self._open_client) as client:
            async for line in client.log_lines(sim_id):
                total += 1
                shown = line[:MOST_LINE_CHARS]
                if not wanted or any(text in shown.lower() for text in wanted):
                    matching += 1
                    kept.append(shown)
        return LogAnswer(sim_id=sim_id, lines=list(kept), total_lines=total, matching_lines=matching)

    async def list_files(self, run_id: str) -> list[RunFile]:
        """List the output files of a run's sims. `cascade results RUN --files DIR` saves them."""
        async with calling(self._open_client) as client:
            return await client.run_files(run_id)

    async def get_step_timing(self, run_id: str) -> answers.StepTimingAnswer:
        """Show each sim's predicted step timing in summary, and its error against the measured steps."""
        async with calling(self._open_client) as client:
            run = await client.run(run_id)
            timelines = await client.step_timelines(run_id)
            statements = await client.statements(run)
        return answers.step_timing_answer(run, statements, timelines)

    async def get_estimate(self, run_id: str) -> RunEstimate:
        """Show the analytical estimate of a run: totals by config with intervals. It is no simulation: say so."""
        async with calling(self._open_client) as client:
            estimate = await client.estimate(run_id)
        return estimate.model_copy(
            update={"configs": [config.model_copy(update={"rows": []}) for config in estimate.configs]}
        )
