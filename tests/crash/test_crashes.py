"""`kill -9` of each service and of the NATS server in the middle of a run: nothing lost, nothing twice, it ends."""

import json
import os
import signal
from pathlib import Path

import pytest

from .conftest import CrashApp

pytestmark = pytest.mark.timeout(600)


async def test_a_killed_api_costs_nothing(crash_app: CrashApp) -> None:
    await crash_app.upload()
    await crash_app.trace_is("ready")
    await crash_app.launch()
    await crash_app.kernels_seen(1)
    await crash_app.kill("api")
    await crash_app.ends_exactly()


async def test_a_killed_parser_costs_nothing(crash_app: CrashApp) -> None:
    await crash_app.upload()
    await crash_app.trace_is("ready")
    await crash_app.launch()
    await crash_app.kernels_seen(1)
    await crash_app.kill("parser")
    await crash_app.ends_exactly()


async def test_a_killed_launcher_starts_no_sim_twice_and_loses_none(crash_app: CrashApp) -> None:
    await crash_app.upload()
    await crash_app.trace_is("ready")
    await crash_app.launch(count=2)
    await crash_app.kill("launcher")
    await crash_app.kernels_seen(1)
    await crash_app.kill("launcher")
    await crash_app.ends_exactly()


async def test_a_killed_nats_server_costs_nothing(crash_app: CrashApp) -> None:
    await crash_app.upload()
    await crash_app.trace_is("ready")
    await crash_app.launch()
    await crash_app.kernels_seen(1)
    nats = crash_app.app.stack.nats
    assert nats is not None
    os.kill(nats.processes[0].pid, signal.SIGKILL)
    await crash_app.ends_exactly()


async def test_a_killed_ingest_finishes_what_it_was_processing(crash_app: CrashApp, tmp_path: Path) -> None:
    trace = tmp_path / "raw"
    write_raw_trace(trace)
    await crash_app.upload(trace, name="raw")
    await crash_app.trace_is("processing", name="raw")
    await crash_app.kill("ingest")
    (tmp_path / "go on").touch()
    await crash_app.trace_is("ready", name="raw")
    await crash_app.launch(trace_id="raw")
    await crash_app.kernels_seen(1)
    await crash_app.kill("ingest")
    await crash_app.ends_exactly()


def write_raw_trace(directory: Path) -> None:
    """An upload that has to be post-processed."""
    traces = directory / "traces"
    traces.mkdir(parents=True)
    (directory / "metadata.json").write_text(json.dumps({"trace_gpu_arch": "sm_80"}), "utf-8")
    (traces / "kernelslist_ctx_0x1").write_text("kernel-1.trace\n", "utf-8")
    (traces / "stats_ctx_0x1").write_text("", "utf-8")
    (traces / "kernel-1.trace").write_text("-kernel name = k\n", "utf-8")
