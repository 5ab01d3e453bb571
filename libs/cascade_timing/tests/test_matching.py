"""Importing cycles from a simulator log, and assigning durations to the kernels of a timeline."""

import math

import pytest
from cascade_timing import durations_from_kernels, parse_durations, parse_mapping, simulate, time_steps
from cascade_timing.errors import InvalidInputError, TimingError, UnknownKernelError
from cascade_timing.fields import JsonObject
from cascade_timing.matching import KernelDuration
from cascade_timing.testing import at, durations_document, kernel_row, step_row, timeline_document
from cascade_timing.timeline import KernelKey


def row(uid: int, name: str, step: int = 0, seq: int = 0) -> JsonObject:
    return {"uid": uid, "name": name, "repeat": 1, "step": step, "seq": seq}


def one_kernel() -> JsonObject:
    return timeline_document(
        [step_row(0, repeat=1, wall_ns=5000, busy_ns=900, kernels=[kernel_row(0, 800, 10)])]
    )


def test_cycles_become_nanoseconds_at_the_core_clock() -> None:
    (found,) = durations_from_kernels([row(1, "gemm")], [(1, "gemm", 6174)], 1132.0)
    assert found.kernel == KernelKey(1, 0, 0)
    assert found.duration_ns == pytest.approx(5454.063604240282, rel=1e-12)


def test_one_uid_may_serve_several_kernels_of_the_timeline() -> None:
    rows = durations_from_kernels([row(1, "a"), row(1, "a", step=4)], [(1, "a", 1000)], 1000)
    assert [(found.kernel.step, found.duration_ns) for found in rows] == [(0, 1000), (4, 1000)]


def test_a_log_may_hold_kernels_that_no_row_names_and_blocks_without_a_uid() -> None:
    log = [(None, "", 5), (2, "other", None), (1, "a", 10)]
    assert len(durations_from_kernels([row(1, "a")], log, 1000)) == 1


def test_the_timeline_may_call_a_mapped_kernel_by_another_name() -> None:
    timing = time_steps(one_kernel(), [row(9, "name in the log")], [(9, "name in the log", 1000)], 1000)
    assert at(timing.simulated, "steps", 0, "gpu_busy_ns") == 1100
    assert at(timing.compare, "summary", "gpu_busy_ns", "mean_error") == 200


def test_a_mapping_that_names_a_uid_the_log_lacks_is_refused() -> None:
    with pytest.raises(UnknownKernelError, match=r"names uid 7 \('gemm'\).*1 finished kernels"):
        durations_from_kernels([row(7, "gemm")], [(1, "gemm", 10)], 1000)


def test_a_mapping_whose_name_differs_from_the_logs_is_refused_with_both_names() -> None:
    with pytest.raises(UnknownKernelError, match="uid 1 as 'gemm', but the simulator log names it 'axpy'"):
        durations_from_kernels([row(1, "gemm")], [(1, "axpy", 10)], 1000)


@pytest.mark.parametrize("cycles", [None, math.nan, math.inf, -1, 2**64 - 1, 10**400])
def test_a_mapped_kernel_without_a_usable_cycle_count_is_refused(cycles: float | None) -> None:
    with pytest.raises(InvalidInputError, match="gpu_sim_cycle of uid 1"):
        durations_from_kernels([row(1, "a")], [(1, "a", cycles)], 1000)


def test_a_mapped_kernel_that_the_log_reports_twice_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="uid 1 more than once"):
        durations_from_kernels([row(1, "a")], [(1, "a", 10), (1, "a", 11)], 1000)


@pytest.mark.parametrize("clock", [0, -1132, math.nan, math.inf, True])
def test_a_clock_that_is_no_clock_is_refused(clock: float) -> None:
    with pytest.raises(InvalidInputError, match="the core clock is"):
        durations_from_kernels([row(1, "a")], [(1, "a", 10)], clock)


def test_a_clock_so_slow_that_durations_overflow_is_refused_by_the_replay() -> None:
    with pytest.raises(TimingError, match="expected a finite number"):
        time_steps(one_kernel(), [row(1, "a")], [(1, "a", 10**9)], 1e-300)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "kernel_mapping is an object; expected a list"),
        ("abc", "kernel_mapping is 'abc'; expected a list"),
        ([3], r"kernel_mapping\[0\] is 3; expected a record"),
        ([{"uid": 1}], r"kernel_mapping\[0\] has no 'name'"),
        ([row(1, "a") | {"uid": "1"}], r"kernel_mapping\[0\].uid is '1'; expected an integer"),
        ([row(1, "a") | {"seq": -1}], r"kernel_mapping\[0\].seq is -1; expected 0 or more"),
        ([row(1, "a") | {"step": 1.5}], r"kernel_mapping\[0\].step is 1.5; expected an integer"),
        ([row(1, "a") | {"name": None}], r"kernel_mapping\[0\].name is null; expected a string"),
    ],
)
def test_a_malformed_mapping_is_refused_with_the_place(mapping: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_mapping(mapping)


def test_a_duration_for_a_kernel_the_timeline_lacks_is_refused() -> None:
    with pytest.raises(UnknownKernelError, match="repeat 1, step 0, seq 3, but the timeline has no such"):
        simulate(one_kernel(), durations_document((1, 0, 3, 10)))


def test_a_mapping_to_a_kernel_the_timeline_lacks_is_refused() -> None:
    with pytest.raises(UnknownKernelError, match="repeat 1, step 8, seq 0"):
        time_steps(one_kernel(), [row(1, "a", step=8)], [(1, "a", 10)], 1000)


def test_two_durations_for_one_kernel_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="repeat 1, step 0, seq 0 is given two durations"):
        simulate(one_kernel(), durations_document((1, 0, 0, 10), (1, 0, 0, 10)))


@pytest.mark.parametrize("duration", [-1, math.nan, math.inf, "3", None, True])
def test_a_duration_that_is_no_duration_is_refused(duration: object) -> None:
    document = {"durations": [{"repeat": 1, "step": 0, "seq": 0, "duration_ns": duration}]}
    with pytest.raises(InvalidInputError, match=r"durations\[0\].duration_ns is"):
        parse_durations(document)


def test_a_zero_duration_is_a_duration() -> None:
    result = simulate(one_kernel(), durations_document((1, 0, 0, 0)))
    assert at(result, "steps", 0, "gpu_busy_ns") == 100


def test_only_the_first_four_fields_of_a_duration_row_are_read() -> None:
    extra: dict[str, object] = {"cycles": "?", "source": 5}
    full = {"repeat": 1, "step": 0, "seq": 0, "duration_ns": 3} | extra
    assert parse_durations({"durations": [full]}) == (KernelDuration(KernelKey(1, 0, 0), 3),)
