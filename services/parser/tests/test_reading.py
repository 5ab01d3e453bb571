"""One log being read, without any log to tell it to."""

import pytest
from cascade_accelsim.log import KernelBlock
from cascade_core import facts
from cascade_core.kernels.facts import KernelFinished
from cascade_core.sims.facts import SimProgressed
from cascade_core.testing.builders import RUN, SIM, at
from cascade_parser.reading import LogReading
from cascade_parser.shares import PARTITIONS, fair_share, partition_of


def read_whole(
    lines: list[str], size: int, *, kernels_told: int = 0
) -> tuple[LogReading, list[KernelFinished]]:
    reading = LogReading(RUN, SIM, kernels_told=kernels_told)
    kernels: list[KernelFinished] = []
    for start in range(0, len(lines), size):
        assert reading.order.arrived(start // size, start)
        kernels += reading.read(lines[start : start + size], at(5))
    return reading, kernels + reading.finish(at(9))


@pytest.mark.parametrize("size", [1, 7, 200])
def test_kernels_are_told_with_what_the_log_says(three_kernels: list[str], size: int) -> None:
    reading, kernels = read_whole(three_kernels, size)
    assert [(k.index, k.kernel_launch_uid, k.gpu_sim_cycle, k.gpu_sim_insn, k.gpu_ipc) for k in kernels] == [
        (0, 1, 6174, 19456, 3.1513),
        (1, 2, 5923, 2811264, 474.6352),
        (2, 3, 6216, 1712288, 275.4646),
    ]
    assert kernels[1].kernel_name == "_Z12rms_norm_f16PK6__halfPS_if"
    assert kernels[1].stats["L2_BW"] == "15.0194 GB/Sec"
    progress = reading.progress(at(9))
    assert (progress.kernels_done, progress.final, progress.through_seq) == (3, True, -(-189 // size) - 1)
    assert (progress.latest.gpu_tot_sim_cycle, progress.latest.sim_rate_ips) == (18313.0, 1135752.0)
    assert progress.current_kernel == "_Z14rope_embed_f16P6__halfPK6float2i"


def test_a_second_reading_tells_only_what_is_new(three_kernels: list[str]) -> None:
    _, kernels = read_whole(three_kernels, 10, kernels_told=2)
    assert [k.index for k in kernels] == [2]
    assert read_whole(three_kernels, 10, kernels_told=3)[1] == []


def test_an_open_block_is_closed_at_the_end(three_kernels: list[str]) -> None:
    cut_off = three_kernels[:160]
    reading = LogReading(RUN, SIM)
    assert [k.index for k in reading.read(cut_off, at(1))] == [0, 1]
    assert [k.index for k in reading.finish(at(2))] == [2]


def test_an_empty_log_has_no_kernels_and_no_numbers() -> None:
    reading, kernels = read_whole([], 1)
    progress = reading.progress(at(1))
    assert kernels == []
    assert (progress.through_seq, progress.kernels_done, progress.current_kernel) == (-1, 0, None)
    assert progress.latest.model_dump() == {
        "gpu_tot_sim_cycle": None,
        "gpu_tot_sim_insn": None,
        "gpu_tot_ipc": None,
        "sim_rate_ips": None,
    }


ODD_VALUES = [
    "9" * 5000,
    "1" * 310,
    "1e400",
    "-1",
    "nan",
    "-inf",
    "",
    "\x00",
    "1_000",
    "\u0663",
    "0x10",
    "12 34",
]
KEYS = ["kernel_name", "kernel_launch_uid", "gpu_sim_cycle", "gpu_sim_insn", "gpu_ipc", "gpu_tot_sim_cycle",
        "gpgpu_simulation_rate", "L2_BW"]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: repr(value[:8]))
def test_odd_values_make_facts_that_can_be_stored(three_kernels: list[str], key: str, value: str) -> None:
    lines = [f"{key} = {value}" if line.startswith(key) else line for line in three_kernels]
    reading, kernels = read_whole(lines, 20)
    assert reading.parked is None
    assert len(kernels) == 3
    told: list[KernelFinished | SimProgressed] = [*kernels, reading.progress(at(9))]
    for fact in told:
        assert facts.decode(facts.encode(fact)) == fact


def test_a_log_that_cannot_be_read_is_parked_and_ends_like_any_other(
    three_kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = LogReading(RUN, SIM)
    assert len(reading.read(three_kernels[:70], at(1))) == 1

    def broken(_lines: list[str]) -> list[KernelBlock]:
        raise ValueError("a bug")

    monkeypatch.setattr(reading._parser, "feed", broken)
    assert reading.read(three_kernels[70:], at(2)) == []
    assert reading.finish(at(3)) == []
    assert reading.parked == "ValueError: a bug"
    assert (reading.progress(at(3)).kernels_done, reading.progress(at(3)).final) == (1, True)


def test_partitions_stay_where_they_are_for_ever() -> None:
    assert [partition_of(f"sim-{i:012x}") for i in range(8)] == [3, 5, 7, 1, 2, 4, 6, 0]
    assert {partition_of(f"sim-{i:012x}") for i in range(200)} == set(range(PARTITIONS))


@pytest.mark.parametrize("instances", range(1, 10))
def test_instances_share_all_partitions_evenly(instances: int) -> None:
    names = [f"host-{number}" for number in range(instances)]
    shares = [fair_share(name, names) for name in names]
    assert sum(shares) == PARTITIONS
    assert max(shares) - min(shares) <= 1
    assert sum(1 for share in shares if share) == min(instances, PARTITIONS)


def test_an_instance_that_sees_nobody_has_all_partitions() -> None:
    assert fair_share("a", []) == PARTITIONS


def test_an_estimate_has_no_simulation_rate() -> None:
    reading = LogReading(RUN, SIM)
    reading.read(["engine = cascade-estimate 1", "gpgpu_simulation_rate = 9350000 (inst/sec)"], at(1))
    progress = reading.progress(at(1))
    assert progress.engine == "cascade-estimate 1"
    assert progress.latest.sim_rate_ips is None
