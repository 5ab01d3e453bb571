"""Shortened programs and shared lines, against programs that are small enough to know the answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cascade_estimate import GpuSpec, WarmL2, estimate_kernel, l2_after, read_trace, sampling
from cascade_estimate.estimate import _witnesses
from cascade_estimate.l2state import Region
from cascade_estimate.loops import main_loop, shortened
from cascade_estimate.sampling import _busiest
from cascade_estimate.sharing import analyse

_EXIT = "0990 ffffffff 0 EXIT 0 0 0 "
_WORK = "0010 ffffffff 1 R2 FADD 2 R2 R3 0 0 "


def _loop(iterations: int) -> list[str]:
    body = [
        "0010 ffffffff 1 R2 FADD 2 R2 R3 0 0 ",
        "0020 ffffffff 1 R4 FADD 2 R4 R3 0 0 ",
        "0030 ffffffff 1 R5 MUFU.EX2 1 R2 0 0 ",
        "0040 ffffffff 0 BRA 0 0 0 ",
    ]
    return [
        "0000 ffffffff 1 R2 S2R 0 0 0 ",
        *body * iterations,
        "0050 ffffffff 1 R6 MUFU.RCP 1 R5 0 0 ",
        _EXIT,
    ]


def test_the_main_loop_is_found_and_shortened_around_its_middle() -> None:
    lines = tuple(line.encode() for line in _loop(50))
    loop = main_loop(lines, lineinfo=False)
    assert loop is not None
    assert (loop.head, loop.iterations) == (b"0010 ", 50)
    short, left_out = shortened(lines, loop, 4)
    assert left_out == 46
    assert short == tuple(line.encode() for line in _loop(4))


def test_straight_code_has_no_loop() -> None:
    lines = tuple(b"%04x ffffffff 1 R2 FADD 2 R2 R3 0 0 " % (16 * pc) for pc in range(500))
    assert main_loop(lines, lineinfo=False) is None


def test_a_shortened_loop_takes_as_long_as_the_whole(write_trace: Callable[..., Path], spec: GpuSpec) -> None:
    whole = estimate_kernel(read_trace(write_trace(_loop(40), threads=256)), spec)
    long = estimate_kernel(read_trace(write_trace(_loop(1600), threads=256)), spec)
    assert whole.terms["executed_ratio"] == 1.0
    assert long.terms["executed_ratio"] < 0.2
    assert (long.cycles - 5000) / (whole.cycles - 5000) == pytest.approx(40.0, rel=0.05)


def test_later_waves_follow_from_the_first_two(
    write_trace: Callable[..., Path], spec: GpuSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = [f"00{pc}0 ffffffff 1 R{pc} LDG.E 1 R2 4 1 0x7f{pc}000000000 4 0 " for pc in range(1, 5)]
    adds = [f"00{pc}8 ffffffff 1 R9 FADD 2 R9 R{pc} 0 0 " for pc in range(1, 5)]
    path = write_trace([*loads, *adds, *_loop(3)], blocks=30 * 108, threads=1024)
    trace = read_trace(path)
    sampled = estimate_kernel(trace, spec)
    assert sampled.terms["executed_ratio"] == 1.0
    monkeypatch.setattr(sampling, "_MOST_INSTRUCTIONS", 4000)
    part = estimate_kernel(trace, spec)
    assert part.terms["executed_ratio"] < 0.3
    assert (part.cycles - 5000) / (sampled.cycles - 5000) == pytest.approx(1.0, rel=0.05)


def test_lines_that_all_blocks_read_are_told_from_private_ones(
    write_trace: Callable[..., Path], spec: GpuSpec
) -> None:
    shared = "0010 ffffffff 1 R2 LDG.E 1 R2 4 1 0x7f0000000000 4 0 "
    path = write_trace([shared, "0020 ffffffff 1 R3 LDG.E 1 R3 4 1 0x7f1000000000 4 0 ", _EXIT], blocks=64)
    text = path.read_text()
    for block in range(64):
        text = text.replace("0x7f1000000000", f"0x7f1{block * 4096:09x}", 1)
    path.write_text(text)
    access = analyse((64, 1, 1), _witnesses(read_trace(path)), frozenset({0x10}))
    assert (access[0x10].sharers, access[0x10].meeting, access[0x10].first) == (64.0, 64.0, True)
    assert (access[0x20].sharers, access[0x20].meeting, access[0x20].step) == (1.0, 1.0, (32, 0, 0))


def test_a_repeated_kernel_finds_its_lines_in_l2(write_trace: Callable[..., Path], spec: GpuSpec) -> None:
    chase = [f"0010 ffffffff 1 R2 LDG.E 1 R2 4 1 0x7f00000{page:02x}000 4 0 " for page in range(40)]
    trace = read_trace(write_trace([*chase, _EXIT]))
    cold = estimate_kernel(trace, spec)
    again = estimate_kernel(trace, spec, l2_after(trace))
    assert cold.cycles - again.cycles > 40 * 150


def test_the_newest_regions_stay_in_l2() -> None:
    warm = WarmL2().after((Region(0, 100, 100.0),)).after((Region(200, 300, 100.0),))
    assert [(one.low, one.high) for one in warm.resident(1000)] == [(200, 300), (0, 100)]
    assert [(one.low, one.high) for one in warm.resident(150)] == [(200, 300), (50, 100)]
    assert [(one.low, one.high) for one in warm.after((Region(0, 400, 400.0),)).resident(1000)] == [(0, 400)]


def test_a_sparse_region_counts_by_its_density() -> None:
    (one,) = WarmL2().after((Region(0, 100, 25.0, frozenset({3})),)).resident(1000)
    assert (one.density, one.known) == (0.25, frozenset({3}))


def test_blocks_beyond_those_that_fit_go_to_the_core_that_is_free_first() -> None:
    assert _busiest([5, 5, 5, 5, 5, 5], 2, 2) == [0, 2, 4]
    # Going round, core 0 would get both long ones.
    assert _busiest([9, 1, 9, 1, 1, 1, 1], 2, 1) == [1, 2, 4, 6]
    assert _busiest([4, 1, 1, 9, 1, 1], 2, 1) == [1, 2, 3]
    assert _busiest([9, 1, 9, 1], 2, 2) == [0, 2]
    assert _busiest([3], 4, 1) == [0]


def test_long_blocks_at_one_cores_places_do_not_all_wait_for_it(
    write_trace: Callable[..., Path], spec: GpuSpec
) -> None:
    short, blocks = [_WORK] * 10 + [_EXIT], 6 * spec.cores
    path = write_trace(short, blocks=blocks)
    parts = (
        path.read_text().replace("-shmem = 0", f"-shmem = {spec.shared_bytes_per_core}").split("#BEGIN_TB")
    )
    long = f"insts = {1001}\n" + f"{_WORK}\n" * 990
    for block in range(0, blocks, spec.cores):
        parts[block + 1] = parts[block + 1].replace("insts = 11\n", long)
    path.write_text("#BEGIN_TB".join(parts))
    net = estimate_kernel(read_trace(path), spec).cycles - spec.launch_latency
    one = write_trace([_WORK] * 1000 + [_EXIT], name="kernel-2.traceg")
    assert net < 3 * (estimate_kernel(read_trace(one), spec).cycles - spec.launch_latency)
