"""Logs that went wrong in the field: each case says what must be read, whatever the chunk size."""

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cascade_accelsim.log import LogParser, sim_time_ns

CASES = [
    "log-crlf-colour-and-bad-bytes",
    "log-deadlock-abort",
    "log-exit-zero-nothing-simulated",
    "log-launch-line-variants",
    "log-nan-and-wrapped-counters",
    "log-option-dump-lookalikes",
    "log-two-sim-rates",
]


@pytest.mark.parametrize("lines_in_chunk", [1, 7, 200])
@pytest.mark.parametrize("name", CASES)
def test_a_case_is_read_as_it_says(
    name: str,
    lines_in_chunk: int,
    case: Callable[[str], tuple[dict[str, Any], Path]],
    read_lines: Callable[[Path], list[str]],
) -> None:
    given, folder = case(name)
    lines = read_lines(folder / given["input"]["log"])
    parser = LogParser()
    blocks = []
    for start in range(0, len(lines), lines_in_chunk):
        blocks += parser.feed(lines[start : start + lines_in_chunk])
    blocks += parser.finish()
    expect = given["expect"]
    clock = given["input"]["core_clock_mhz"]

    progress = parser.progress
    assert progress.kernels_done == expect["kernels_done"]
    assert progress.current_kernel == expect["current_kernel"]
    assert {key: getattr(progress, key) for key in expect["latest"]} == expect["latest"]
    assert len(blocks) == len(expect["kernels"])
    for block, kernel in zip(blocks, expect["kernels"], strict=True):
        assert block.index == kernel["kernel_index"]
        assert block.kernel_name == kernel["kernel_name"]
        assert block.kernel_launch_uid == kernel["kernel_launch_uid"]
        assert block.gpu_sim_cycle == kernel["gpu_sim_cycle"]
        assert block.gpu_sim_insn == kernel["gpu_sim_insn"]
        assert block.gpu_ipc == kernel["gpu_ipc"]
        assert sim_time_ns(block.gpu_sim_cycle, clock) == pytest.approx(kernel["sim_time_ns"], rel=1e-6)
    for index, wanted in expect.get("stats", {}).items():
        stats = blocks[int(index)].stats
        assert {key: stats.get(key) for key in wanted} == wanted
    for block in blocks:
        json.dumps(block.stats, allow_nan=False).encode()
        assert not set(expect.get("stats_absent", [])) & set(block.stats)
        for text in (block.kernel_name, *block.stats, *map(str, block.stats.values())):
            assert not any(unicodedata.category(character) == "Cc" for character in text)
