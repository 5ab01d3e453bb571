"""Small programs whose time follows from the pipeline by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cascade_estimate import GpuSpec, KernelEstimate, estimate_kernel, read_trace
from cascade_estimate.coalesce import Pattern, Space, lane_offsets
from cascade_estimate.decode import Decoder, Instruction
from cascade_estimate.machine import Work, simulate
from cascade_estimate.meetings import Surroundings, crossbar_load

_EXIT = "0990 ffffffff 0 EXIT 0 0 0 "


@pytest.fixture
def estimate(write_trace: Callable[..., Path], spec: GpuSpec) -> Callable[..., KernelEstimate]:
    def run(lines: list[str], *, blocks: int = 1, threads: int = 32) -> KernelEstimate:
        return estimate_kernel(read_trace(write_trace([*lines, _EXIT], blocks=blocks, threads=threads)), spec)

    return run


def test_a_chain_of_dependent_adds_costs_latency_plus_five_each(
    estimate: Callable[..., KernelEstimate],
) -> None:
    chain = ["0010 ffffffff 1 R2 FADD 2 R2 R3 0 0 "]
    assert estimate(chain * 101).cycles - estimate(chain).cycles == 100 * (4 + 5)


def test_independent_adds_are_limited_by_the_initiation_interval(
    estimate: Callable[..., KernelEstimate],
) -> None:
    adds = [f"0010 ffffffff 1 R{number} FADD 2 R200 R201 0 0 " for number in range(100)]
    assert estimate(adds).cycles - estimate(adds[:20]).cycles == pytest.approx(80 * 2, abs=3)


def test_bank_conflicts_cost_a_cycle_each(estimate: Callable[..., KernelEstimate]) -> None:
    without = ["0010 ffffffff 1 R2 LDS 1 R2 4 1 0x0 4 0 "] * 10
    with_conflicts = ["0010 ffffffff 1 R2 LDS 1 R2 4 1 0x0 128 0 "] * 10
    assert estimate(with_conflicts).cycles - estimate(without).cycles == 10 * 31


def test_a_second_load_of_a_line_hits_l1(estimate: Callable[..., KernelEstimate]) -> None:
    far = [
        "0010 ffffffff 1 R2 LDG.E 1 R2 4 1 0x7f0000000000 4 0 ",
        "0020 ffffffff 1 R2 LDG.E 1 R2 4 1 0x7f0000100000 4 0 ",
    ]
    near = [far[0], far[0].replace("0010 ", "0020 ")]
    assert estimate(near).cycles + 300 < estimate(far).cycles
    assert estimate(near).terms["l1_miss_ratio"] == 0.5


def test_a_barrier_waits_for_the_slowest_warp(spec: GpuSpec, alone: Callable[..., Surroundings]) -> None:
    decoder = Decoder("kernel-1.traceg")
    add, barrier, leave = (
        decoder.decode(line)
        for line in (
            b"0010 ffffffff 1 R2 FADD 2 R2 R3 0 0 ",
            b"0500 ffffffff 0 BAR.SYNC 0 0 0 ",
            b"0990 ffffffff 0 EXIT 0 0 0 ",
        )
    )
    around = alone()

    def cycles(first: list[Instruction], second: list[Instruction]) -> float:
        return simulate(spec, Work([[first, second]], [0], [1], 1, 1.0), around, 1 << 16).cycles

    early, late = [barrier, *[add] * 40, leave], [*[add] * 60, barrier, leave]
    assert cycles(early, late) == pytest.approx(60 * 9 + 40 * 9, abs=20)
    assert cycles(early, early) == pytest.approx(40 * 9, abs=20)


def test_one_block_too_many_costs_a_wave(estimate: Callable[..., KernelEstimate]) -> None:
    work = ["0010 ffffffff 1 R2 FADD 2 R2 R3 0 0 "] * 200
    full = estimate(work, blocks=108, threads=1024)
    tail = estimate(work, blocks=109, threads=1024)
    assert tail.cycles > full.cycles * 1.05
    assert tail.terms["tail"] > 0


def test_an_unknown_opcode_counts_as_the_slowest_class_and_is_named(
    estimate: Callable[..., KernelEstimate],
) -> None:
    odd = estimate(["0010 ffffffff 1 R2 FROBNICATE.X 1 R2 0 0 "] * 50)
    known = estimate(["0010 ffffffff 1 R2 MUFU.EX2 1 R2 0 0 "] * 50)
    assert odd.cycles == known.cycles
    assert any("FROBNICATE" in note for note in odd.notes)


def test_an_empty_kernel_is_launch_bound_and_never_zero(estimate: Callable[..., KernelEstimate]) -> None:
    empty = estimate([])
    assert empty.bottleneck == "launch"
    assert 5000 < empty.low <= empty.cycles <= empty.high < 5030


def test_a_long_kernel_is_sampled_and_says_so(estimate: Callable[..., KernelEstimate]) -> None:
    work = ["0010 ffffffff 1 R2 FADD 2 R2 R3 0 0 "]
    long, longer = estimate(work * 12000), estimate(work * 24000)
    assert longer.terms["executed_ratio"] < 1.0
    assert any("busiest core" in note for note in longer.notes)
    assert (longer.cycles - 5000) / (long.cycles - 5000) == pytest.approx(2.0, rel=0.02)


def test_the_same_trace_gives_the_same_estimate(estimate: Callable[..., KernelEstimate]) -> None:
    work = [
        "0010 ffffffff 1 R2 LDG.E 1 R2 4 1 0x7f0000000000 4 0 ",
        "0020 ffffffff 1 R3 FADD 2 R2 R3 0 0 ",
    ] * 20
    assert estimate(work, blocks=300, threads=256) == estimate(work, blocks=300, threads=256)


@pytest.mark.parametrize(
    ("stride", "width", "sectors", "bank_cycles", "conflicts"),
    [(4, 4, 4, 1, 1), (16, 16, 16, 4, 4), (128, 4, 32, 32, 32), (0, 4, 1, 1, 1), (8, 8, 8, 2, 2)],
)
def test_coalescing_counts_sectors_bank_cycles_and_conflicts(
    stride: int, width: int, sectors: int, bank_cycles: int, conflicts: int
) -> None:
    offsets = lane_offsets(0xFFFFFFFF, 1, [stride], 0)
    footprint = Pattern(offsets, width, Space.GLOBAL).at(0x1000)
    assert (footprint.sectors, footprint.bank_cycles(4)) == (sectors, bank_cycles)
    assert Pattern(offsets, width, Space.SHARED).at(0x1000).conflicts == conflicts


def test_lanes_that_meet_in_a_word_make_one_atomic_transaction_each() -> None:
    assert Pattern(lane_offsets(0xFFFFFFFF, 1, [0], 0), 4, Space.ATOMIC).at(0).transactions == 32
    assert Pattern(lane_offsets(0xFFFFFFFF, 1, [4], 0), 4, Space.ATOMIC).at(0).transactions == 4


def test_address_lists_of_all_three_encodings_agree() -> None:
    assert lane_offsets(0b1011, 0, [108, 100], 100) == (0, 8, 0)
    assert lane_offsets(0b1110, 1, [8], 0) == (0, 8, 16)
    assert lane_offsets(0b1011, 2, [8, -8], 0) == (0, 8, 0)


def test_the_crossbar_saturates_at_karols_limit() -> None:
    assert crossbar_load(1.0) == pytest.approx(0.5858, abs=1e-4)
    assert crossbar_load(1e-9) == pytest.approx(0.0, abs=1e-6)
