"""Results, logs, comparisons and Perfetto traces over HTTP."""

import json
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from cascade_api.testing.client import Client
from cascade_core.kernels.facts import KernelFinished
from cascade_core.sims.facts import SimMetrics, SimProgressed
from cascade_core.traces.facts import RealKernel, TraceObserved

AT = datetime(2026, 11, 8, 8, 59, 2, 587743, tzinfo=UTC)
NAMES = ["_Z11init_kernelIdEvPT_S1_S1_S0_S0_S0_", "_Z11copy_kernelIdEvPKT_PS0_"]
STATS = {"kernel_name": NAMES[0], "gpu_sim_cycle": 6174.0, "gpu_occupancy": "15.8210%", "é\u2028": "-nan"}


def kernel(run_id: str, sim_id: str, index: int, cycles: int | None, **changes: Any) -> KernelFinished:
    values: dict[str, Any] = {
        "run_id": run_id,
        "sim_id": sim_id,
        "occurred_at": AT,
        "index": index,
        "kernel_name": NAMES[index % 2],
        "kernel_launch_uid": index + 1,
        "gpu_sim_cycle": cycles,
        "gpu_sim_insn": 19456,
        "gpu_ipc": 3.1513,
        "stats": STATS,
    }
    return KernelFinished(**(values | changes))


def progress(run_id: str, sim_id: str, done: int, **changes: Any) -> SimProgressed:
    values: dict[str, Any] = {
        "run_id": run_id,
        "sim_id": sim_id,
        "occurred_at": AT,
        "through_seq": 0,
        "kernels_done": done,
        "latest": SimMetrics(gpu_tot_sim_cycle=76713.0, gpu_tot_ipc=346.2289),
    }
    return SimProgressed(**(values | changes))


def attachment(reply: httpx.Response) -> str:
    return reply.headers["content-disposition"].removeprefix('attachment; filename="').removesuffix('"')


def stat(sim_id: str, index: int, cycles: int | None, **changes: Any) -> dict[str, Any]:
    return {
        "sim_id": sim_id,
        "kernel_index": index,
        "kernel_name": NAMES[index % 2],
        "kernel_launch_uid": index + 1,
        "gpu_sim_cycle": cycles,
        "gpu_sim_insn": 19456,
        "gpu_ipc": 3.1513,
        "sim_time_ns": None if cycles is None else pytest.approx(cycles / 1132.0 * 1000),
        "stats": {},
    } | changes


@pytest.fixture
def run(client: Client) -> dict[str, Any]:
    """Two sims; the second finished one kernel more."""
    run = client.new_live_run(count=2, kernels=20)
    one, two = (sim["id"] for sim in run["sims"])
    client.store(
        kernel(run["id"], two, 0, 6000),
        kernel(run["id"], one, 0, 6174),
        kernel(run["id"], one, 1, 5923),
        kernel(run["id"], two, 1, 5925),
        kernel(run["id"], two, 2, None),
        progress(run["id"], one, 2),
        progress(run["id"], two, 3),
    )
    detail: dict[str, Any] = client.body(f"/api/runs/{run['id']}")
    return detail


def test_kernels_come_by_config_replica_and_index_without_stats(client: Client, run: dict[str, Any]) -> None:
    one, two = (sim["id"] for sim in run["sims"])
    assert client.body(f"/api/runs/{run['id']}/kernels") == [
        stat(one, 0, 6174),
        stat(one, 1, 5923),
        stat(two, 0, 6000),
        stat(two, 1, 5925),
        stat(two, 2, None),
    ]


def test_a_comparison_takes_the_median_over_replicas(client: Client, run: dict[str, Any]) -> None:
    assert client.body(f"/api/runs/{run['id']}/comparison") == {
        "has_real_timing": False,
        "configs": ["SM86_RTX3070"],
        "rows": [
            {
                "kernel_index": 0,
                "kernel_name": NAMES[0],
                "real_ns": None,
                "sim_ns": {"SM86_RTX3070": pytest.approx(6087 / 1132.0 * 1000)},
            },
            {
                "kernel_index": 1,
                "kernel_name": NAMES[1],
                "real_ns": None,
                "sim_ns": {"SM86_RTX3070": pytest.approx(5924 / 1132.0 * 1000)},
            },
            {"kernel_index": 2, "kernel_name": NAMES[0], "real_ns": None, "sim_ns": {"SM86_RTX3070": None}},
        ],
    }


