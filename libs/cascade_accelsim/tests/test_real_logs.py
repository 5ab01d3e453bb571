"""Every real log of the reference material against the figures that its index gives."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cascade_accelsim.log import KernelBlock, parse_log

ReadLines = Callable[[Path], list[str]]


def test_every_real_log_gives_the_kernels_that_its_index_lists(shared: Path, read_lines: ReadLines) -> None:
    folder = shared / "accelsim" / "logs"
    index = (folder / "INDEX.md").read_text(encoding="utf-8")
    rows = [row.strip("| ").split(" | ") for row in index.split("\n") if re.match(r"\| \S+\.log", row)]
    kernels = dict(re.findall(r"### (\S+)\n\n((?:\|.*\n)+)", index + "\n"))
    assert len(rows) == 70
    for row in rows:
        name = row[0].removesuffix(".gz").removesuffix(".log")
        log = parse_log(read_lines(folder / row[0]))
        assert len(log.blocks) == log.progress.kernels_done == int(row[4]), name
        total = log.progress.gpu_tot_sim_cycle
        assert total == (None if row[5] == "-" else float(row[5])), name
        clock = log.progress.core_clock_hz
        if clock is not None and row[2] != "-":
            assert clock == float(row[2].split(":")[0]) * 1e6, name
        assert (clock is not None) or not log.blocks, name
        if name in kernels:
            listed = [line.strip("|").split(" | ") for line in kernels[name].strip().split("\n")[2:]]
            for block, cells in zip(log.blocks, listed, strict=True):
                _check(name, block, [cell.strip() for cell in cells])
        cycles = [block.gpu_sim_cycle for block in log.blocks]
        assert sum(c for c in cycles if c is not None) == (total or 0), name


def _check(log: str, block: KernelBlock, cells: list[str]) -> None:
    name, uid, stream, cycles, insn, ipc, total_cycles, total_insn = cells
    where = f"{log}, kernel {block.index}"
    assert block.kernel_name[:70] == name, where
    if name:  # the index shows the following line where the uid is empty
        assert block.kernel_launch_uid == (int(uid) if uid.isdecimal() else None), where
    assert (block.gpu_sim_cycle, block.gpu_sim_insn, block.gpu_ipc) == (int(cycles), int(insn), float(ipc)), (
        where
    )
    assert block.stats["gpu_tot_sim_cycle"] == float(total_cycles), where
    assert block.stats["gpu_tot_sim_insn"] == float(total_insn), where
    assert block.stats.get("kernel_stream_id") == (float(stream) if stream else None), where
    assert block.complete, where


@pytest.mark.parametrize("name", ["rtx3070-babelstream", "rtx3070-streams-concurrent", "h100s-babelstream"])
def test_the_stats_are_those_of_a_slow_reader_that_goes_line_by_line(
    name: str, sample_log: Callable[[str], list[str]]
) -> None:
    lines = sample_log(name)
    starts = [number for number, line in enumerate(lines) if line.startswith("kernel_name =")]
    for block, start in zip(parse_log(lines).blocks, starts, strict=True):
        alone: dict[str, str] = {}
        among: dict[str, str] = {}
        for line in lines[start:]:
            if line.startswith("gpgpu_simulation_time"):
                break
            if re.match(r"=|\s*mf:|MSHR:|thread block|average row|(bank|chip) skew|In Dram", line):
                continue
            if cache := re.match(r"\s*(\w+\[\d+\]|mrqq): (.*)", line):
                pairs = re.findall(r"(\w+)\s*=\s*([^\s,]+)", cache[2])
                prefix = "" if line.startswith("DRAM") else f"{cache[1]}: "
                among |= {f"{prefix}{key}": value for key, value in pairs}
            elif line.startswith(("n_cmd=", "n_activity=")):
                among |= dict(pair.split("=") for pair in line.split())
            elif "=" in line:
                key, value = line.split("=", 1)
                alone[key.strip()] = value.strip()
        wanted = {
            **among,
            **alone,
            "In Dram Latency Queue: total": block.stats["In Dram Latency Queue: total"],
        }
        assert {key: str(value) for key, value in block.stats.items() if isinstance(value, str)} == {
            key: value for key, value in wanted.items() if isinstance(value, str) and not is_number(value)
        }
        assert {key: value for key, value in block.stats.items() if isinstance(value, float)} == {
            key: float(value) for key, value in wanted.items() if is_number(value)
        }


def is_number(value: float | str) -> bool:
    return isinstance(value, float) or re.fullmatch(r"-?\d+(\.\d+)?(e[-+]\d+)?", value) is not None
