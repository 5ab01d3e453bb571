"""Reading Nsight's exports: variants of the tables, and whose kernel is whose."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cascade_profiler.attribution import profiled_steps
from cascade_profiler.errors import CaptureError
from cascade_profiler.intervals import union_ns
from cascade_profiler.nsys_export import (
    ApiRow,
    Capture,
    Correlation,
    KernelRow,
    MemoryRow,
    RangeRow,
    read_capture,
)
from cascade_profiler.steps import step_label
from hypothesis import given, settings
from hypothesis import strategies as st

CAPTURES = Path(__file__).parent / "captures/nsys"


def export(tmp_path: Path, name: str, more: str = "") -> Path:
    path = tmp_path / "capture.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript((CAPTURES / name).read_text(encoding="utf-8") + more)
    return path


def test_kernels_come_in_time_order_with_mangled_names_where_there_are_any(tmp_path: Path) -> None:
    kernels = read_capture(export(tmp_path, "plain.sql")).kernels

    assert [(k.kernel_name, k.duration_ns, k.grid, k.block) for k in kernels] == [
        ("_ZN4demo8rms_normI6__halfLi4EEEvPKT_PS2_i", 2016, (24, 1, 1), (128, 1, 1)),
        ("swiglu_act", 4080, (48, 1, 1), (256, 1, 1)),
        ("_ZN4demo8rms_normI6__halfLi4EEEvPKT_PS2_i", 1376, (24, 1, 1), (128, 1, 1)),
    ]
    assert sum(k.duration_ns for k in kernels) == 7472
    assert union_ns((k.start_ns, k.end_ns) for k in kernels) == 5276


def test_a_table_with_a_version_suffix_and_no_mangled_names_is_read(tmp_path: Path) -> None:
    kernels = read_capture(export(tmp_path, "suffixed.sql")).kernels

    assert [k.duration_ns for k in kernels] == [2016, 4080]
    assert kernels[0].kernel_name == "void demo::rms_norm<__half, 4>(const __half *, __half *, int)"


def test_a_capture_without_kernels_is_empty(tmp_path: Path) -> None:
    assert read_capture(export(tmp_path, "no_kernels.sql")).kernels == ()


def test_the_newest_version_of_a_table_wins(tmp_path: Path) -> None:
    more = (
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL_V2 AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL_V3 LIMIT 0;"
    )

    assert len(read_capture(export(tmp_path, "suffixed.sql", more)).kernels) == 2


def test_ranges_are_read_from_text_or_from_the_string_table_and_open_ones_are_left_out(
    tmp_path: Path,
) -> None:
    more = """
        INSERT INTO StringIds VALUES (9, 'by number');
        CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
            textId INTEGER);
        INSERT INTO NVTX_EVENTS VALUES (5, 9, 59, NULL, 9), (1, 2, 60, 'by text', NULL), (3, NULL, 59, 'open', NULL),
            (4, 6, 34, 'a mark', NULL);
    """

    assert read_capture(export(tmp_path, "plain.sql", more)).ranges == (
        RangeRow(1, 2, "by text"),
        RangeRow(5, 9, "by number"),
    )


def test_copies_fills_and_api_calls_are_read_from_their_tables(tmp_path: Path) -> None:
    more = """
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, correlationId INTEGER, globalPid INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (30, 40, 5, 16777216);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET_V2 (start INTEGER, end INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET_V2 VALUES (10, 11);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (20, 21, 16777219, 5);
    """
    capture = read_capture(export(tmp_path, "plain.sql", more))

    assert capture.memory == (MemoryRow(10, 11, None), MemoryRow(30, 40, Correlation(1, 5)))
    assert capture.api_calls == (ApiRow(20, 21, Correlation(1, 5)),)


def test_files_that_are_no_export_are_named(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no Nsight export"):
        read_capture(tmp_path / "missing.sqlite")
    (tmp_path / "text.sqlite").write_text("not a database, just a long enough text " * 50)
    with pytest.raises(CaptureError, match="can be read"):
        read_capture(tmp_path / "text.sqlite")


def kernel(
    start_ns: int, end_ns: int, name: str = "k", *, launch: int | None = None, process: int = 1
) -> KernelRow:
    correlation = None if launch is None else Correlation(process, launch)
    return KernelRow(start_ns, end_ns, name, (1, 1, 1), (32, 1, 1), 7, correlation)


def capture(
    kernels: list[KernelRow], calls: list[ApiRow], *, memory: list[MemoryRow] | None = None, steps: int = 2
) -> Capture:
    """Step n has call n and runs from 1000 n to 1000 n + 900."""
    ranges = tuple(RangeRow(n * 1000, n * 1000 + 900, step_label(n, 1, n)) for n in range(steps))
    return Capture(tuple(kernels), tuple(memory or ()), tuple(calls), ranges)


def test_a_kernel_belongs_to_the_step_that_launched_it_however_late_it_runs() -> None:
    late = kernel(1500, 1600, launch=1)
    first, second = profiled_steps(capture([late], [ApiRow(800, 810, Correlation(1, 1))]))

    assert first.kernels == (late,)
    assert first.gpu_busy_ns == 100
    assert second.kernels == ()


def test_a_kernel_without_a_correlated_call_belongs_to_the_step_it_starts_in() -> None:
    alone, lost = kernel(100, 200), kernel(1100, 1200, launch=77)
    first, second = profiled_steps(capture([alone, lost], []))

    assert (first.kernels, second.kernels) == ((alone,), (lost,))


def test_correlation_numbers_of_other_processes_do_not_mix() -> None:
    ours = kernel(500, 600, launch=1, process=1)
    calls = [ApiRow(100, 110, Correlation(1, 1)), ApiRow(1100, 1110, Correlation(2, 1))]

    assert profiled_steps(capture([ours], calls))[0].kernels == (ours,)


def test_calls_without_a_process_number_are_found_by_their_own() -> None:
    late = kernel(1500, 1600, launch=1)

    assert profiled_steps(capture([late], [ApiRow(100, 110, Correlation(None, 1))]))[0].kernels == (late,)


def test_activity_outside_every_step_belongs_to_none() -> None:
    gap, after = kernel(950, 960), kernel(5000, 5100)

    assert [step.kernels for step in profiled_steps(capture([gap, after], []))] == [(), ()]


def test_kernels_are_in_launch_order_on_overlapping_streams_and_busy_time_counts_overlap_once() -> None:
    # The side stream's kernel is launched second and starts first.
    main, side = kernel(300, 500, "main", launch=1), kernel(200, 400, "side", launch=2)
    calls = [ApiRow(10, 20, Correlation(1, 1)), ApiRow(30, 50, Correlation(1, 2)), ApiRow(40, 60, None)]
    step = profiled_steps(capture([side, main], calls, memory=[MemoryRow(450, 600, None)]))[0]

    assert [k.kernel_name for k in step.kernels] == ["main", "side"]
    assert step.gpu_busy_ns == 400
    assert step.cuda_api_ns == 10 + 30, "nested and overlapping calls count once"


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12))
def test_a_union_is_the_number_of_covered_nanoseconds(spans: list[tuple[int, int]]) -> None:
    intervals = [(start, start + length) for start, length in spans]
    covered = {at for start, end in intervals for at in range(start, end)}

    assert union_ns(intervals) == len(covered)


def test_an_interval_that_ends_before_it_starts_covers_nothing() -> None:
    assert union_ns([(10, 5)]) == 0
    assert union_ns([]) == 0