def test_a_comparison_shows_measured_time_in_kernel_order(client: Client, run: dict[str, Any]) -> None:
    client.store(
        TraceObserved(
            trace_id=run["trace_id"],
            occurred_at=AT,
            kernel_count=2,
            size_bytes=1,
            real_timing=[
                RealKernel(kernel_id=7, kernel_name="second", duration_ns=None),
                RealKernel(kernel_id=3, kernel_name="first", duration_ns=5000.0),
            ],
        )
    )
    comparison = client.body(f"/api/runs/{run['id']}/comparison")
    assert comparison["has_real_timing"] is True
    assert [(row["kernel_name"], row["real_ns"]) for row in comparison["rows"]] == [
        ("first", 5000.0),
        ("second", None),
        (NAMES[0], None),
    ]
    trace = client.body(f"/api/runs/{run['id']}/perfetto")
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert names == ["SM86_RTX3070 · Accel-Sim simulated GPU", "Real hardware · unknown GPU"]


def test_a_run_without_kernels_compares_nothing(client: Client) -> None:
    run = client.new_run()
    assert client.body(f"/api/runs/{run['id']}/comparison") == {
        "has_real_timing": False,
        "configs": ["SM86_RTX3070"],
        "rows": [],
    }
    assert client.body(f"/api/runs/{run['id']}/kernels") == []
    slices = [
        event for event in client.body(f"/api/runs/{run['id']}/perfetto")["traceEvents"] if event["ph"] == "X"
    ]
    assert slices == []


def test_a_sims_results_hold_its_config_kernels_and_totals(client: Client, run: dict[str, Any]) -> None:
    sim = run["sims"][0]
    reply = client.get(f"/api/sims/{sim['id']}/results")
    assert attachment(reply) == f"{sim['id']}-results.json"
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == {
        "sim": sim,
        "trace_id": run["trace_id"],
        "gpu_config": {"name": "SM86_RTX3070", "arch": "sm_86", "core_clock_mhz": 1132.0},
        "kernels": [stat(sim["id"], 0, 6174, stats=STATS), stat(sim["id"], 1, 5923, stats=STATS)],
        "totals": {
            "gpu_tot_sim_cycle": 76713.0,
            "gpu_tot_sim_insn": None,
            "gpu_tot_ipc": 346.2289,
            "sim_rate_ips": None,
        },
    }
    assert reply.json()["totals"] == sim["latest"]


def test_a_runs_results_hold_everything(client: Client, run: dict[str, Any]) -> None:
    reply = client.get(f"/api/runs/{run['id']}/results")
    assert attachment(reply) == f"{run['id']}-results.json"
    assert reply.json() == {
        "run": {key: value for key, value in run.items() if key not in ("trace", "sims")},
        "trace": client.body(f"/api/traces/{run['trace_id']}"),
        "sims": [client.body(f"/api/sims/{sim['id']}/results") for sim in run["sims"]],
        "comparison": client.body(f"/api/runs/{run['id']}/comparison"),
    }


def test_a_config_that_disappeared_is_said_to_be_unknown(client: Client, run: dict[str, Any]) -> None:
    configs = client.api.gateway.gpu_configs
    kept = configs.pop("SM86_RTX3070")
    try:
        config = client.body(f"/api/sims/{run['sims'][0]['id']}/results")["gpu_config"]
    finally:
        configs["SM86_RTX3070"] = kept
    assert config == {"name": "SM86_RTX3070", "arch": "unknown", "core_clock_mhz": 0.0}


def test_a_log_is_plain_text_named_after_its_sim(client: Client) -> None:
    _, sim_id = client.new_sim()
    lines = ["plain", "", "\u2028 \u0085 é \U0001f680", "nul\x00", "\x1b[31mred\x1b[0m", "tab\t\r"]
    client.send_log(sim_id, 0, lines)
    reply = client.get(f"/api/sims/{sim_id}/log")
    assert attachment(reply) == f"{sim_id}.log"
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.content.decode().split("\n") == [*lines, ""]


