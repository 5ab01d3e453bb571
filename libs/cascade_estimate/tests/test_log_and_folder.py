from __future__ import annotations

from pathlib import Path

import pytest
from cascade_accelsim.log.whole import parse_log
from cascade_estimate import EstimateError, GpuSpec, Progress, TraceFormatError, accelsim_log, estimate_trace
from cascade_estimate.tracedir import find_list


def test_the_demo_trace_is_estimated_kernel_by_kernel(demo_trace: Path, spec: GpuSpec) -> None:
    seen: list[Progress] = []
    estimates = estimate_trace(demo_trace, spec, seen.append)
    assert [(step.done, step.total) for step in seen] == [(number, 8) for number in range(1, 9)]
    assert all(5000 < one.low <= one.cycles <= one.high for one in estimates)
    assert {one.bottleneck for one in estimates} <= {"launch", "issue", "latency", "L1", "L2", "DRAM", "tail"}


def test_the_log_reads_like_a_simulators(demo_trace: Path, spec: GpuSpec) -> None:
    estimates = estimate_trace(demo_trace, spec)
    lines = list(accelsim_log(estimates, spec, "0.1.0"))
    assert "engine = cascade-estimate 0.1.0" in lines
    assert lines[-1] == "GPGPU-Sim: *** exit detected ***"
    assert not any("\n" in line for line in lines)
    parsed = parse_log(line + "\n" for line in lines)
    assert [block.gpu_sim_cycle for block in parsed.blocks] == [one.cycles for one in estimates]
    assert parsed.blocks[0].finished_name == estimates[0].header.name


def test_the_same_trace_gives_the_same_log(demo_trace: Path, spec: GpuSpec) -> None:
    one = list(accelsim_log(estimate_trace(demo_trace, spec), spec, "0.1.0"))
    assert one == list(accelsim_log(estimate_trace(demo_trace, spec), spec, "0.1.0"))


def test_a_folder_without_a_list_or_with_an_empty_one_is_an_error(tmp_path: Path, spec: GpuSpec) -> None:
    with pytest.raises(TraceFormatError, match="post-process"):
        find_list(tmp_path)
    (tmp_path / "kernelslist.g").write_text("MemcpyHtoD,0x0000000000000000,64\n# nothing\n")
    with pytest.raises(TraceFormatError, match="names no kernel"):
        estimate_trace(tmp_path, spec)
    (tmp_path / "kernelslist.g").write_text("kernel-1.traceg.xz\n")
    with pytest.raises(TraceFormatError, match="does not exist"):
        estimate_trace(tmp_path, spec)


@pytest.mark.parametrize(
    "name",
    ["corrupt-xz", "garbled-line", "truncated-at-line", "truncated-mid-inst", "missing-kernel-trace", "memcpy-only",
     "empty-kernelslist", "tracez-in-list"],
)  # fmt: skip
def test_traces_on_which_the_simulator_dies_are_errors(
    shared_estimate: Path, spec: GpuSpec, name: str
) -> None:
    broken = shared_estimate.parent / "accelsim" / "traces" / "broken" / name
    with pytest.raises(EstimateError):
        estimate_trace(broken, spec)
