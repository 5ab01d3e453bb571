"""Every real log of the reference material against the figures that its index gives."""

import re
from collections.abc import Callable
from pathlib import Path

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
