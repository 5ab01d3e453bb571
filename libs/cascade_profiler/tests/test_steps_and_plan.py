"""Step marks, their NVTX labels, and the plan of traced steps."""

from __future__ import annotations

import pytest
from cascade_profiler.errors import CaptureError, OptionsError
from cascade_profiler.plan import plan_steps, resolve_steps
from cascade_profiler.steps import (
    RequestMark,
    StepMark,
    dump_mark,
    parse_requests,
    parse_step_label,
    parse_steps,
    step_label,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def marks(prompt_tokens: int, count: int, *, repeat: int = 1, told: bool = True) -> list[StepMark]:
    """One request: a prefill, then decodes of one token each."""
    return [
        StepMark(
            call=step,
            repeat=repeat,
            step=step,
            kind="decode" if step else "prefill",
            num_reqs=1,
            num_scheduled_tokens=1 if step else prompt_tokens,
            start_ns=step * 100,
            end_ns=step * 100 + 90,
            max_context=prompt_tokens + step if told else None,
        )
        for step in range(count)
    ]


def test_marks_survive_their_logs() -> None:
    steps = marks(6, 3)
    request = RequestMark(1, 0, 5, 10, 30, (10, 20, 30), prompt_tokens=6, num_output_tokens=3)

    assert parse_steps("".join(map(dump_mark, steps))) == tuple(steps)
    assert parse_requests(dump_mark(request)) == (request,)
    assert steps[1].wall_ns == 90


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"call":1', "line 1 of the step log is no JSON"),
        ("[1]\n", "is no object"),
        ('{"kind":"warmup"}\n', "kind 'warmup'"),
        ('{"kind":"decode","call":"x"}\n', "call = 'x'"),
    ],
)
def test_a_damaged_step_log_is_named(text: str, words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        parse_steps(text)


def test_a_step_that_was_logged_twice_is_refused() -> None:
    line = dump_mark(marks(6, 1)[0])

    with pytest.raises(CaptureError, match="twice"):
        parse_steps(line + line)


@settings(max_examples=50)
@given(st.integers(0, 10**9), st.integers(0, 1000), st.integers(0, 10**6))
def test_labels_are_read_back(call: int, repeat: int, step: int) -> None:
    assert parse_step_label(step_label(call, repeat, step)) == (call, repeat, step)


@pytest.mark.parametrize(
    "label", ["", "forward", "cascade-step call=1", "x cascade-step call=1 repeat=1 step=1"]
)
def test_other_ranges_are_no_steps(label: str) -> None:
    assert parse_step_label(label) is None


@pytest.mark.parametrize("told", [True, False])
def test_the_plan_takes_the_prefill_and_decodes_at_contexts_that_are_powers_of_two(told: bool) -> None:
    # The sample run: six prompt tokens, 32 generated; contexts 8, 16 and 32 are steps 2, 10 and 26.
    assert plan_steps(marks(6, 32, told=told), repeat=1) == (0, 2, 10, 26)


def test_the_plan_takes_only_the_prefill_where_no_decode_fits() -> None:
    assert plan_steps(marks(9, 4), repeat=1) == (0,)


def test_the_plan_looks_at_one_repeat() -> None:
    assert plan_steps([*marks(6, 3, repeat=1), *marks(9, 9, repeat=2)], repeat=2) == (0, 7)
    with pytest.raises(OptionsError, match="no repeat 5"):
        plan_steps(marks(6, 3), repeat=5)


def test_steps_that_were_asked_for_must_exist() -> None:
    assert resolve_steps((0, 2), marks(6, 3), repeat=1) == (0, 2)
    assert resolve_steps((), marks(6, 3), repeat=1) == ()
    with pytest.raises(OptionsError, match=r"has 3 steps \(0 to 2\), no step 3, 9"):
        resolve_steps((0, 3, 9), marks(6, 3), repeat=1)
