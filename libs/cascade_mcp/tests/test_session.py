"""A real MCP client against `cascade mcp` on a whole app: over stdio, and over streamable http."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from cascade_cli.embedded.process import free_ports
from cascade_cli.testing import DemoApp
from cascade_cli.testing_runs import KERNELS, operator_log, tell_run
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PATIENCE_S = 60.0

TOOLS = {
    "cancel_run", "check_app", "get_comparison", "get_estimate", "get_kernel_stats", "get_report", "get_run",
    "get_step_timing", "get_trace", "launch_run", "list_files", "list_gpu_configs", "list_runs", "list_traces",
    "read_log", "simulate_scenario", "wait_for_run",
}  # fmt: skip


@asynccontextmanager
async def connected(app: DemoApp, **changed: str) -> AsyncIterator[ClientSession]:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "cascade_cli", "mcp"], env=app.environment() | changed
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


def data(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text(result)
    assert result.structured_content is not None
    return dict(result.structured_content)


def text(result: CallToolResult) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))


async def call(session: ClientSession, name: str, **arguments: Any) -> CallToolResult:
    result = await session.call_tool(name, arguments)
    assert isinstance(result, CallToolResult)
    return result


async def test_the_tools_are_the_agents_actions_and_none_of_the_simulators(replay_app: DemoApp) -> None:
    async with connected(replay_app) as session:
        tools = (await session.list_tools()).tools
    assert {tool.name for tool in tools} == TOOLS
    assert all(tool.description for tool in tools)
    said = json.dumps([tool.model_dump(mode="json") for tool in tools])
    assert "heartbeat" not in said
    hints = {tool.name: tool.annotations for tool in tools}
    assert hints["get_report"] is not None
    assert hints["get_report"].read_only_hint
    assert hints["cancel_run"] is not None
    assert hints["cancel_run"].destructive_hint


async def test_an_agent_goes_from_a_trace_to_a_report(replay_app: DemoApp) -> None:
    async with connected(replay_app) as session:
        status = data(await call(session, "check_app"))
        assert status["ok"]
        assert status["token_accepted"]
        traces = data(await call(session, "list_traces", state="ready"))["result"]
        assert "demo" in [trace["id"] for trace in traces]
        configs = data(await call(session, "list_gpu_configs", trace_id="demo"))["result"]
        assert {config["arch"] for config in configs} == {"sm_80"}
        entries = [{"gpu_config": "SM80_A30", "count": 1}, {"gpu_config": "SM80_A100", "count": 1}]
        launched = data(await call(session, "launch_run", trace_id="demo", entries=entries))
        waited = data(await call(session, "wait_for_run", run_id=launched["id"], at_most_s=100))
        assert waited["state"] == "succeeded"
        assert waited["statements"][0]["kind"] == "stand-in"
        await parsed(session, launched["id"])
        answer = data(await call(session, "get_report", run_id=launched["id"]))
        log = data(
            await call(
                session, "read_log", sim_id=waited["sims"][0]["id"], pattern="gpu_tot_sim_cycle", last=1
            )
        )
        stats = data(
            await call(
                session,
                "get_kernel_stats",
                sim_id=waited["sims"][0]["id"],
                kernel_index=0,
                contains="gpu_sim_",
            )
        )
    report = answer["report"]
    assert not report["comparable"]
    times = {config["gpu_config"]: config["median_ns"] for config in report["configs"]}
    # 39,328 cycles in the recorded log, at 1410 and 1440 MHz.
    assert times == {
        "SM80_A100": pytest.approx(39328 / 1410 * 1000),
        "SM80_A30": pytest.approx(39328 / 1440 * 1000),
    }
    assert answer["text"].index("stand-in") < answer["text"].index("Replayed time")
    assert log["lines"] == ["gpu_tot_sim_cycle = 39328"]
    assert stats["stats"]["gpu_sim_cycle"] > 0
    assert stats["statements"][0]["kind"] == "stand-in"


async def parsed(session: ClientSession, run_id: str) -> None:
    """Wait for the last kernels: they are read from the logs a moment after the run's end."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            sims = data(await call(session, "get_run", run_id=run_id))["sims"]
            if all(sim["kernels_done"] >= KERNELS for sim in sims):
                return
            await asyncio.sleep(0.1)


async def shown(session: ClientSession, run_id: str) -> None:
    """Wait until the app's read model holds what was told to its log."""
    async with asyncio.timeout(PATIENCE_S):
        while (await call(session, "get_run", run_id=run_id)).is_error:  # noqa: ASYNC110 - the app sets no event of ours
            await asyncio.sleep(0.05)


