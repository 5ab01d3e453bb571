"""Which steps to trace. Pure: the choice depends on the measured baseline and the request alone.

Tracing costs minutes a step, so that the plan takes the prefill and those decode steps whose context is a
power of two: attention cost grows with the context, everything else hardly changes between decodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from cascade_profiler.errors import OptionsError
from cascade_profiler.options import TraceSteps
from cascade_profiler.steps import StepMark


def plan_steps(steps: Sequence[StepMark], *, repeat: int) -> tuple[int, ...]:
    """Return the steps of `repeat` that the plan traces, in order: every first prefill, decodes at contexts 2^n.

    Contexts come from the marks; where the engine does not tell, tokens scheduled so far stand in (exact for
    one request). With several requests the longest context decides.

    Raises OptionsError if the repeat has no steps.
    """
    own = sorted((mark for mark in steps if mark.repeat == repeat), key=lambda mark: mark.step)
    if not own:
        raise OptionsError(f"the baseline has no repeat {repeat}; choose another trace_repeat")
    chosen = {own[0].step}
    scheduled = 0
    for mark in own:
        scheduled += mark.num_scheduled_tokens
        context = mark.max_context if mark.max_context is not None else scheduled
        if mark.kind == "decode" and context > 0 and context & (context - 1) == 0:
            chosen.add(mark.step)
    return tuple(sorted(chosen))


def resolve_steps(wanted: TraceSteps, steps: Sequence[StepMark], *, repeat: int) -> tuple[int, ...]:
    """Return the steps to trace, planned or as asked. Raises OptionsError for a step the baseline never ran."""
    if wanted == "plan":
        return plan_steps(steps, repeat=repeat)
    have = {mark.step for mark in steps if mark.repeat == repeat}
    missing = [step for step in wanted if step not in have]
    if missing:
        raise OptionsError(
            f"repeat {repeat} of the baseline has {len(have)} steps (0 to {max(have, default=-1)}), "
            f"no step {', '.join(map(str, missing))}; choose others or raise max_tokens"
        )
    return wanted
