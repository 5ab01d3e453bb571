"""What the tools say above their numbers, and how they search logs, on the documentation's captured answers."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cascade_client.async_client import AsyncCascadeClient
from cascade_client.calls import Call
from cascade_client.wire.scenarios import ScenarioRequest
from cascade_mcp.acting import add_acting_tools
from cascade_mcp.finding import FindingTools
from cascade_mcp.reading import ReadingTools
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult

T = TypeVar("T")
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


class Canned(AsyncCascadeClient):
    """Answers every call with the captured body of its route, changed as a test needs it."""

    def __init__(self, lines: list[str] | None = None) -> None:
        super().__init__("http://127.0.0.1:1")
        self.bodies: dict[str, Any] = {}
        self.lines = lines or []
        for name in ("run", "trace", "kernels", "comparison", "sim-results", "step-timelines", "scenario"):
            example = json.loads((EXAMPLES / f"{name}.json").read_text())
            self.bodies[example["route"]] = example["body"]

    async def send(self, call: Call[T]) -> T:
        return call.read(json.dumps(self.bodies[call.route]).encode())

    async def log_lines(self, sim_id: str) -> AsyncGenerator[str, None]:
        for line in self.lines:
            yield line


@pytest.fixture
def client() -> Canned:
    """An estimate of two sims on a made-up trace, whose kernels overlapped and were cut in the first sim."""
    canned = Canned()
    canned.bodies["/api/traces/{trace_id}"]["metadata"]["provenance"] = "Made up."
    for sim in canned.bodies["/api/runs/{run_id}"]["sims"]:
        sim["engine"] = "estimate"
    first, second = canned.bodies["/api/runs/{run_id}"]["sims"]
    second["engine"] = "accel-sim"
    canned.bodies["/api/runs/{run_id}/kernels"] = [
        kernel | {"sim_id": first["id"], "partial": True, "since_last_completion": True}
        for kernel in canned.bodies["/api/runs/{run_id}/kernels"]
    ]
    canned.bodies["/api/sims/{sim_id}/results"]["sim"]["run_id"] = "run-1"
    canned.bodies["/api/scenarios"] |= {"run_id": "run-1", "sim_id": second["id"]}
    return canned


async def test_every_tool_with_numbers_says_what_must_be_known_of_them(client: Canned) -> None:
    reading, finding = ReadingTools(lambda: client), FindingTools(lambda: client)
    first = client.bodies["/api/runs/{run_id}"]["sims"][0]["id"]
    answers = [
        (await reading.get_run("run-1")).statements,
        (await finding.get_comparison("run-1")).statements,
        (await finding.get_step_timing("run-1")).statements,
        (await finding.get_kernel_stats(first, 0)).statements,
    ]
    for statements in answers:
        said = {statement.kind: statement.text for statement in statements}
        assert {"reconstructed", "estimate", "overlap", "partial"} <= set(said)
        assert "Made up." in said["reconstructed"]


async def test_the_comparison_says_what_its_times_are(client: Canned) -> None:
    for sim in client.bodies["/api/runs/{run_id}"]["sims"]:
        sim["engine"] = "estimate"
    assert (await FindingTools(lambda: client).get_comparison("run-1")).time_word == "estimated"


async def test_a_scenario_answers_for_its_base_sim_alone(client: Canned) -> None:
    server: MCPServer[None] = MCPServer("tests")
    add_acting_tools(server, lambda: client)
    scenario = ScenarioRequest(trace_id="demo", num_requests=1, prompt_tokens=1, output_tokens=1)
    result = await server.call_tool("simulate_scenario", {"scenario": scenario.model_dump(mode="json")})
    assert isinstance(result, CallToolResult)
    assert result.structured_content is not None
    said = " ".join(result.structured_content["statements"])
    assert "Made up." in said
    # The other sim of its run was.
    assert "estimated" not in said
    assert "overlapped" not in said


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        (None, ["an Error", "a fault", "all (well)"]),
        ("error|FAULT", ["an Error", "a fault"]),
        ("error||", ["an Error"]),
        ("(", ["all (well)"]),
        (r"(\w+\s?)*$", []),
    ],
)
async def test_a_log_is_searched_for_plain_text(pattern: str | None, lines: list[str]) -> None:
    tools = FindingTools(lambda: Canned(["an Error", "a fault", "all (well)"]))
    answer = await tools.read_log("sim-1", pattern)
    assert (answer.lines, answer.total_lines, answer.matching_lines) == (lines, 3, len(lines))
