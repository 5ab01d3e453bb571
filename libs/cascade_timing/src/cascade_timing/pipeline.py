"""Step timing in one call, from what a finished simulation leaves behind.

This is what `cascade worker` runs after a successful sim on a trace with a step timeline.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cascade_timing.compare import compare
from cascade_timing.fields import JsonObject, Number
from cascade_timing.matching import MappedKernel, durations_from_kernels
from cascade_timing.replay import simulate
from cascade_timing.timeline import Timeline, as_timeline, parse_timeline


@dataclass(frozen=True, slots=True)
class StepTiming:
    """Both results, as `POST /api/sims/{sim_id}/step-timeline` takes them."""

    simulated: JsonObject
    compare: JsonObject


def time_steps(
    corrected: Timeline | Mapping[str, object],
    mapping: Sequence[MappedKernel] | Sequence[Mapping[str, object]],
    kernels: Iterable[tuple[int | None, str, Number | None]],
    core_clock_mhz: Number,
) -> StepTiming:
    """Import the mapped kernels' cycles, replay the timeline with them, and compare with the measurement.

    kernels: (uid, name, cycles) of each finished kernel of the log. core_clock_mhz: the config's clock. [MHz]

    Raises:
        TimingError: any input does not fit; see `durations_from_kernels`, `simulate` and `compare`.
    """
    measured = as_timeline(corrected)
    simulated = simulate(measured, durations_from_kernels(mapping, kernels, core_clock_mhz))
    return StepTiming(simulated, compare(parse_timeline(simulated), measured))
