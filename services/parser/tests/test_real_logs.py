"""Every real log of the reference material through the reactor: what it stores is what the pure parser reads."""

import gzip
from functools import partial
from pathlib import Path

from cascade_accelsim.log import parse_log
from cascade_core.sims.transitions import SimState
from cascade_core.testing.builders import launch_started, reported, run_requested
from cascade_core.testing.memory_log import MemoryLog
from cascade_parser.testing import cut, is_parsed, kernels_of, parsing, progress_of, until

CHUNK_LINES = 200  # what a worker sends at most


def lines_of(path: Path) -> list[str]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", "replace")
    return text.removesuffix("\n").split("\n") if text else []


def paths_of(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.log"), *folder.glob("*.log.gz")])


async def test_every_real_log_gives_what_the_pure_parser_reads(real_logs: Path) -> None:
    paths = paths_of(real_logs)
    assert len(paths) == 70
    for number, path in enumerate(paths):
        lines = lines_of(path)
        expected = parse_log(lines)
        run_id, sim_id = f"run-{number:012x}", f"sim-{number:012x}"
        log = MemoryLog()
        async with parsing(log):
            await log.append(run_requested(run_id=run_id, sims=[sim_id]))
            await log.append(launch_started(run_id=run_id, sim_id=sim_id))
            for one in cut(lines, CHUNK_LINES, sim_id=sim_id):
                await log.append(one.model_copy(update={"run_id": run_id}))
            await log.append(reported(SimState.SUCCEEDED, 9, run_id=run_id, sim_id=sim_id))
            await until(partial(is_parsed, log, sim_id, run_id=run_id), deadline_s=60)
        kernels = await kernels_of(log, sim_id, run_id=run_id)
        assert [kernel.index for kernel in kernels] == list(range(len(expected.blocks))), path.name
        for kernel, block in zip(kernels, expected.blocks, strict=True):
            assert (kernel.gpu_sim_cycle, kernel.gpu_sim_insn, kernel.gpu_ipc) == (
                block.gpu_sim_cycle,
                block.gpu_sim_insn,
                block.gpu_ipc,
            ), path.name
            assert kernel.stats == block.stats, path.name
            if not block.since_last_completion:
                assert (kernel.kernel_name, kernel.kernel_launch_uid) == (
                    block.kernel_name,
                    block.kernel_launch_uid,
                ), path.name
        last = (await progress_of(log, sim_id, run_id=run_id))[-1]
        assert last.final, path.name
        assert last.kernels_done == len(kernels), path.name
        assert last.latest.gpu_tot_sim_cycle == expected.progress.gpu_tot_sim_cycle, path.name
        assert last.latest.sim_rate_ips == expected.progress.sim_rate_ips, path.name
        assert last.current_kernel == expected.progress.current_kernel, path.name
        assert last.partial_kernel == expected.progress.partial_kernel, path.name
