"""When a run of decode-only steps ends: its times in closed form.

The batch stays and every context grows by one a step, so past the recorded contexts a step's duration is a constant
while attention's floor decides, and grows linearly once its roofline does.
"""

from math import sqrt

from cascade_requestsim.decode_group import DecodeGroup
from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.provenance import Provenance, decode_provenance
from cascade_requestsim.step_costs import StepCosts


class DecodeTiming:
    """Times runs of decode steps of one group."""

    __slots__ = ("_costs", "_group", "_profile")

    def __init__(self, profile: PerfProfile, costs: StepCosts, group: DecodeGroup) -> None:
        self._profile = profile
        self._costs = costs
        self._group = group

    def write(
        self, rows: list[float], *, step: int, clock: float, limit: int, stop: float
    ) -> tuple[int, float]:
        """Append the rows of up to `limit` decode steps, ending with the first that ends at or after `stop`.

        rows: of `ScheduleLog`. step: the first step's index. clock: end of the step before, below `stop`. [ns]
        Returns (steps, clock after them).
        """
        group, costs = self._group, self._costs
        size, lead = group.size, self._profile.gap_decode_ns
        context = group.tokens + size
        done = 0
        largest = group.largest_offset + step + 1
        while largest <= costs.last_context and done < limit and clock < stop:
            # Among the recorded contexts every step has floors of its own.
            cost = costs.decode(size, largest)
            duration = cost.fixed + max(cost.attention_floor, cost.attention_slope * context)
            label = decode_provenance(self._profile, sequences=size, context=largest)
            rows.extend((1, clock, lead, duration, 0, size, size, context, 0, label))
            clock += duration
            context += size
            largest += 1
            done += 1
        cost = costs.decode(size, largest)
        while done < limit and clock < stop:
            slack = (cost.crossing - context) / size
            most, duration, growth = limit - done, cost.fixed + cost.attention_floor, 0.0
            if slack < 0:
                duration = cost.fixed + cost.attention_slope * context
                growth = cost.attention_slope * size
            elif slack < most:
                most = min(most, int(slack) + 1)
            steps = _steps_within(stop - clock, most, duration, growth)
            rows.extend(
                (steps, clock, lead, duration, growth, size, size, context, 0, Provenance.EXTRAPOLATED)
            )
            clock += _run_duration(steps, duration, growth)
            context += steps * size
            done += steps
        return done, clock


def _run_duration(steps: int, first: float, growth: float) -> float:
    """Time of so many steps, of which the first takes `first` and each next one `growth` more. [ns]"""
    return steps * first + growth * (steps * (steps - 1) / 2)


def _steps_within(span: float, limit: int, first: float, growth: float) -> int:
    """The fewest steps that take at least `span`, but no more than `limit`. `first` is above 0. [ns]"""
    if _run_duration(limit, first, growth) < span:
        return limit
    if growth > 0:
        # The positive root of first·x + growth·x(x-1)/2 = span, in the form that keeps its digits.
        half = first - growth / 2
        steps = int(2 * span / (half + sqrt(half * half + 2 * growth * span)))
    else:
        steps = int(span / first)
    steps = min(max(steps, 1), limit)
    while steps > 1 and _run_duration(steps - 1, first, growth) >= span:
        steps -= 1
    while _run_duration(steps, first, growth) < span:
        steps += 1
    return steps
