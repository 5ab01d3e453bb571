"""Traces and GPU configs over HTTP."""

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from cascade_api.testing.client import Client
from cascade_api.testing.facts import ready_trace
from cascade_api.testing.running import RunningApi
from cascade_api.testing.servers import Servers
from cascade_core.traces.facts import (
    RealKernel,
    TraceDiscovered,
    TraceFailed,
    TraceObserved,
    TraceRemoved,
)
from pydantic import JsonValue

AT = datetime(2026, 11, 8, 8, 59, 2, 587743, tzinfo=UTC)
HOSTILE_IDS = [
    "20261107-120000__facebook_opt-125m__model.decoder.layers.10.self_attn",
    "20261107-120000__facebook_opt-125m__model_decoder_layers_10_self_attn",
    "run 1",
    "run_1",
    "run+1",
    "run%201",
    "run%2F1",
    "a*b",
    "a>b",
    "a..b",
    "a.b.",
    ".hidden-like",
    "café",
    "cafe\u0301",
    "Demo",
    "demo",
    "x" * 255,
    "question?mark&amp=1",
    "hash#mark",
    "semi;colon",
    "quo'te\"s",
    "back\\slash",
    "ends-in-runs",
    "\u2028line",
    "emoji-🚀",
    "tab\there",
    "line\nbreak",
    "line end\n",
    "null\x00byte",
]


def test_a_ready_trace_shows_all_its_fields(client: Client) -> None:
    metadata: dict[str, JsonValue] = {
        "model": "facebook/opt-125m",
        "layers": ["step 0 (prefill)", 7, "step 2 (decode)"],
        "gpu": "NVIDIA H100 80GB HBM3",
        "suggested_sim_config": "SM86_RTX3070",
    }
    client.store(*ready_trace("whole", kernels=1, at=AT, metadata=metadata))
    summary = {
        "id": "whole",
        "state": "ready",
        "error": None,
        "created_at": "2026-11-08T08:59:02.587743Z",
        "updated_at": "2026-11-08T08:59:02.587743Z",
        "model": "facebook/opt-125m",
        "layers": ["step 0 (prefill)", "step 2 (decode)"],
        "source_gpu": "NVIDIA H100 80GB HBM3",
        "trace_gpu_arch": "sm_86",
        "suggested_sim_config": "SM86_RTX3070",
        "real_gpu_config": None,
        "sample_sim_configs": [],
        "sample_set": None,
        "kernel_count": 1,
        "bytes": 1000,
        "has_real_timing": False,
        "has_step_timeline": False,
        "sample": False,
    }
    assert client.body("/api/traces/whole") == summary | {
        "metadata": {"trace_gpu_arch": "sm_86"} | metadata,
        "kernels": [
            {"kernel_id": 1, "name": "_Z1k", "grid": [1, 1, 1], "block": [32, 1, 1], "instructions": 100}
        ],
    }
    assert next(trace for trace in client.body("/api/traces") if trace["id"] == "whole") == summary


def test_a_trace_that_just_began_to_arrive_is_shown(client: Client) -> None:
    client.store(TraceDiscovered(trace_id="early", occurred_at=AT))
    trace = client.body("/api/traces/early")
    assert trace["state"] == "uploading"
    assert (trace["metadata"], trace["kernels"], trace["trace_gpu_arch"]) == (None, [], "sm_90")


def test_a_failed_trace_says_why(client: Client) -> None:
    client.store(
        TraceDiscovered(trace_id="bad", occurred_at=AT),
        TraceFailed(
            trace_id="bad", occurred_at=AT, error="profiler reported status 'failed' in metadata.json"
        ),
    )
    trace = client.body("/api/traces/bad")
    assert (trace["state"], trace["error"]) == (
        "failed",
        "profiler reported status 'failed' in metadata.json",
    )


def test_real_timing_and_step_timeline_are_flags(client: Client) -> None:
    client.store(
        TraceDiscovered(trace_id="timed", occurred_at=AT),
        TraceObserved(
            trace_id="timed",
            occurred_at=AT,
            kernel_count=0,
            size_bytes=5,
            has_step_timeline=True,
            real_timing=[RealKernel(kernel_id=1, kernel_name="k", duration_ns=5.0)],
        ),
    )
    trace = client.body("/api/traces/timed")
    assert (trace["has_real_timing"], trace["has_step_timeline"]) == (True, True)


def test_a_missing_trace_is_named(client: Client) -> None:
    reply = client.get("/api/traces/nope")
    assert (reply.status_code, reply.json()) == (404, {"detail": "trace nope not found"})


def test_a_removed_trace_is_gone_from_both_routes(client: Client) -> None:
    client.store(*ready_trace("leaving", at=AT), TraceRemoved(trace_id="leaving", occurred_at=AT))
    assert client.get("/api/traces/leaving").status_code == 404
    assert "leaving" not in [trace["id"] for trace in client.body("/api/traces")]


def test_traces_come_newest_first(own_servers: Servers) -> None:
    with RunningApi(own_servers.settings()) as api, Client(api) as client:
        for minutes in (2, 0, 1):
            client.store(*ready_trace(f"at-{minutes}", at=AT + timedelta(minutes=minutes)))
        assert [trace["id"] for trace in client.body("/api/traces")] == ["at-2", "at-1", "at-0"]


@pytest.mark.parametrize("trace_id", HOSTILE_IDS)
def test_a_trace_is_found_under_whatever_its_directory_is_called(trace_id: str, client: Client) -> None:
    client.new_trace(trace_id)
    trace = client.body(f"/api/traces/{quote(trace_id, safe='')}")
    assert trace["id"] == trace_id
    run = client.new_run(trace_id=trace_id)
    assert run["trace_id"] == trace_id
    assert client.body(f"/api/runs/{run['id']}")["trace"]["id"] == trace_id


def test_every_hostile_id_is_a_trace_of_its_own(client: Client) -> None:
    for trace_id in HOSTILE_IDS:
        client.new_trace(trace_id)
    listed = [trace["id"] for trace in client.body("/api/traces")]
    assert sorted(trace_id for trace_id in listed if trace_id in HOSTILE_IDS) == sorted(HOSTILE_IDS)


@pytest.mark.parametrize("path", ["%FF%FE", "%00", "%ED%A0%80", "a" * 4000, "%", "%zz", "%2e%2e"])
def test_a_broken_trace_path_is_not_found(path: str, client: Client) -> None:
    assert client.get(f"/api/traces/{path}").status_code in (404, 400)


@pytest.mark.parametrize("path", ["", "demo/", "demo/kernels", "a//b", "a%2Fb"])
def test_a_path_below_a_trace_is_not_found_without_a_token(path: str, api: RunningApi) -> None:
    with Client(api, token=False) as stranger:
        reply = stranger.get(f"/api/traces/{path}")
    assert (reply.status_code, reply.json()) == (404, {"detail": "Not Found"})


def test_gpu_configs_come_by_name(client: Client) -> None:
    configs = client.body("/api/gpu-configs")
    assert [config["name"] for config in configs] == sorted(config["name"] for config in configs)
    assert {"name": "SM90_H100", "arch": "sm_90", "core_clock_mhz": 1980.0} in configs
