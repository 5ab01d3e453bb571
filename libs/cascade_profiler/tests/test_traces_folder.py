"""The tracer's lists and statistics, and which of its files are closed."""

from __future__ import annotations

from pathlib import Path

import pytest
from cascade_profiler.errors import CaptureError
from cascade_profiler.traces_folder import (
    closed_traces,
    is_kernel_list,
    is_statistics,
    kernel_id_of,
    kernel_lines,
    listed_kernels,
    parse_statistics,
    stem_of,
)

HEADER = "kernel id, kernel mangled name, grid_dimX, ...\n"


def test_a_row_cut_by_a_kill_keeps_its_shape() -> None:
    text = (Path(__file__).parent / "captures/stats_row_cut").read_text(encoding="utf-8")

    kernels = parse_statistics(text)

    assert list(kernels) == [f"kernel-{n}-ctx_0x560014a9" for n in (38, 39, 40)]
    cut = kernels["kernel-40-ctx_0x560014a9"]
    assert (cut.kernel_id, cut.grid, cut.block) == (40, (65536, 1, 1), (128, 1, 1))
    assert cut.name.startswith("_ZN2at6native29vectorized")
    assert kernels["kernel-39-ctx_0x560014a9"].grid == (24, 2, 1)


def test_commas_in_a_demangled_name_do_not_shift_the_columns() -> None:
    row = "kernel-3.trace, void f<1, 2>(int, float), 8, 4, 2, 64, 32, 2, 1, 64, 10,10\n"
    kernel = parse_statistics(HEADER + row)["kernel-3"]

    assert (kernel.name, kernel.grid, kernel.block) == ("void f<1, 2>(int, float)", (8, 4, 2), (32, 2, 1))


@pytest.mark.parametrize(
    "row",
    ["", "kernel-3.trace", "kernel-3.trace, _Z1fv, 8, 4", "junk, x, 1, 1, 1, 1, 1, 1, 1, 1, 1,1"],
)
def test_rows_without_a_shape_are_left_out(row: str) -> None:
    assert parse_statistics(HEADER + row) == {}


def test_lists_hold_copies_and_kernels() -> None:
    text = "MemcpyHtoD,0x00007f1c46000000,4096\nkernel-1-ctx_0xa.trace.xz\nkernel-2-ctx_0xa.tra"

    assert kernel_lines(text) == ("kernel-1-ctx_0xa.trace.xz", "kernel-2-ctx_0xa.tra")
    assert kernel_lines(text, growing=True) == ("kernel-1-ctx_0xa.trace.xz",)


@pytest.mark.parametrize("suffix", [".trace", ".trace.xz", ".traceg", ".traceg.xz", ".tracez", ""])
def test_raw_and_processed_files_share_a_stem_and_a_number(suffix: str) -> None:
    assert stem_of(f"kernel-12-ctx_0xab{suffix}") == "kernel-12-ctx_0xab"
    assert kernel_id_of(f"kernel-12-ctx_0xab{suffix}") == 12


def test_names_are_told_apart() -> None:
    names = [
        "kernelslist",
        "kernelslist_ctx_0x1f",
        "kernelslist.g",
        "kernelslist_ctx_0x1f.g",
        "stats.csv",
        "stats_ctx_0x1f",
    ]
    assert list(filter(is_kernel_list, names)) == ["kernelslist", "kernelslist_ctx_0x1f"]
    assert list(filter(is_statistics, [*names, "stats", "stats_ctx_0x1f.g"])) == [
        "stats.csv",
        "stats_ctx_0x1f",
    ]
    assert kernel_id_of("kernelslist") is None


def test_a_listed_kernel_without_statistics_is_an_incomplete_trace() -> None:
    with pytest.raises(CaptureError, match=r"names 'kernel-2\.trace'"):
        listed_kernels(["kernel-2.trace"], {})


def test_all_but_the_last_kernel_of_each_context_are_closed_while_the_tracer_runs() -> None:
    lists = ["kernel-1-ctx_0xa.trace.xz\nkernel-2-ctx_0xa.trace.xz\n", "kernel-1-ctx_0xb.trace.xz\n"]
    present = [
        "kernel-1-ctx_0xa.trace.xz",
        "kernel-2-ctx_0xa.trace.xz",
        "kernel-1-ctx_0xb.trace.xz",
        "stats_ctx_0xa",
    ]

    assert closed_traces(lists, present, finished=False) == ("kernel-1-ctx_0xa.trace.xz",)
    assert closed_traces(lists, present, finished=True) == tuple(sorted(present[:3]))


def test_a_half_written_list_line_closes_nothing_more() -> None:
    lists = ["kernel-1.trace\nkernel-2.trace\nkernel-3.tr"]

    assert closed_traces(lists, ["kernel-1.trace", "kernel-2.trace"], finished=False) == ("kernel-1.trace",)


def test_files_already_sent_are_not_named_again() -> None:
    assert closed_traces(["kernel-1.trace\nkernel-2.trace\n"], ["kernel-2.trace"], finished=False) == ()
