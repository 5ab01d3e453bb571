"""Matching, cells and error statistics of the comparison."""

import pytest
from cascade_timing import compare, simulate
from cascade_timing.compare import Cell
from cascade_timing.errors import InvalidInputError
from cascade_timing.fields import JsonObject
from cascade_timing.statistics import percentile
from cascade_timing.testing import at, request_row, rows_at, step_row, timeline_document


def walls(*values: tuple[int, int, int]) -> JsonObject:
    """A timeline of (repeat, step, wall in ns) steps."""
    return timeline_document(
        [step_row(step, repeat=repeat, wall_ns=wall, busy_ns=wall // 2) for repeat, step, wall in values]
    )


def test_a_cell_is_simulated_minus_real_and_relative_to_real() -> None:
    assert Cell(200, 150).as_json() == {"real": 200, "simulated": 150, "error": -50, "error_pct": -25}


@pytest.mark.parametrize(("real", "simulated"), [(None, 3), (3, None), (None, None)])
def test_a_cell_with_an_unknown_side_has_no_error(real: int | None, simulated: int | None) -> None:
    cell = Cell(real, simulated)
    assert cell.error is None
    assert cell.error_pct is None


def test_a_cell_with_a_real_zero_has_an_error_but_no_percentage() -> None:
    assert Cell(0, 5).as_json() == {"real": 0, "simulated": 5, "error": 5, "error_pct": None}


def test_steps_that_only_one_side_has_are_skipped() -> None:
    compared = compare(walls((1, 0, 110), (1, 2, 90)), walls((1, 0, 100), (1, 1, 100), (2, 2, 100)))
    assert [(row["repeat"], row["step"]) for row in rows_at(compared, "steps")] == [(1, 0)]
    assert at(compared, "summary", "wall_ns", "count") == 1


def test_warm_up_steps_and_requests_are_not_compared() -> None:
    document = timeline_document(
        [step_row(0, warmup=True, wall_ns=5)], [request_row(0, warmup=True, ttft_ms=3)]
    )
    compared = compare(document, document)
    assert compared["steps"] == []
    assert compared["requests"] == []


def test_nothing_to_compare_gives_a_count_of_zero_and_nulls() -> None:
    summary = at(compare(timeline_document(), timeline_document()), "summary", "wall_ns")
    assert isinstance(summary, dict)
    assert summary.pop("count") == 0
    assert set(summary.values()) == {None}
    assert len(summary) == 8


def test_percent_statistics_average_the_steps_percentages() -> None:
    compared = compare(walls((1, 0, 200), (1, 1, 900)), walls((1, 0, 100), (1, 1, 1000)))
    summary = at(compared, "summary", "wall_ns")
    assert at(summary, "mean_error") == 0
    assert at(summary, "mean_error_pct") == pytest.approx((100 - 10) / 2)
    assert at(summary, "mean_abs_error_pct") == pytest.approx((100 + 10) / 2)
    assert at(summary, "p95_abs_error_pct") == pytest.approx(10 + 0.95 * 90)


def test_a_step_without_gpu_time_is_in_the_rows_but_not_in_the_gpu_statistics() -> None:
    document = timeline_document([step_row(0, wall_ns=10), step_row(1, wall_ns=10, busy_ns=5)])
    compared = compare(simulate(document), document)
    assert at(compared, "steps", 0, "gpu_busy_ns", "error") is None
    assert at(compared, "summary", "wall_ns", "count") == 2
    assert at(compared, "summary", "gpu_busy_ns", "count") == 1


def test_timelines_the_wrong_way_round_are_refused() -> None:
    measured = walls((1, 0, 100))
    with pytest.raises(InvalidInputError, match="swap them"):
        compare(measured, simulate(measured))


def test_two_simulated_timelines_may_be_compared() -> None:
    simulated = simulate(walls((1, 0, 100)))
    assert at(compare(simulated, simulated), "summary", "wall_ns", "mean_error") == 0


@pytest.mark.parametrize(
    ("values", "fraction", "expected"),
    [
        ([7], 0.95, 7),
        ([3, 1], 0.5, 2),
        ([1_200_000, 800_000, 1_000_000], 0.95, 1_180_000),
        ([4, 1, 3, 2], 1.0, 4),
        ([4, 1, 3, 2], 0.0, 1),
    ],
)
def test_percentiles_interpolate_linearly(values: list[float], fraction: float, expected: float) -> None:
    assert percentile(values, fraction) == pytest.approx(expected)
