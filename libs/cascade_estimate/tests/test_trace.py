from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from cascade_estimate import TraceFormatError, estimate_kernel, read_trace
from cascade_estimate.config import GpuSpec
from cascade_estimate.errors import EstimateError
from cascade_estimate.readers import planned_blocks

_LOOP = [
    "0000 ffffffff 1 R6 S2R 0 0 0 ",
    "0010 ffffffff 1 R2 FADD 2 R6 R3 0 0 ",
    "0020 ffffffff 0 EXIT 0 0 0 ",
]


def test_header_blocks_and_instructions_are_counted_without_decoding(
    write_trace: Callable[..., Path],
) -> None:
    trace = read_trace(write_trace(_LOOP, blocks=40, threads=96))
    assert trace.header.name == "_Z4testPf"
    assert trace.header.grid == (40, 1, 1)
    assert trace.header.warps == 3
    assert list(trace.block_lines) == [9] * 40
    assert trace.instructions == 360
    assert {0, 1, 2, 4, 8, 16, 32, 20, 39} <= set(trace.sample)


def test_an_xz_trace_gives_what_the_plain_one_gives(write_trace: Callable[..., Path]) -> None:
    plain = write_trace(_LOOP, blocks=3)
    packed = plain.with_name(plain.name + ".xz")
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    one, other = read_trace(plain), read_trace(packed)
    assert one.sample[2].warps() == other.sample[2].warps()
    assert one.block_lines == other.block_lines


def test_the_raw_and_the_processed_form_of_a_kernel_agree(shared_estimate: Path, spec: GpuSpec) -> None:
    folder = shared_estimate.parent / "accelsim" / "traces" / "sm86" / "tiny-text" / "traces"
    for number in (1, 2):
        raw, processed = (
            read_trace(folder / f"kernel-{number}.trace"),
            read_trace(folder / f"kernel-{number}.traceg"),
        )
        assert raw.instructions == processed.instructions
        assert raw.sample[0].warps() == processed.sample[0].warps()
        assert estimate_kernel(raw, spec).cycles == estimate_kernel(processed, spec).cycles


def test_every_cut_of_a_trace_is_an_error(
    write_trace: Callable[..., Path], tmp_path: Path, spec: GpuSpec
) -> None:
    text = write_trace(_LOOP, blocks=2, threads=64).read_bytes().rstrip(b"\n")
    cut = tmp_path / "kernel-2.traceg"
    for length in range(0, len(text) - 1, 7):
        cut.write_bytes(text[:length])
        with pytest.raises(TraceFormatError, match=r"kernel-2\.traceg"):
            estimate_kernel(read_trace(cut), spec)


def test_damaged_xz_data_is_named_as_such(write_trace: Callable[..., Path]) -> None:
    plain = write_trace(_LOOP, blocks=30)
    packed = plain.with_name(plain.name + ".xz")
    packed.write_bytes(lzma.compress(plain.read_bytes())[:-20])
    with pytest.raises(TraceFormatError, match="xz data is damaged or cut"):
        read_trace(packed)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-grid dim = (2,1,1)", "-grid dim = (3,1,1)", "grid has 3 blocks, the trace holds 2"),
        ("-grid dim = (2,1,1)", "-grid dim = (2,1)", "line 3: -grid dim"),
        ("-grid dim = (2,1,1)", "-grid dim = (1e999,1,1)", "line 3: -grid dim"),
        ("-grid dim = (2,1,1)", "-grid dim = (2.5,1,1)", "line 3: -grid dim"),
        ("-grid dim = (2,1,1)", "-grid dim = " + "-" * 30000 + "1", "line 3: -grid dim"),
        ("-nregs = 16", "-nregs = many", "line 6: -nregs"),
        ("-nregs = 16", "-nregs = 0x" + "f" * 20000, "line 6: -nregs"),
        ("-block dim = (32,1,1)\n", "", "no line '-block dim"),
        ("#traces format", "#trace", "is missing"),
        ("insts = 3", "insts = 4", "block 0, warp 0: 4 instructions announced, 3 found"),
        ("FADD 2 R6 R3", "FADD 2 R6", "block 0, warp 0, instruction 2: not an instruction line"),
        ("0010 ffffffff", "00x0 ffffffff", "not an instruction line"),
        ("0010 ffffffff", "00x0 ffffffff", "kernel-1.traceg, line 26: block 0, warp 0, instruction 2"),
        ("insts = 3", "insts = 4", "kernel-1.traceg, line 23: block 0"),
        ("insts = 3", "insts = " + "3" * 5000, "block 0, warp 0: the line 'insts = <n>' is missing"),
        ("warp = 0", "warp = " + "7" * 5000, "block 0, warp 77777777777777777777: the line 'insts"),
        ("EXIT", "NOP", "kernel-1.traceg, line 23: block 0, warp 0 ends without EXIT"),
        ("-block dim = (32,1,1)", "-block dim = (64,1,1)", "line 23: block 0, 2 warps expected"),
        ("-shmem = 0", "-shmem = -8", "line 5: -shmem: at least 0"),
        ("-nregs = 16", "-nregs = -1", "line 6: -nregs: at least 0"),
        ("#END_TB", "#END", "kernel-1.traceg, line 30: block 0 ends without #END_TB"),
    ],
)
def test_damage_is_reported_with_its_place(
    write_trace: Callable[..., Path], spec: GpuSpec, old: str, new: str, message: str
) -> None:
    path = write_trace(_LOOP, blocks=2)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(TraceFormatError) as caught:
        estimate_kernel(read_trace(path), spec)
    assert message in str(caught.value)


def test_a_warp_without_instructions_is_damage_and_no_free_warp(
    write_trace: Callable[..., Path], spec: GpuSpec
) -> None:
    with pytest.raises(TraceFormatError, match="block 0, warp 0 has no instruction"):
        estimate_kernel(read_trace(write_trace([])), spec)


def test_a_block_that_does_not_fit_names_the_kernel(write_trace: Callable[..., Path], spec: GpuSpec) -> None:
    path = write_trace(_LOOP, threads=1024)
    path.write_text(path.read_text().replace("-nregs = 16", "-nregs = 255"))
    with pytest.raises(EstimateError, match=r"^kernel-1\.traceg: a block of 1024 threads, 255 registers"):
        estimate_kernel(read_trace(path), spec)


def test_other_formats_are_refused_with_the_way_out(tmp_path: Path) -> None:
    for name, message in (
        ("kernel-1.tracez", "--text"),
        ("kernel-1.log", "ends with"),
        ("kernel-1.traceg", "does not exist"),
    ):
        with pytest.raises(TraceFormatError, match=message):
            read_trace(tmp_path / name)


def test_the_plan_holds_neighbours_along_each_dimension() -> None:
    plan = planned_blocks((5, 4, 2))
    assert {0, 1, 2, 4, 5, 10, 20, 39} <= set(plan)
    assert all(0 <= index < 40 for index in plan)
    assert len(planned_blocks((1 << 20, 1 << 15, 4))) < 80