async def test_waiting_ends_when_the_time_is_up_and_tells_meanwhile_how_far_the_run_is(
    replay_app: DemoApp,
) -> None:
    reports: list[float] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)

    # Nobody works on this run, so it does not end by itself.
    async with operator_log(replay_app.data_dir) as log:
        standing = await tell_run(log, "demo", {"SM80_A100": 1})
    async with connected(replay_app) as session:
        await shown(session, standing.run_id)
        early = data(await call(session, "wait_for_run", run_id=standing.run_id, at_most_s=0.5))
        patiently = {"run_id": standing.run_id, "at_most_s": 200}
        waiting = asyncio.create_task(session.call_tool("wait_for_run", patiently, progress_callback=heard))
        async with asyncio.timeout(PATIENCE_S):
            while not reports:
                assert not waiting.done(), waiting.result()
                await asyncio.sleep(0.02)
        ended = data(await call(session, "cancel_run", run_id=standing.run_id))
        last = await waiting
    assert early["state"] == "active"
    assert "wait_for_run" in early["next"]
    assert reports[0] == 0
    assert ended["state"] == "cancelled"
    assert isinstance(last, CallToolResult)
    assert data(last)["state"] == "cancelled"


async def test_more_than_four_sims_need_a_yes(replay_app: DemoApp) -> None:
    entries = [{"gpu_config": "SM80_A100", "count": 3}, {"gpu_config": "SM80_A30", "count": 2}]
    async with connected(replay_app) as session:
        before = {run["id"] for run in data(await call(session, "list_runs", limit=200))["result"]}
        refused = await call(session, "launch_run", trace_id="demo", entries=entries)
        after = {run["id"] for run in data(await call(session, "list_runs", limit=200))["result"]}
        assert after == before
        launched = data(await call(session, "launch_run", trace_id="demo", entries=entries, confirmed=True))
        cancelled = data(await call(session, "cancel_run", run_id=launched["id"]))
    assert refused.is_error
    assert "Nothing was launched" in text(refused)
    assert "SM80_A100 × 3, SM80_A30 × 2" in text(refused)
    assert "5 sims" in text(refused)
    assert sum(cancelled["sim_counts"].values()) == 5


async def test_failures_say_what_to_do_and_never_the_token(replay_app: DemoApp) -> None:
    async with connected(replay_app) as session:
        missing = await call(session, "get_run", run_id="run-000000000000")
        wrong_arch = await call(
            session, "launch_run", trace_id="demo", entries=[{"gpu_config": "SM90_H100", "count": 1}]
        )
        too_many = await call(
            session, "launch_run", trace_id="demo", entries=[{"gpu_config": "SM80_A100", "count": 65}]
        )
    assert "run run-000000000000 not found" in text(missing)
    assert "list_runs" in text(missing)
    assert "SM90_H100 is sm_90 but trace demo is sm_80" in text(wrong_arch)
    assert too_many.is_error
    async with connected(replay_app, CASCADE_TOKEN="not-the-token") as session:
        refused = await call(session, "list_traces")
        status = data(await call(session, "check_app"))
    assert refused.is_error
    assert "ask the user to check CASCADE_TOKEN" in text(refused)
    assert "not-the-token" not in text(refused)
    assert status["token_accepted"] is False


async def test_the_http_transport_lets_only_the_token_in(replay_app: DemoApp, tmp_path: Path) -> None:
    with served_over_http(replay_app, tmp_path / "mcp.log") as url:
        assert _status(url, "", deadline=time.monotonic() + PATIENCE_S) == 401
        assert _status(url, "Bearer wrong", deadline=time.monotonic() + PATIENCE_S) == 401
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {replay_app.token}"}) as http,
            streamable_http_client(url, http_client=http) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            answer = data(await call(session, "get_report", run_id=replay_app.run_id))
    assert answer["report"]["run_id"] == replay_app.run_id
    assert replay_app.token not in (tmp_path / "mcp.log").read_text()


@contextmanager
def served_over_http(app: DemoApp, log_path: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "cascade_cli", "mcp", "--transport", "http", "--port", str(port)]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, env=app.environment(), stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _status(url: str, authorization: str, *, deadline: float) -> int:
    while True:
        try:
            return httpx.post(url, json={}, headers={"Authorization": authorization}).status_code
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
