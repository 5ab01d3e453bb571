"""How far a simulated timeline is from the measured one: `cascade compare`.

Source: the step-timing page, section 3. A small step or request error is not a small GPU error: where the host
dominates a step, its retained part dilutes what the simulator got wrong. Read both summaries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cascade_timing.errors import InvalidInputError
from cascade_timing.fields import JsonObject, Number
from cascade_timing.statistics import mean, percentile
from cascade_timing.timeline import Request, Step, Timeline, as_timeline


@dataclass(frozen=True, slots=True)
class Cell:
    """One measured value beside its simulated one, in the unit of both."""

    real: Number | None
    simulated: Number | None

    @property
    def error(self) -> Number | None:
        """simulated - real; None if either is unknown."""
        if self.real is None or self.simulated is None:
            return None
        return self.simulated - self.real

    @property
    def error_pct(self) -> float | None:
        """100 · error / real [%]; None if either is unknown or real is 0."""
        error = self.error
        if error is None or not self.real:
            return None
        return 100 * error / self.real

    def as_json(self) -> JsonObject:
        """The cell as `compare.json` shows it."""
        return {
            "real": self.real,
            "simulated": self.simulated,
            "error": self.error,
            "error_pct": self.error_pct,
        }


def compare(
    simulated: Timeline | Mapping[str, object], corrected: Timeline | Mapping[str, object]
) -> JsonObject:
    """Step, request and summary errors of `simulated` against `corrected`: a `compare.json`.

    Steady steps are matched by repeat and step, steady requests by repeat; what only one side has is skipped.
    Error percentiles and percentages are of single steps: a mean percentage is not a ratio of means.

    Raises:
        InvalidInputError: a timeline is malformed, or the two were handed over the wrong way round.
    """
    ours, real = as_timeline(simulated), as_timeline(corrected)
    if real.simulated and not ours.simulated:
        raise InvalidInputError(
            "the measured timeline has a simulation summary and the simulated one has none; expected the measured "
            "timeline first and the simulated one second: swap them"
        )
    pairs = _matched_steps(ours, real)
    walls = [Cell(measured.baseline_wall_ns, step.baseline_wall_ns) for measured, step in pairs]
    busy = [Cell(measured.gpu_busy_ns, step.gpu_busy_ns) for measured, step in pairs]
    return {
        "steps": [
            {
                "repeat": measured.repeat,
                "step": measured.step,
                "kind": measured.kind.value,
                "wall_ns": wall_cell.as_json(),
                "gpu_busy_ns": busy_cell.as_json(),
            }
            for (measured, _), wall_cell, busy_cell in zip(pairs, walls, busy, strict=True)
        ],
        "requests": [_request_row(measured, request) for measured, request in _matched_requests(ours, real)],
        "summary": {"wall_ns": _error_summary(walls), "gpu_busy_ns": _error_summary(busy)},
    }


def _matched_steps(simulated: Timeline, corrected: Timeline) -> list[tuple[Step, Step]]:
    by_key = {(step.repeat, step.step): step for step in simulated.steady_steps()}
    return [
        (measured, by_key[measured.repeat, measured.step])
        for measured in corrected.steady_steps()
        if (measured.repeat, measured.step) in by_key
    ]


def _matched_requests(simulated: Timeline, corrected: Timeline) -> list[tuple[Request, Request]]:
    by_repeat = {request.repeat: request for request in simulated.requests if not request.warmup}
    return [
        (measured, by_repeat[measured.repeat])
        for measured in corrected.requests
        if not measured.warmup and measured.repeat in by_repeat
    ]


def _request_row(measured: Request, request: Request) -> JsonObject:
    return {
        "repeat": measured.repeat,
        "ttft_ms": Cell(measured.ttft_ms, request.ttft_ms).as_json(),
        "itl_ms_mean": Cell(measured.itl_ms_mean, request.itl_ms_mean).as_json(),
        "itl_ms_p50": Cell(measured.itl_ms_p50, request.itl_ms_p50).as_json(),
        "e2e_ms": Cell(measured.e2e_ms, request.e2e_ms).as_json(),
    }


def _error_summary(cells: Sequence[Cell]) -> JsonObject:
    """Error statistics over the cells that have an error; `count` says how many. Without any, all else is null."""
    errors = [cell.error for cell in cells if cell.error is not None]
    percentages = [cell.error_pct for cell in cells if cell.error_pct is not None]
    return {"count": len(errors)} | _statistics(errors, "") | _statistics(percentages, "_pct")


def _statistics(values: Sequence[Number], suffix: str) -> JsonObject:
    magnitudes = [abs(value) for value in values]
    return {
        f"mean_error{suffix}": mean(values) if values else None,
        f"mean_abs_error{suffix}": mean(magnitudes) if values else None,
        f"p50_abs_error{suffix}": percentile(magnitudes, 0.5) if values else None,
        f"p95_abs_error{suffix}": percentile(magnitudes, 0.95) if values else None,
    }
