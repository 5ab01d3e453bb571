"""An agent on the bundled samples: every number comes with what it is."""

import sys
from typing import Any

import httpx
import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult

pytestmark = pytest.mark.timeout(300)  # whichever test is first waits for the app


async def told(client: httpx.Client, **calls: dict[str, Any]) -> dict[str, Any]:
    """The answers of the tools that are called, by their names."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "cascade_cli", "mcp"],
        env={
            "CASCADE_URL": str(client.base_url),
            "CASCADE_TOKEN": client.headers["Authorization"].removeprefix("Bearer "),
        },
    )
    found = {}
    async with stdio_client(command) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        for name, arguments in calls.items():
            result = await session.call_tool(name, arguments)
            assert isinstance(result, CallToolResult)
            assert not result.is_error, result.content
            found[name] = result.structured_content
    return found


async def test_numbers_of_samples_are_told_with_what_they_are(client: httpx.Client) -> None:
    load = {"num_requests": 8, "prompt_tokens": 512, "output_tokens": 128}
    scenario = {"trace_id": "sample__facebook_opt-125m__h100-e2e", "gpu_config": "SM90_H200", **load}
    answers = await told(
        client,
        get_step_timing={"run_id": "run-sample-opt125m-h200"},
        simulate_scenario={"scenario": scenario},
    )
    timing, answer = answers["get_step_timing"], answers["simulate_scenario"]
    assert [said["kind"] for said in timing["statements"]] == ["sample", "reconstructed"]
    (sim,) = timing["sims"]
    assert sim["counterfactual"]  # no H200 was measured
    coverage = sim["summary"]["simulation"]["coverage"]
    assert coverage["kernels"] == 17_088
    assert "steps" not in coverage
    assert sim["compare"]["wall_ns"]["count"] == 96
    assert answer["aggregate"]["p50_e2e_ms"] == pytest.approx(1041.528, abs=1e-3)
    said = " ".join(answer["statements"])
    assert "The trace says of itself: Reconstructed from publis" in said
    assert "measured on SM90_H100, not on SM90_H200" in said
    assert "128 of 128 steps" in said
    assert "simulated" not in said  # nothing was, here
