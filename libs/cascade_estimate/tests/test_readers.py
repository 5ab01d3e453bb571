"""Traces larger than what is kept of them, bounds on what is remembered, and raw traces that do not hold what their
header says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from cascade_estimate import (
    GpuSpec,
    KernelTrace,
    TraceFormatError,
    WarmL2,
    addressing,
    estimate_kernel,
    estimate_trace,
    l2_after,
    raw_reader,
    read_trace,
    readers,
    tracedir,
)
from cascade_estimate.addressing import AddressMap
from cascade_estimate.decode import Decoder, Instruction

_EXIT = "0990 ffffffff 0 EXIT 0 0 0 "
_LINES = ["0010 ffffffff 1 R6 S2R 0 0 0 ", "0020 ffffffff 1 R2 FADD 2 R6 R3 0 0 ", _EXIT]


@pytest.fixture
def write_raw(write_trace: Callable[..., Path]) -> Callable[..., Path]:
    """Write a raw trace in which the warps' lines take turns."""

    def write(lines: list[str], *, blocks: int = 1, threads: int = 32, version: int = 5) -> Path:
        processed = write_trace(lines, blocks=blocks, threads=threads)
        head = processed.read_text().split("#BEGIN_TB")[0]
        place = "1 0 0 0 0 0 0 " if version >= 6 else ""
        head = head.replace("tracer version = 5", f"tracer version = {version}")
        body = [
            f"{block} 0 0 {warp} {place}{line}\n"
            for line in lines
            for block in range(blocks)
            for warp in range((threads + 31) // 32)
        ]
        path = processed.with_name("kernel-1.trace")
        path.write_text(head + "".join(body))
        return path

    return write


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep 6,000 bytes of a block and 20,000 of all."""
    for module in (readers, raw_reader):
        monkeypatch.setattr(module, "BLOCK_LIMIT_BYTES", 6000)
        monkeypatch.setattr(module, "SAMPLE_LIMIT_BYTES", 20000)


@pytest.mark.parametrize("version", [5, 6])
def test_a_raw_trace_gives_what_its_processed_form_gives(
    write_raw: Callable[..., Path], spec: GpuSpec, version: int
) -> None:
    path = write_raw(_LINES, blocks=40, threads=96, version=version)
    raw, processed = read_trace(path), read_trace(path.with_suffix(".traceg"))
    assert {index: block.warps() for index, block in raw.sample.items()} == {
        index: block.warps() for index, block in processed.sample.items()
    }
    assert estimate_kernel(raw, spec).cycles == estimate_kernel(processed, spec).cycles


@pytest.mark.usefixtures("small_limits")
def test_of_a_raw_trace_beyond_the_limits_whole_warps_of_the_most_wanted_blocks_are_kept(
    write_raw: Callable[..., Path], spec: GpuSpec
) -> None:
    lines = [*_LINES[:2] * 20, _EXIT]
    blocks = read_trace(write_raw(lines, blocks=40, threads=64))
    assert all(block.whole for block in blocks.sample.values())
    assert 0 in blocks.sample
    assert (
        sum(len(line) for block in blocks.sample.values() for _, warp in block.lines for line in warp) < 20000
    )
    long = read_trace(write_raw(lines, blocks=2, threads=1024))
    assert [(block.whole, [number for number, _ in block.lines]) for block in long.sample.values()] == [
        (False, [0, 1, 2, 3])
    ] * 2
    estimate = estimate_kernel(long, spec)
    assert any("represented by their first warps" in note for note in estimate.notes)
    assert estimate.cycles > estimate_kernel(blocks, spec).cycles


@pytest.mark.usefixtures("small_limits")
def test_of_a_warp_that_is_too_long_by_itself_the_beginning_is_kept(
    write_raw: Callable[..., Path], spec: GpuSpec
) -> None:
    lines = [*_LINES[:2] * 9000, _EXIT]  # several pieces of text
    path = write_raw(lines, blocks=2)
    for trace in (read_trace(path), read_trace(path.with_suffix(".traceg"))):
        assert not trace.sample[0].whole
        assert estimate_kernel(trace, spec).cycles - spec.launch_latency > 2 * 18000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0 0 0 1 0010 ffffffff 1 R6 S2R 0 0 0 \n", "0 0 0 1\n", "a line is cut or damaged: '0 0 0  1'"),
        ("\n0 0 0 ", "\n7 0 0 ", "block 0 of the header's grid is not in the trace; is it cut?"),
        ("\n2 0 0 ", "\n9 0 0 ", "block 2 of the header's grid is not in the trace; is it cut?"),
        (
            "0 0 0 1 ",
            "0 0 0 2 ",
            "block 0, 2 warps expected from the header's block dim, 2 found, the last one 2",
        ),
        ("(3,1,1)", "(10,1,1)", "10 blocks of 2 warps, the trace holds 18 instructions; is it cut?"),
        ("(64,1,1)", "(32,1,1)", "block 0, 1 warps expected from the header's block dim, 2 found"),
        (
            "0 0 0 1 0990 ffffffff 0 EXIT",
            "0 0 0 1 0990 ffffffff 0 NOP",
            "block 0, warp 1 does not end with EXIT",
        ),
    ],
)
def test_a_raw_trace_that_lacks_what_its_header_says_is_refused(
    write_raw: Callable[..., Path], old: str, new: str, message: str
) -> None:
    path = write_raw(_LINES, blocks=3, threads=64)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(TraceFormatError) as caught:
        read_trace(path)
    assert message in str(caught.value)


def test_a_short_line_of_a_newer_tracer_is_refused(write_raw: Callable[..., Path]) -> None:
    path = write_raw(_LINES, version=6)
    path.write_text(path.read_text().replace("0 0 0 0020 ffffffff 1 R2 FADD 2 R6 R3 0 0 ", ""))
    with pytest.raises(TraceFormatError, match="a line is cut or damaged"):
        read_trace(path)


def test_a_grid_far_larger_than_the_trace_is_refused_before_its_blocks_are_counted_out(
    write_raw: Callable[..., Path],
) -> None:
    path = write_raw(_LINES)
    path.write_text(path.read_text().replace("-grid dim = (1,1,1)", "-grid dim = (300000000,1,1)"))
    with pytest.raises(TraceFormatError, match="300000000 blocks of 1 warps, the trace holds 3 instructions"):
        read_trace(path)


@pytest.mark.usefixtures("small_limits")
def test_a_cut_inside_a_block_that_is_not_kept_whole_is_seen(write_trace: Callable[..., Path]) -> None:
    path = write_trace([*_LINES[:2] * 200, _EXIT], threads=64)
    read_trace(path)
    text = path.read_text()
    path.write_text(text[: len(text) - 2000])
    with pytest.raises(TraceFormatError, match="block 0 ends without #END_TB"):
        read_trace(path)


def _gathers(count: int) -> list[str]:
    """Accesses of which no two have the same pattern."""
    return [
        f"{0x10 * place:04x} 00000003 1 R2 LDG.E 1 R4 4 2 {0x7F0000000000 + 4096 * place:#x} {128 * place + 128} 0 "
        for place in range(count)
    ]


def test_what_a_kernel_leaves_in_l2_is_found_from_a_bounded_number_of_accesses(
    write_trace: Callable[..., Path], spec: GpuSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = read_trace(write_trace([*_gathers(400), _EXIT], threads=1024))
    estimate_kernel(trace, spec)
    asked = 0
    block = Decoder.block

    def counted(
        self: Decoder, warps: Iterable[tuple[int, tuple[bytes, ...]]], index: int
    ) -> list[list[Instruction]]:
        nonlocal asked
        decoded = block(self, warps, index)
        asked += sum(map(len, decoded))
        return decoded

    monkeypatch.setattr(Decoder, "block", counted)
    warm = l2_after(trace)
    assert 0 < asked <= 2 * 4096
    assert sum(len(region.known) for region in warm.regions) > 0


def test_patterns_that_never_come_again_are_not_kept_without_end() -> None:
    decoder = Decoder("kernel-1.traceg")
    for line in _gathers(5000):
        decoder.decode(line.encode())
    kept = sum(len(head.patterns) for head in decoder._heads.values())
    assert kept == 4096
    again = _gathers(5000)[-1].encode()
    assert decoder.decode(again).footprint.lines == decoder.decode(again).footprint.lines


def test_of_the_last_kernel_nobody_asks_what_it_leaves_in_l2(
    write_trace: Callable[..., Path], spec: GpuSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_trace(_LINES)
    listing = path.with_name("kernelslist.g")
    listing.write_text(f"{path.name}\n{path.name}\n{path.name}\n")
    asked: list[str] = []

    def after(trace: KernelTrace, warm: WarmL2) -> WarmL2:
        asked.append(trace.source)
        return warm

    monkeypatch.setattr(tracedir, "l2_after", after)
    assert len(estimate_trace(listing, spec)) == 3
    assert len(asked) == 2


def test_lines_beyond_those_remembered_are_found_where_they_were(
    spec: GpuSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addressing, "_REMEMBERED_LINES", 10)
    few, all_lines = AddressMap(spec), [AddressMap(spec).locate(line) for line in range(100)]
    assert [few.locate(line) for line in range(100)] == all_lines
    assert len(few.known) <= 10
