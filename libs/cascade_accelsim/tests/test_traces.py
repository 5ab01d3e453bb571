"""A trace directory's own files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cascade_accelsim.traces import (
    KernelLaunch,
    Memcpy,
    context_of_list,
    is_raw_kernel,
    is_stats,
    kernel_id_of,
    lists_without_stats,
    merge_launches,
    parse_kernels_list,
    parse_launches,
    parse_real_timing,
)
from hypothesis import given, settings
from hypothesis import strategies as st

Case = tuple[dict[str, Any], Path]

HEADER = (
    "kernel id, kernel mangled name, grid_dimX, grid_dimY, grid_dimZ, #blocks, "
    "block_dimX, block_dimY, block_dimZ, #threads, total_insts, total_reported_insts"
)


def as_json(launches: list[KernelLaunch]) -> list[dict[str, Any]]:
    return [
        {
            "kernel_id": launch.kernel_id,
            "name": launch.name,
            "grid": list(launch.grid),
            "block": list(launch.block),
            "instructions": launch.instructions,
        }
        for launch in launches
    ]


def test_a_row_cut_short_is_listed_without_instructions(case: Callable[[str], Case]) -> None:
    given, folder = case("trace-stats-row-cut")
    traces = folder / "trace" / "traces"
    table = parse_launches((traces / "stats_ctx_0x560014a9").read_text())
    assert as_json(merge_launches([table])) == given["expect"]["kernels"]
    assert table.unreadable == ()
    listed = parse_kernels_list((traces / "kernelslist.g").read_text())
    assert listed.kernel_count == given["expect"]["kernel_count"]


def test_rows_of_two_contexts_stand_side_by_side(case: Callable[[str], Case]) -> None:
    given, folder = case("trace-two-contexts")
    tables = [parse_launches(path.read_text()) for path in sorted(folder.glob("stats_ctx_*"))]
    wanted = given["expect"]["when_ready"]
    assert [
        {"kernel_id": launch.kernel_id, "name": launch.name, "instructions": launch.instructions}
        for launch in merge_launches(tables)
    ] == wanted["kernels"]
    assert parse_kernels_list((folder / "kernelslist.g").read_text()).kernel_count == wanted["kernel_count"]


def test_a_demangled_name_keeps_its_commas() -> None:
    name = (
        "void cutlass::Kernel<Shape<128, 128, 32>, (int)4, 3.5e-05f>(T1::Params, 1, 1) [clone .constprop.0]"
    )
    table = parse_launches(f"{HEADER}\nkernel-2.trace, {name}, 2, 1, 1, 2, 128, 1, 1, 128, 320,320\n")
    assert table.launches == (KernelLaunch(2, name, (2, 1, 1), (128, 1, 1), 320),)


def test_a_name_that_ends_in_numbers_does_not_shift_the_columns() -> None:
    table = parse_launches(f"{HEADER}\nkernel-1.trace, f<1, 1>, 1, 1, 1, 1, 1, 1, 1, 1, 1,1\n")
    assert table.launches == (KernelLaunch(1, "f<1, 1>", (1, 1, 1), (1, 1, 1), 1),)


def test_lines_that_are_no_row_are_reported_and_not_dropped_in_silence() -> None:
    table = parse_launches(
        f"{HEADER}\nkernel-1.trace, f, 2, 1\nrubbish\nkernel-x.trace, f, 1,1,1,1,1,1,1,1,1,1\n\n"
    )
    assert table.launches == ()
    assert table.unreadable == (
        "kernel-1.trace, f, 2, 1",
        "rubbish",
        "kernel-x.trace, f, 1,1,1,1,1,1,1,1,1,1",
    )


def test_every_statistics_file_of_the_reference_material_is_read_whole(shared: Path) -> None:
    files = [path for path in (shared / "accelsim" / "traces").rglob("stats*") if path.is_file()]
    assert len(files) > 15
    for path in files:
        text = path.read_text()
        table = parse_launches(text)
        assert table.unreadable == (), path
        assert len(table.launches) == text.count("\nkernel-"), path
        assert all(launch.instructions for launch in table.launches), path


def test_only_what_the_simulator_takes_counts_as_a_kernel() -> None:
    listed = parse_kernels_list(
        "# kernel-0.traceg\nMemcpyHtoD,0x00007f1af6000000,65536\r\nMemcpyDtoH,0x1,2\n\n"
        "kernel-1.traceg.xz\r\nMemcpyHtoD,1\n"
    )
    assert listed.kernels == ("kernel-1.traceg.xz",)
    assert listed.memcpys == (Memcpy(0x7F1AF6000000, 65536),)
    assert listed.ignored == ("# kernel-0.traceg", "MemcpyDtoH,0x1,2", "MemcpyHtoD,1")


@pytest.mark.parametrize(
    ("name", "raw", "kernel_id"),
    [
        ("kernel-1.trace", True, 1),
        ("kernel-12.trace.xz", True, 12),
        ("kernel-3-ctx_0x55d0.trace.xz", True, 3),
        ("kernel-3-ctx_0x55d0.tracez", False, 3),
        ("kernel-3.traceg", False, 3),
        ("kernelslist.g", False, None),
        ("kernel-x.trace", True, None),
        ("kernel-1.trace.tmp", False, 1),
    ],
)
def test_kernel_files_are_known_by_their_names(name: str, raw: bool, kernel_id: int | None) -> None:
    assert is_raw_kernel(name) == raw
    assert kernel_id_of(name) == kernel_id


def test_a_list_is_paired_with_the_statistics_of_its_context() -> None:
    names = [
        "kernelslist_ctx_0xa",
        "kernelslist_ctx_0xb",
        "kernelslist_ctx_0xb.g",
        "stats_ctx_0xa",
        "kernelslist.g",
    ]
    assert lists_without_stats(names) == ["0xb"]
    assert lists_without_stats([*names, "stats_ctx_0xb"]) == []
    assert lists_without_stats(["metadata.json", "stats_ctx_0xa"]) is None
    assert context_of_list("kernelslist_ctx_0xb.g") is None
    assert [is_stats(name) for name in ("stats.csv", "stats_ctx_0xa", "stats_ctx_", "kernelslist")] == [
        True,
        True,
        False,
        False,
    ]


def test_real_timing_rows_are_sorted_and_normalised() -> None:
    timing = parse_real_timing(
        [
            {"kernel_id": 7, "kernel_name": "b", "duration_ns": 2507, "grid": "2x1x1", "block": [128]},
            {"kernel_id": 5, "kernel_name": "a\n", "duration_ns": "3", "grid": "(4, 2)", "block": "none"},
        ]
    )
    assert timing.has_real_timing
    assert [row.kernel_id for row in timing.rows] == [5, 7]
    assert [row.kernel_name for row in timing.rows] == ["a", "b"]
    assert [row.duration_ns for row in timing.rows] == [None, 2507.0]
    assert [row.grid for row in timing.rows] == [(4, 2, 1), (2, 1, 1)]
    assert [row.block for row in timing.rows] == [None, (128, 1, 1)]


@pytest.mark.parametrize("duration", [-1, float("nan"), float("inf"), True, None, 10**400])
def test_a_duration_that_is_no_time_is_null(duration: object) -> None:
    assert parse_real_timing([{"kernel_id": 1, "duration_ns": duration}]).rows[0].duration_ns is None


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"rows": []}, "expected a list of rows, met an object"),
        ([], "the list of rows is empty"),
        (
            [{"kernel_id": 1}, {"kernel_id": "2"}],
            "row 1: expected an object with an integer kernel_id, met kernel_id '2'",
        ),
        ([{"kernel_id": True}], "row 0: expected an object with an integer kernel_id, met kernel_id True"),
        ([3], "row 0: expected an object with an integer kernel_id, met 3"),
    ],
)
def test_what_is_no_real_timing_says_why(document: object, problem: str) -> None:
    timing = parse_real_timing(document)
    assert (timing.rows, timing.problem, timing.has_real_timing) == ((), problem, False)


def test_the_real_timings_of_the_samples_are_read(shared: Path) -> None:
    for path in sorted((shared / "samples").glob("*/real_timing.json")):
        timing = parse_real_timing(json.loads(path.read_text()))
        assert timing.has_real_timing
        assert all(row.duration_ns and row.grid and row.block and row.kernel_name for row in timing.rows)


@settings(max_examples=50, deadline=None)
@given(
    text=st.text(max_size=200)
    | st.lists(st.sampled_from(["kernel-1.trace", ",", " 1", "\n", "1", "f<"])).map("".join)
)
def test_no_text_makes_a_reader_raise(text: str) -> None:
    parse_launches(text)
    parse_kernels_list(text)
    kernel_id_of(text)
    parse_real_timing([{"kernel_id": 1, "grid": text, "kernel_name": text, "duration_ns": text}])
