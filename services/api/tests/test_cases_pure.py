"""The cases that need no server of their own: GPU configs, Perfetto tracks, subjects of hostile trace ids."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cascade_api.perfetto import SimTrack, trace_events
from cascade_api.testing.client import Client
from cascade_api.wire.results import KernelStat

CASES = Path(__file__).parent / "cases"


def expected(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((CASES / name / "case.json").read_text())["expect"]
    return read


def test_gpu_configs_are_read_however_they_are_spelled(client: Client) -> None:
    configs = client.body("/api/gpu-configs")
    wanted = expected("configs-comments-and-spellings")
    assert configs == wanted["configs"]
    assert not {config["name"] for config in configs} & set(wanted["skipped"])


def test_every_sim_is_a_perfetto_thread_of_its_own() -> None:
    name = "perfetto-tracks-and-ids"
    expect = expected(name)
    sims = json.loads((CASES / name / "kernels.json").read_text())
    tracks = [
        SimTrack(
            sim_id=sim["sim_id"],
            gpu_config=sim["gpu_config"],
            replica=sim["replica"],
            kernels=[KernelStat(sim_id=sim["sim_id"], stats={}, **kernel) for kernel in sim["kernels"]],
        )
        for sim in sims
    ]
    events: list[dict[str, Any]] = [dict(event) for event in trace_events(tracks, None, "unknown")]
    json.dumps(events, allow_nan=False)
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == expect["slices"]
    assert [event["name"] for event in slices] == expect["names"]
    assert all(set(expect["every_slice_has"]) <= event.keys() for event in slices)
    assert all(event["dur"] > 0 for event in slices)
    threads = {(event["pid"], event["tid"]) for event in slices}
    assert len(threads) == len(sims)
    assert all(isinstance(number, int) and 1 <= number < 2**31 for thread in threads for number in thread)
    for kind, count in expect["metadata"].items():
        assert len([event for event in events if event["name"] == kind]) == count
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert named == threads
    third = sorted(threads)[2]
    cycles = [
        [event["args"]["start_cycle"], event["args"]["end_cycle"]]
        for event in slices
        if (event["pid"], event["tid"]) == third
    ]
    assert cycles == expect["cycles_of_third_sim"]
    for thread in threads:
        ends = 0.0
        for event in slices:
            if (event["pid"], event["tid"]) == thread:
                assert event["ts"] == pytest.approx(ends)
                ends = event["ts"] + event["dur"]
    assert re.fullmatch(r"k1 \w+", slices[0]["name"])
