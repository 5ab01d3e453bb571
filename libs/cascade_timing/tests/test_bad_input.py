"""Malformed timelines: each is refused with its place, and none escapes as another exception."""

import copy
import json
import math

import pytest
from cascade_timing import TimingError, compare, parse_timeline, simulate
from cascade_timing.errors import InvalidInputError
from cascade_timing.fields import JsonObject
from cascade_timing.testing import kernel_row, request_row, step_row, timeline_document
from hypothesis import given, settings
from hypothesis import strategies as st


def good() -> JsonObject:
    kernels = [kernel_row(0, 100, 10), kernel_row(1, 100, 200)]
    return timeline_document(
        [
            step_row(0, kind="prefill", wall_ns=900, busy_ns=250, kernels=kernels, start_ns=0),
            step_row(1, wall_ns=800, busy_ns=250, kernels=kernels, start_ns=950, gap_ns=50),
        ],
        [request_row(0, arrival_ns=0, queued_ms=0)],
    )


def changed(value: object, *path: str | int) -> JsonObject:
    """The good document with one value replaced."""
    document = copy.deepcopy(good())
    target: object = document
    for part in path[:-1]:
        target = target[part]  # type: ignore[index]
    target[path[-1]] = value  # type: ignore[index]
    return document


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "the document is null; expected a step timeline"),
        ([], "the document is a list; expected a step timeline"),
        ({"requests": []}, "the document has no 'steps'"),
        ({"steps": []}, "the document has no 'requests'"),
        (changed({}, "steps"), "steps is an object; expected a list"),
        (changed(5, "steps", 1), r"steps\[1\] is 5; expected a record"),
        (changed(3, "meta"), "meta is 3; expected an object"),
        (changed(math.nan, "meta", "run_name"), r"meta\['run_name'\] is NaN; expected a finite number"),
        (changed("idle", "steps", 0, "kind"), r"steps\[0\].kind is 'idle'; expected 'prefill' or 'decode'"),
        (changed("no", "steps", 0, "warmup"), r"steps\[0\].warmup is 'no'; expected true or false"),
        (changed(True, "steps", 0, "step"), r"steps\[0\].step is true; expected an integer"),
        (changed(None, "steps", 0, "baseline_wall_ns"), r"baseline_wall_ns is null; expected a number"),
        (changed(-1, "steps", 0, "baseline_wall_ns"), r"steps\[0\].baseline_wall_ns is -1; expected 0"),
        (changed(math.nan, "steps", 0, "gpu_busy_ns"), r"gpu_busy_ns is NaN; expected a finite number"),
        (changed(math.inf, "steps", 0, "gpu_busy_ns"), r"gpu_busy_ns is inf; expected a finite number"),
        (changed(10**400, "steps", 0, "gpu_busy_ns"), r"is an integer beyond 2\^63"),
        (changed(1e300, "steps", 0, "gpu_busy_ns"), r"is 1e\+300; expected a magnitude of at most 2\^63"),
        (changed(-5, "steps", 1, "baseline_gap_before_ns"), r"steps\[1\].baseline_gap_before_ns is -5"),
        (changed(-1, "steps", 0, "kernels", 1, "duration_ns"), r"steps\[0\].kernels\[1\].duration_ns is -1"),
        (changed(0, "steps", 0, "kernels", 1, "seq"), r"steps\[0\] has two kernels with seq 0"),
        (changed(math.nan, "steps", 0, "cuda_api_ns"), r"steps\[0\].cuda_api_ns is NaN"),
        (changed(3, "steps", 0, "kernels", 0, "name"), r"kernels\[0\].name is 3; expected a string"),
        (changed(math.nan, "steps", 0, "kernels", 0, "grid"), r"kernels\[0\].grid is NaN"),
        (changed([math.inf], "steps", 0, "note"), r"steps\[0\].note\[0\] is inf"),
        (changed(0, "steps", 1, "step"), "repeat 0 has step 0 twice"),
        (
            changed(-4, "steps", 1, "step"),
            "repeat 0 lists step -4 after step 0; expected .* in order of time",
        ),
        (changed([request_row(0), request_row(0)], "requests"), "repeat 0 has two requests"),
        (changed("1", "requests", 0, "arrival_ns"), r"requests\[0\].arrival_ns is '1'; expected a number"),
        (changed(-1, "requests", 0, "queued_ms"), r"requests\[0\].queued_ms is -1; expected 0 or more"),
    ],
)
def test_a_malformed_timeline_is_refused_with_the_place(document: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_timeline(document)


def test_long_values_are_cut_short_in_the_message() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_timeline(changed("x" * 10_000, "steps", 0, "kind"))
    assert len(str(caught.value)) < 200


def test_fields_that_a_timeline_may_leave_out_are_taken_as_unknown() -> None:
    document = {
        "steps": [
            {"step": 0, "repeat": 0, "warmup": False, "kind": "decode", "baseline_wall_ns": 5, "kernels": []}
        ],
        "requests": [{"repeat": 0, "warmup": False}],
    }
    result = simulate(document)
    assert result["steps"] == document["steps"]


def test_bottomless_nesting_is_refused_instead_of_overflowing_the_stack() -> None:
    nested: list[object] = []
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(InvalidInputError, match="nested more than 32 levels deep"):
        simulate(changed(3, "steps", 0, "note") | {"meta": {"note": nested}})


def test_a_key_that_is_not_text_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="expected a step timeline"):
        parse_timeline({1: 2})


PATHS: list[tuple[str | int, ...]] = [
    ("meta",),
    ("steps",),
    ("requests",),
    ("summary",),
    ("steps", 0),
    ("requests", 0),
    *[("steps", 1, name) for name in step_row(0, wall_ns=1)],
    *[("steps", 0, "kernels", 0, name) for name in kernel_row(0, 1, 1)],
    *[("requests", 0, name) for name in ("repeat", "warmup", "queued_ms", "arrival_ns", "post_last_step_ns")],
]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=50, deadline=None)
@given(path=st.sampled_from(PATHS), value=anything)
def test_any_value_anywhere_gives_strict_json_or_a_timing_error(
    path: tuple[str | int, ...], value: object
) -> None:
    document = changed(value, *path)
    try:
        simulated = simulate(document)
        compared = compare(simulated, document)
    except TimingError:
        return
    json.dumps([simulated, compared], allow_nan=False)
