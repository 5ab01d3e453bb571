from __future__ import annotations

import csv
from pathlib import Path

import pytest
from cascade_estimate import bench_estimate
from cascade_estimate.errors import EstimateError
from cascade_estimate.statistics import quantile, rank_correlation, tied_order


def test_a_part_of_the_measured_kernels_is_within_the_bars(shared_estimate: Path, tmp_path: Path) -> None:
    data = tmp_path / "estimate"
    data.mkdir()
    for name in ("traces", "cfgs"):
        (data / name).symlink_to(shared_estimate / name)
    (tmp_path / "accelsim").symlink_to(shared_estimate.parent / "accelsim")
    with (shared_estimate / "cycles.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    with (data / "cycles.csv").open("w", newline="") as table:
        writer = csv.DictWriter(table, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows[::8])
    result = bench_estimate(data)
    bars = result["bars"]
    assert isinstance(bars, dict)
    assert bars["mape_15"]
    assert bars["net_mape_25"]


def test_a_folder_without_the_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EstimateError, match=r"cycles\.csv"):
        bench_estimate(tmp_path)


def test_rank_correlation_and_quantile_follow_their_definitions() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert rank_correlation([1, 1], [1, 2]) is None
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == pytest.approx(2.5)


def test_near_ties_of_the_truth_carry_no_order() -> None:
    truth, found = [10000, 10004, 11000], [70, 60, 80]
    assert rank_correlation(truth, found) == pytest.approx(0.5)
    assert rank_correlation(tied_order(truth, found, 0.001), found) == pytest.approx(1.0)
    assert rank_correlation(tied_order(truth, found, 0.0), found) == pytest.approx(0.5)
    # A chain of near ties is no tie of its ends.
    assert tied_order([1000, 1001, 1002], [3, 2, 1], 0.001) == [2.0, 1.0, 3.0]