def test_a_sim_without_output_has_an_empty_log(client: Client) -> None:
    _, sim_id = client.new_sim()
    assert client.get(f"/api/sims/{sim_id}/log").content == b""


@pytest.mark.parametrize("rest", ["log", "results"])
def test_downloads_of_a_missing_sim_are_not_found(rest: str, client: Client) -> None:
    reply = client.get(f"/api/sims/sim-000000000000/{rest}")
    assert (reply.status_code, reply.json()) == (404, {"detail": "sim sim-000000000000 not found"})


def test_a_perfetto_trace_lays_a_sims_kernels_end_to_end(client: Client, run: dict[str, Any]) -> None:
    reply = client.get(f"/api/runs/{run['id']}/perfetto")
    assert attachment(reply) == f"{run['id']}-perfetto.json"
    trace = json.loads(reply.content)
    one = run["sims"][0]["id"]
    assert trace["traceEvents"][:6] == [
        {
            "ph": "M",
            "pid": 1,
            "name": "process_name",
            "args": {"name": "SM86_RTX3070 · Accel-Sim simulated GPU"},
        },
        {"ph": "M", "pid": 1, "name": "process_sort_index", "args": {"sort_index": 1}},
        {"ph": "M", "pid": 1, "name": "thread_name", "args": {"name": f"replica 0 · {one}"}, "tid": 1},
        {"ph": "M", "pid": 1, "name": "thread_sort_index", "args": {"sort_index": 1}, "tid": 1},
        {
            "ph": "X",
            "pid": 1,
            "tid": 1,
            "cat": "kernel",
            "name": "k1 init_kernel",
            "ts": 0.0,
            "dur": 5.454,
            "args": {
                "kernel_index": 0,
                "uid": 1,
                "kernel_name": NAMES[0],
                "gpu_sim_cycle": 6174,
                "gpu_sim_insn": 19456,
                "ipc": 3.1513,
                "sim_time_ns": 5454.063604240282,
                "start_cycle": 0,
                "end_cycle": 6174,
            },
        },
        {
            "ph": "X",
            "pid": 1,
            "tid": 1,
            "cat": "kernel",
            "name": "k2 copy_kernel",
            "ts": 5.454,
            "dur": 5.232,
            "args": {
                "kernel_index": 1,
                "uid": 2,
                "kernel_name": NAMES[1],
                "gpu_sim_cycle": 5923,
                "gpu_sim_insn": 19456,
                "ipc": 3.1513,
                "sim_time_ns": 5232.332155477032,
                "start_cycle": 6174,
                "end_cycle": 12097,
            },
        },
    ]
    assert len([event for event in trace["traceEvents"] if event["ph"] == "X"]) == 4
    assert trace["displayTimeUnit"] == "ns"
    assert trace["otherData"] == {
        "run_id": run["id"],
        "trace_id": run["trace_id"],
        "time_axis": "simulated time, microseconds; each sim's kernels laid end to end",
        "slice_duration": "sim_time_ns = gpu_sim_cycle / core clock (MHz) * 1000",
        "kernel_scope": "sequential kernels, each including the configured launch latency; "
        "excludes host time and memcpy",
    }


def test_overlapped_and_cut_kernels_say_so(client: Client) -> None:
    run_id, sim_id = client.new_sim()
    client.store(
        kernel(run_id, sim_id, 0, 5000, since_last_completion=True),
        kernel(run_id, sim_id, 1, 3000, kernel_name="nul\x00 in \ud7ff name", gpu_sim_cycle=2**70),
        progress(run_id, sim_id, 2, partial_kernel=1),
    )
    first, second = client.body(f"/api/runs/{run_id}/kernels")
    assert first["since_last_completion"] is True
    assert second["partial"] is True
    assert second["gpu_sim_cycle"] == 2**70
    assert "partial" not in first
    assert "since_last_completion" not in second
    assert [row["stats"] for row in client.body(f"/api/sims/{sim_id}/results")["kernels"]] == [STATS, STATS]
    assert client.body(f"/api/sims/{sim_id}/results")["kernels"][1]["partial"] is True
