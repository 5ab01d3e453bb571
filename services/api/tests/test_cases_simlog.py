"""Logs that went wrong in the field, through HTTP, the event log, the real parser and the views."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from cascade_api.testing.client import Client, eventually, near

CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.name for path in CASES.glob("log-*"))
CONFIG_OF_CLOCK = {1132.0: "SM86_RTX3070", 1980.0: "SM90_H100"}
pytestmark = pytest.mark.usefixtures("parser")


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def strict(body: bytes) -> Any:
    return json.loads(body, parse_constant=refuse_constant)


def lines_of(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8", "replace").removesuffix("\n").split("\n")


def is_clean(text: str) -> bool:
    return all(unicodedata.category(char) != "Cc" for char in text)


@pytest.mark.parametrize("lines_in_chunk", [1, 7, 200])
@pytest.mark.parametrize("name", NAMES)
def test_a_case_is_shown_as_it_says(name: str, lines_in_chunk: int, client: Client) -> None:
    case = json.loads((CASES / name / "case.json").read_text())
    given, expect = case["input"], case["expect"]
    lines = lines_of(CASES / name / given["log"])
    run_id, sim_id = client.new_sim(
        config=CONFIG_OF_CLOCK[given["core_clock_mhz"]], kernels=given["kernels_total"]
    )
    client.beat(sim_id)
    for seq, start in enumerate(range(0, len(lines), lines_in_chunk)):
        client.send_log(sim_id, seq, lines[start : start + lines_in_chunk])
    final = client.beat(sim_id, **given["final_heartbeat"])
    assert final == {"state": expect["state"], "cancel": False}

    sim = client.sim(run_id, sim_id)
    assert (sim["state"], sim["exit_code"]) == (expect["state"], expect["exit_code"])
    assert sim["error"] == given["final_heartbeat"]["error"]
    assert (sim["kernels_done"], sim["kernels_total"]) == (expect["kernels_done"], given["kernels_total"])
    assert sim["current_kernel"] == expect["current_kernel"]
    assert sim["latest"] == near(expect["latest"])
    for wanted in expect.get("log_tail_contains", []):
        assert any(wanted in line for line in sim["log_tail"])
    check_kernels(client, run_id, sim_id, expect)

    text = client.get(f"/api/sims/{sim_id}/log").content.decode()
    assert text == "".join(f"{line}\n" for line in lines)
    check_derived(client, run_id, expect)


def check_kernels(client: Client, run_id: str, sim_id: str, expect: dict[str, Any]) -> None:
    listed = client.body(f"/api/runs/{run_id}/kernels")
    assert len(listed) == len(expect["kernels"])
    for kernel, wanted in zip(listed, expect["kernels"], strict=True):
        assert {key: kernel[key] for key in wanted} == near(wanted)
        assert (kernel["sim_id"], kernel["stats"]) == (sim_id, {})
    full = client.body(f"/api/sims/{sim_id}/results")["kernels"]
    assert [kernel | {"stats": {}} for kernel in full] == listed
    for index, wanted in expect.get("stats", {}).items():
        stats = full[int(index)]["stats"]
        assert {key: stats.get(key) for key in wanted} == wanted
    for kernel in full:
        assert not set(expect.get("stats_absent", [])) & set(kernel["stats"])
        for said in (kernel["kernel_name"], *kernel["stats"], *map(str, kernel["stats"].values())):
            assert is_clean(said)


def check_derived(client: Client, run_id: str, expect: dict[str, Any]) -> None:
    sim_id = client.body(f"/api/runs/{run_id}")["sims"][0]["id"]
    for path in ("", "/kernels", "/results", "/comparison", "/perfetto"):
        strict(client.get(f"/api/runs/{run_id}{path}").content)
    strict(client.get(f"/api/sims/{sim_id}/results").content)
    with client.stream("GET", f"/api/runs/{run_id}/events") as reply:
        frame = next(reply.iter_lines())
    strict(frame.removeprefix("data: ").encode())
    rows = client.body(f"/api/runs/{run_id}/comparison")["rows"]
    assert len(rows) == len(expect["kernels"])
    timed = [kernel for kernel in expect["kernels"] if kernel["sim_time_ns"] is not None]
    slices = [
        event for event in client.body(f"/api/runs/{run_id}/perfetto")["traceEvents"] if event["ph"] == "X"
    ]
    assert len(slices) == len(timed)


def test_kernels_appear_while_the_log_arrives(client: Client) -> None:
    lines = lines_of(CASES / "log-two-sim-rates" / "sim.log")
    run_id, sim_id = client.new_sim()
    client.beat(sim_id)
    client.send_log(sim_id, 0, lines[:-3])
    eventually(lambda: client.sim(run_id, sim_id)["kernels_done"] >= 2)
    assert client.sim(run_id, sim_id)["state"] == "running"
