"""Instruction lines as tracers of all versions write them, and what they mean to the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cascade_estimate import GpuSpec, TraceFormatError, estimate_kernel, l2_after, read_trace
from cascade_estimate.decode import Decoder
from cascade_estimate.machine import Outcome, Work, simulate
from cascade_estimate.meetings import Surroundings
from cascade_estimate.opcodes import Kind, Unit, access_bytes, classify

_EXIT = "0990 ffffffff 0 EXIT 0 0 0 "
_USE = "0980 ffffffff 1 R9 FADD 2 R2 R2 0 0 "
_IDLE = {
    "LDG": "0010 00000000 1 R2 LDG.E 1 R4 4 1 0x0 0 0 ",
    "STG": "0010 00000000 0 STG.E 2 R4 R2 4 1 0x0 0 0 ",
    "ST": "0010 00000000 0 ST.E 2 R4 R2 4 1 0x0 0 0 ",
    "LD": "0010 00000000 1 R2 LD.E 1 R4 4 1 0x0 0 0 ",
    "RED": "0010 00000000 0 RED.E.ADD 2 R4 R2 4 1 0x0 0 0 ",
    "LDS": "0010 00000000 1 R2 LDS 1 R4 4 1 0x0 0 0 ",
    "LDL": "0010 00000000 1 R2 LDL 1 R4 4 1 0x0 0 0 ",
    "LDGSTS": "0010 00000000 0 LDGSTS.E 2 R4 R2 4 1 0x0 0 0 ",
}


def _decode(line: str, **decoder: int) -> tuple[int, int]:
    """Sectors and cycles in shared memory of one line."""
    footprint = Decoder("kernel-1.traceg", **decoder).decode(line.encode()).footprint  # type: ignore[arg-type]  # its integers only
    return footprint.sectors, footprint.conflicts


def _run(spec: GpuSpec, around: Surroundings, *warps: list[str]) -> Outcome:
    decoder = Decoder("kernel-1.traceg")
    code = [[decoder.decode(line.encode()) for line in (*lines, _EXIT)] for lines in warps]
    return simulate(spec, Work([code], [0], [around.active], 1, 1.0), around, 1 << 16)


@pytest.mark.parametrize("line", _IDLE.values(), ids=_IDLE)
@pytest.mark.parametrize("where", ["all blocks", "block 0", "the last block", "before an access"])
def test_an_access_without_an_active_lane_touches_nothing(
    write_trace: Callable[..., Path], spec: GpuSpec, line: str, where: str
) -> None:
    active = line.replace("00000000", "ffffffff", 1).replace("0x0 0", "0x7f0000000000 4")
    path = write_trace([line, *([active] if where == "before an access" else []), _USE, _EXIT], blocks=5)
    if where in ("block 0", "the last block"):
        first, *others = path.read_text().split("#BEGIN_TB")
        kept = 0 if where == "block 0" else len(others) - 1
        blocks = [part if place == kept else part.replace(line, active) for place, part in enumerate(others)]
        path.write_text("#BEGIN_TB".join([first, *blocks]))
    trace = read_trace(path)
    estimate = estimate_kernel(trace, spec)
    l2_after(trace)
    if where == "all blocks":
        assert estimate.cycles - spec.launch_latency < 100
        assert estimate.terms["dram"] == 0.0


def test_a_halo_without_lanes_does_not_hide_that_blocks_share_what_follows(
    write_trace: Callable[..., Path], spec: GpuSpec
) -> None:
    shared = ["0020 ffffffff 1 R2 LDG.E 1 R4 4 1 0x7f0000000000 4 0 "] * 4
    trace = read_trace(write_trace([*[_IDLE["LDG"]] * 30, *shared, _USE, _EXIT], blocks=64, threads=128))
    found = trace.accesses_of(0, 16, 4)
    assert found is not None
    assert found.everything == {0x7F0000000000 >> 7}
    assert found.scale == 1.0


@pytest.mark.parametrize(
    ("line", "sectors"),
    [
        ("0010 ffffffff 1 R2 LDG.E 1 R4 4 1 0x7f0000000000 4", 4),
        ("0010 0000000f 1 R2 LDG.E 1 R4 4 2 0x7f0000000000 4 4 4096", 2),
        ("0010 00000001 1 R2 LDG.E 1 R4 4 2 0x7f0000000000", 1),
        ("0010 00000003 1 R2 LDG.E 1 R4 4 0 0x7f0000000000 0x7f0000001000", 2),
    ],
)
@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_all_tracer_versions_are_read_with_and_without_the_immediate(
    line: str, sectors: int, version: int
) -> None:
    line += " 0 " if version >= 5 else " "
    assert _decode(line, tracer_version=version) == (sectors, 1)


def test_a_missing_number_is_seen_where_the_immediate_would_take_its_place() -> None:
    cut = "0010 0000000f 1 R2 LDG.E 1 R4 4 2 0x7f0000000000 4 4 0 "
    with pytest.raises(TraceFormatError, match="3 numbers expected after the first address, found 2"):
        _decode(cut, tracer_version=5)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("0010 00000001 0 UTMALDG.2D 2 R4 R2 4 3 0x7f0000000000 128 64 0 ", Kind.ALU),
        ("0010 00000001 0 ARRIVES.LDGSTSBAR.64 1 R4 8 1 0x7f0000000000 0 0 ", Kind.COPY_GROUP),
        ("0010 00000001 0 CCTL.IVALL 1 R4 4 1 0x7f0000000000 0 0 ", Kind.ALU),
    ],
)
def test_an_address_of_what_is_no_memory_instruction_is_no_traffic(
    write_trace: Callable[..., Path], spec: GpuSpec, line: str, kind: Kind
) -> None:
    instruction = Decoder("kernel-1.traceg", tracer_version=6).decode(line.encode())
    assert (instruction.kind, instruction.line) == (kind, -1)
    trace = read_trace(write_trace([line, _EXIT], blocks=40))
    assert estimate_kernel(trace, spec).terms["dram"] == 0.0
    found = trace.accesses_of(0, 16, 1)
    assert found is not None
    assert not found.everything


def test_warp_groups_and_their_products_are_integer_operations_as_in_the_simulator() -> None:
    for name in ("WARPGROUP.ARRIVE", "HGMMA.64x128x16.F32", "CGAERRBAR", "UTMACCTL.PF", "UBLKPF"):
        assert classify(name) == (Unit.INT, Kind.ALU, True)


def test_a_hopper_kernel_takes_what_the_simulator_gives(shared_estimate: Path) -> None:
    folder = shared_estimate.parent / "accelsim"
    main, trace_config = (
        (folder / "tested-cfgs" / "SM90_H100_2024" / name).read_text()
        for name in ("gpgpusim.config", "trace.config")
    )
    spec = GpuSpec.from_config(main + "\n-gpgpu_memory_partition_indexing 0\n", trace_config)
    kernel = folder / "traces" / "sm90" / "hopper" / "traces" / "kernel-1.traceg.xz"
    assert estimate_kernel(read_trace(kernel), spec).cycles == pytest.approx(5310, abs=20)


@pytest.mark.parametrize(
    ("opcode", "width"),
    [
        ("LDG.E", 4),
        ("LDG.E.U8", 1),
        ("LDG.E.S8", 4),
        ("LDG.E.LTC128B.128", 16),
        ("STS.U16", 2),
        ("LDSM.16.M88.4", 2),
    ],
)
def test_the_opcode_tells_how_wide_an_access_is(opcode: str, width: int) -> None:
    assert access_bytes(opcode) == width


def test_signed_bytes_cross_into_the_next_sector_as_the_simulator_reads_words() -> None:
    assert _decode("0010 ffffffff 1 R2 LDG.E.U8 1 R4 1 1 0x7f0000000000 1 0 ") == (1, 1)
    assert _decode("0010 ffffffff 1 R2 LDG.E.S8 1 R4 1 1 0x7f0000000000 1 0 ") == (2, 1)


@pytest.mark.parametrize(
    ("line", "sectors"),
    [
        ("0010 ffffffff 0 STL 2 R1 R8 4 1 0xfffc00 0 0 ", 4),
        ("0010 ffffffff 0 STL.128 2 R1 R8 16 1 0xfffc00 0 0 ", 16),
        ("0010 000000ff 0 STL 2 R1 R8 4 1 0xfffc00 0 0 ", 1),
        ("0010 00000101 0 STL.U8 2 R1 R8 1 2 0xfffc01 0 0 ", 2),
    ],
)
def test_the_lanes_copies_of_a_local_word_fill_a_line(line: str, sectors: int) -> None:
    assert _decode(line) == (sectors, 1)


def test_local_memory_belongs_to_a_warp(spec: GpuSpec, alone: Callable[..., Surroundings]) -> None:
    store = "0010 ffffffff 0 STL 2 R1 R8 4 1 0xfffc00 0 0 "
    load = "0020 ffffffff 1 R2 LDL 1 R1 4 1 0xfffc00 0 0 "
    one = _run(spec, alone(), [store, load, _USE]).traffic
    two = _run(spec, alone(), [store, load, _USE], [store, load, _USE]).traffic
    assert (one.l1_sectors, one.l1_misses, one.l2_misses) == (4, 0, 0)
    assert two.port_busy == 2 * one.port_busy
    unwritten = _run(spec, alone(), [load, _USE], [load, _USE]).traffic
    assert unwritten.l2_misses == 8


def test_generic_addresses_find_their_space_as_in_the_simulator() -> None:
    window = (0x7F0010000000, 0x7F0020000000)
    decoder = Decoder("kernel-1.traceg", shared_window=window)
    unknown = Decoder("kernel-1.traceg", shared_window=(window[0], 0))

    def kind(of: Decoder, address: int) -> int:
        return of.decode(f"0010 00000001 1 R2 LD.E 1 R4 4 1 {address:#x} 0 0 ".encode()).kind

    assert kind(decoder, window[0]) == Kind.SHARED
    assert kind(decoder, window[1]) == Kind.LOCAL_LOAD
    assert kind(decoder, window[1] + (1 << 14)) == Kind.LOAD
    assert kind(unknown, 0x7F0000000000) == Kind.SHARED


def test_loads_of_gpu_scope_and_a_config_that_says_so_pass_the_l1_by(
    spec: GpuSpec, alone: Callable[..., Surroundings]
) -> None:
    plain = "0010 ffffffff 1 R2 LDG.E 1 R4 4 1 0x7f0000000000 4 0 "
    strong = plain.replace("LDG.E", "LDG.E.STRONG.GPU")
    store = "0020 ffffffff 0 STG.E 2 R4 R2 4 1 0x7f0000001000 4 0 "
    past = replace(spec, l1_bypass_global=True)
    kept = _run(spec, alone(), [plain, _USE, plain, _USE])
    again = _run(spec, alone(), [strong, _USE, strong, _USE])
    assert kept.traffic.port_busy == again.traffic.port_busy / 2
    assert again.cycles == _run(past, alone(), [plain, _USE, plain, _USE]).cycles
    assert _run(past, alone(), [store]).cycles < _run(spec, alone(), [store]).cycles


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("0010 ffffffff 1 R2 LDG.E 1 R4 4 1 0x" + "f" * 300 + " 4 0 ", "is not an address of 64 bits"),
        ("0010 ffffffff 1 R2 LDG.E 1 R4 4 1 0x-10 4 0 ", "is not an address of 64 bits"),
        ("0010 ffffffff 1 R2 LDG.E 1 R4 4 1 0x10 " + "9" * 300 + " 0 ", "beyond 64 bits"),
        ("0010 ffffffff 1 R2 LDG.E 1 R4 4 1 0x10 " + "9" * 5000 + " 0 ", "is not a number"),
    ],
)
def test_numbers_that_no_machine_has_are_damage(line: str, problem: str) -> None:
    with pytest.raises(TraceFormatError, match=problem) as caught:
        Decoder("kernel-1.traceg").decode(line.encode())
    assert len(str(caught.value)) < 200


def test_a_memory_barrier_waits_for_loads_only_and_gives_up_the_l1(
    spec: GpuSpec, alone: Callable[..., Surroundings]
) -> None:
    load = "0010 ffffffff 1 R2 LDG.E 1 R4 4 1 0x7f0000000000 4 0 "
    store = "0020 ffffffff 0 STG.E 2 R4 R5 4 1 0x7f0000001000 4 0 "
    fence = "0030 ffffffff 0 MEMBAR.SC.GPU 0 0 0 "
    work = ["0040 ffffffff 1 R7 FADD 2 R7 R8 0 0 "] * 200
    plain = _run(spec, alone(), [load, _USE, load, _USE]).traffic
    fenced = _run(spec, alone(), [load, _USE, fence, load, _USE]).traffic
    kept = _run(replace(spec, flush_l1=False), alone(), [load, _USE, fence, load, _USE]).traffic
    assert (plain.l1_misses, fenced.l1_misses, kept.l1_misses) == (4, 8, 4)
    after_load = _run(spec, alone(), [load, fence, *work]).cycles
    after_store = _run(spec, alone(), [store, fence, *work]).cycles
    assert after_load > after_store + 200
    assert _run(spec, alone(), [fence, _USE]).cycles > 0
