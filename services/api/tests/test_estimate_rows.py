"""Estimates sharpen: what was simulated takes the estimate's place, and nothing else does."""

import pytest
from cascade_api.estimates.rows import EstimatedKernel, sharpened

KERNELS = [
    EstimatedKernel(kernel_name="a", cycles=1000, low_cycles=900, high_cycles=1300, bottleneck="launch"),
    EstimatedKernel(kernel_name="b", cycles=2000, low_cycles=1500, high_cycles=2600, bottleneck="DRAM"),
]


def test_before_a_kernel_finishes_every_row_is_estimated() -> None:
    found = sharpened("SM80_A100", KERNELS, 1000.0, {})
    assert [row.source for row in found.rows] == ["estimated", "estimated"]
    assert (found.total_low_ns, found.total_ns, found.total_high_ns) == (2400.0, 3000.0, 3900.0)
    assert (found.simulated_kernels, found.estimated_kernels) == (0, 2)


def test_a_simulated_kernel_has_no_interval_and_narrows_the_total() -> None:
    found = sharpened("SM80_A100", KERNELS, 1000.0, {1: [2100.0, 2300.0, 9000.0]})
    row = found.rows[1]
    assert (row.source, row.cycles, row.low_cycles, row.high_cycles) == ("simulated", 2300.0, 2300.0, 2300.0)
    assert (found.total_low_ns, found.total_ns, found.total_high_ns) == (3200.0, 3300.0, 3600.0)


def test_a_position_beyond_the_trace_adds_no_row() -> None:
    assert len(sharpened("SM80_A100", KERNELS, 1000.0, {7: [5.0]}).rows) == 2


def test_cycles_become_time_by_the_config_clock() -> None:
    assert sharpened("SM80_A100", KERNELS, 1410.0, {}).rows[0].time_ns == pytest.approx(709.2198581560284)
