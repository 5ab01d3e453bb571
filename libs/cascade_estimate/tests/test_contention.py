"""What cores do to each other: the crossbar, the slices, DRAM, and how uneven shares relieve them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cascade_estimate import GpuSpec, estimate_kernel, read_trace
from cascade_estimate.addressing import AddressMap
from cascade_estimate.decode import Decoder, Instruction
from cascade_estimate.machine import Outcome, Work, simulate
from cascade_estimate.meetings import Meeting, Surroundings
from cascade_estimate.opcodes import Unit
from cascade_estimate.sharing import Access

_EXIT = "0990 ffffffff 0 EXIT 0 0 0 "
_L1_BYTES = 1 << 16


def _code(lines: list[str]) -> list[Instruction]:
    decoder = Decoder("kernel-1.traceg")
    return [decoder.decode(line.encode()) for line in (*lines, _EXIT)]


def _alone(spec: GpuSpec, around: Surroundings, *warps: list[str]) -> Outcome:
    work = Work([[_code(lines) for lines in warps]], [0], [around.active], 1, 1.0)
    return simulate(spec, work, around, _L1_BYTES)


def _loads(count: int, *, first: int = 0x7F0000000000) -> list[str]:
    return [
        f"{0x10 * place:04x} ffffffff 1 R{place + 2} LDG.E.128 1 R1 16 1 {first + 512 * place:#x} 16 0 "
        for place in range(count)
    ]


def _stores(count: int) -> list[str]:
    return [
        f"{0x10 * place:04x} ffffffff 0 STG.E.128 2 R1 R2 16 1 {0x7F0000000000 + 512 * place:#x} 16 0 "
        for place in range(count)
    ]


def test_where_few_cores_have_a_second_block_it_meets_less_traffic(
    spec: GpuSpec, alone: Callable[..., Surroundings]
) -> None:
    block = [_code(_loads(16, first=0x7F0000000000 + 0x10000 * warp)) for warp in range(4)]

    def run(crew: int) -> Outcome:
        work = Work([block, block], [0, 1 << 20], [spec.cores, crew], 2, 1.0)
        return simulate(spec, work, alone(active=spec.cores), _L1_BYTES)

    uneven, even = run(2), run(spec.cores)
    assert uneven.cycles < even.cycles
    assert uneven.traffic.dram_busy == pytest.approx(
        even.traffic.dram_busy * (spec.cores + 2) / (2 * spec.cores)
    )


def test_the_last_round_of_blocks_is_known_to_be_uneven(
    write_trace: Callable[..., Path], spec: GpuSpec
) -> None:
    def l2_cycles(blocks: int) -> float:
        lines = ["0010 ffffffff 0 RED.E.ADD 2 R1 R2 4 1 0x7f0000000000 4 0 ", _EXIT]
        trace = read_trace(write_trace(lines, blocks=blocks, threads=256))
        return estimate_kernel(trace, spec).terms["l2"]

    assert l2_cycles(spec.cores + 2) < 0.6 * l2_cycles(2 * spec.cores)


def test_a_cluster_with_one_busy_core_has_its_port_to_itself(
    spec: GpuSpec, alone: Callable[..., Surroundings]
) -> None:
    paired = replace(spec, clusters=spec.clusters // 2, cores_per_cluster=2)
    private = Access(1.0, 1.0, first=False)

    def cost(config: GpuSpec, active: int) -> float:
        return Meeting(config, alone(active=active), private).send_cost

    assert cost(paired, paired.clusters) == cost(spec, paired.clusters)
    assert cost(paired, paired.clusters + 1) > 1.5 * cost(spec, paired.clusters + 1)


def test_a_hash_that_folds_loads_the_first_slices_twice(texts: Callable[[str], tuple[str, str]]) -> None:
    volta = GpuSpec.from_config(*texts("SM7_QV100"))
    folded = AddressMap(replace(volta, channels=24))
    counts = Counter(folded.locate(line).slice for line in range(1 << 15))
    assert len(counts) == 48
    assert sum(counts[number] for number in range(16)) == pytest.approx(
        2 * sum(counts[n] for n in range(16, 32)), rel=0.02
    )
    assert folded.folded == 1.5
    assert AddressMap(volta).folded == 1.0


def test_what_is_hashed_begins_above_the_slice_or_is_the_whole_quotient(
    texts: Callable[[str], tuple[str, str]],
) -> None:
    volta = GpuSpec.from_config(*texts("SM7_QV100"))
    # The first address beyond all channels: its slice bit is set, nothing else.
    assert AddressMap(volta).locate(32 << 1).slice == 1
    # With 24 channels that bit is hashed too: x^6 = x + 1 for 64 slices.
    assert AddressMap(replace(volta, channels=24)).locate(24 << 1).slice == 1 ^ 0b11


def test_the_modulo_hash_spreads_over_all_slices_and_keeps_groups(
    texts: Callable[[str], tuple[str, str]],
) -> None:
    volta = GpuSpec.from_config(*texts("SM7_QV100"))
    modulo = AddressMap(replace(volta, channels=40, partition_hash=6))
    plain = AddressMap(replace(volta, channels=40, partition_hash=0))
    lines = range(1 << 15)
    assert all(modulo.locate(line).slice // 16 == plain.locate(line).slice // 16 for line in lines)
    assert any(modulo.locate(line) != plain.locate(line) for line in lines)
    counts = Counter(modulo.locate(line).slice for line in lines)
    assert len(counts) == 80
    assert max(counts.values()) < 1.05 * min(counts.values())
    assert modulo.folded == 1.0


def test_a_hash_that_the_simulator_does_not_define_is_left_out_and_noted(
    texts: Callable[[str], tuple[str, str]],
) -> None:
    main, trace = texts("SM7_QV100")
    odd = GpuSpec.from_config(main + "\n-gpgpu_n_mem 80\n", trace)
    assert not odd.hashed
    assert any("-gpgpu_memory_partition_indexing" in note and "160" in note for note in odd.notes)
    plain = AddressMap(replace(odd, partition_hash=0))
    assert all(AddressMap(odd).locate(line) == plain.locate(line) for line in range(0, 1 << 16, 77))


def test_the_load_store_unit_waits_for_the_crossbar_only_when_its_queue_is_full(
    spec: GpuSpec, alone: Callable[..., Surroundings]
) -> None:
    crowded = alone(active=spec.cores)
    deep = _alone(replace(spec, crossbar_buffer=512), crowded, _stores(24)).lsu_busy
    shallow = _alone(replace(spec, crossbar_buffer=1), crowded, _stores(24)).lsu_busy
    assert shallow > deep + 50


def test_written_lines_leave_l2_only_when_it_is_full(
    spec: GpuSpec, alone: Callable[..., Surroundings]
) -> None:
    roomy = _alone(spec, alone(written_share=1.0, room_lines=96), _stores(24))
    full = _alone(spec, alone(written_share=1.0, room_lines=48), _stores(24))
    assert roomy.traffic.dram_busy == 0.0
    burst = spec.dram_burst_cycles * spec.core_mhz / spec.dram_mhz
    assert full.traffic.dram_busy == pytest.approx(48 * 4 * burst / spec.channels)


def test_a_part_of_a_kernel_meets_evictions_as_often_as_the_whole(alone: Callable[..., Surroundings]) -> None:
    whole = replace(alone(written_share=0.5, room_lines=100), brought_lines=400.0)
    steady = whole.steady()
    assert steady.room_lines == 0.0
    assert steady.written_share == pytest.approx(0.5 * 300 / 400)


def test_an_instruction_that_waits_for_a_collector_holds_up_other_schedulers(
    spec: GpuSpec, alone: Callable[..., Surroundings]
) -> None:
    sfu = int(Unit.SFU)
    slow = replace(
        spec, interval=tuple(64 if unit == sfu else pace for unit, pace in enumerate(spec.interval))
    )
    own = [f"0010 ffffffff 1 R{number} FADD 1 R9 0 0 " for number in range(20, 40)]
    own += ["0020 ffffffff 1 R2 MUFU.RCP 1 R9 0 0 ", *["0030 ffffffff 1 R2 FADD 2 R2 R3 0 0 "] * 80]
    many = [f"0040 ffffffff 1 R{number} MUFU.RCP 1 R9 0 0 " for number in range(10, 18)]
    free = _alone(slow, alone(), many[:2], own).cycles
    held = _alone(slow, alone(), many, own).cycles
    assert free + 20 < held < free + 2 * 64


def test_sectors_of_a_line_come_a_bank_group_cycle_apart(
    spec: GpuSpec, alone: Callable[..., Surroundings]
) -> None:
    use = ["0f00 ffffffff 1 R3 FADD 2 R2 R2 0 0 "]
    load = ["0010 ffffffff 1 R2 LDG.E 1 R1 4 1 0x7f0000000000 4 0 "]
    slow = replace(spec, dram_timing=replace(spec.dram_timing, ccdl=11))
    fast = replace(spec, dram_timing=replace(spec.dram_timing, ccdl=1))
    apart = _alone(slow, alone(), load + use).cycles - _alone(fast, alone(), load + use).cycles
    assert apart == pytest.approx(3 * 10 * spec.core_mhz / spec.dram_mhz, abs=1)


def test_regular_single_sectors_pass_the_crossbar_in_turn(
    spec: GpuSpec, alone: Callable[..., Surroundings]
) -> None:
    plain = replace(spec, partition_hash=0)
    around = alone(active=24, grid=(24, 1, 1))

    def cost(mask: int) -> float:
        lines = tuple((1000 + 2 * number, mask) for number in range(8))
        return Meeting(plain, around, Access(1.0, 1.0, first=False, step=(64, 0, 0), burst=lines)).send_cost

    assert cost(0b0001) == 1.0
    assert cost(0b1111) > 1.0


def test_a_faster_crossbar_takes_requests_sooner_but_a_core_one_answer_a_cycle(
    spec: GpuSpec, alone: Callable[..., Surroundings]
) -> None:
    private = Access(1.0, 1.0, first=False)
    own = Meeting(spec, alone(active=spec.cores), private)
    fast = Meeting(replace(spec, icnt_mhz=2 * spec.core_mhz), alone(active=spec.cores), private)
    slow = Meeting(replace(spec, icnt_mhz=spec.core_mhz / 2), alone(active=spec.cores), private)
    assert (fast.send_cost, slow.send_cost) == (own.send_cost / 2, own.send_cost * 2)
    assert (fast.answer_cost, slow.answer_cost) == (1.0, own.answer_cost * 2)
