"""Workloads: what is refused, with which words, and the way through JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cascade_profiler.errors import OptionsError
from cascade_profiler.workload import Workload


def test_a_workload_survives_json() -> None:
    workload = Workload("facebook/opt-125m", ["Hello, my name is"], max_tokens=32, repeats=4, dtype="float16")

    assert Workload.from_dict(json.loads(json.dumps(workload.to_dict()))) == workload


def test_the_documented_call_works() -> None:
    workload = Workload("facebook/opt-125m", ["Hello, my name is"], max_tokens=32, repeats=4)

    assert workload.to_dict()["prompts"] == ["Hello, my name is"]
    assert [workload.is_warmup(repeat) for repeat in range(4)] == [True, False, False, False]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": " "}, "model is empty"),
        ({"prompts": "Hello"}, "must be a list of strings, got str"),
        ({"prompts": []}, "at least one prompt"),
        ({"prompts": ["a", ""]}, "non-empty string"),
        ({"max_tokens": 0}, "max_tokens is 0; it must be at least 1"),
        ({"max_tokens": 1.5}, "whole number, got 1.5"),
        ({"max_tokens": True}, "whole number, got True"),
        ({"repeats": 1}, "all 1 repeats would be warm-up"),
        ({"repeats": 1001}, "from 1 to 1000"),
        ({"gpu_memory_utilization": 1.2}, "fraction"),
        ({"max_model_len": 1}, "max_model_len is 1"),
    ],
)
def test_values_that_no_engine_could_run_are_refused(changes: dict[str, Any], words: str) -> None:
    values: dict[str, Any] = {"model": "m", "prompts": ["p"]}

    with pytest.raises(OptionsError, match=words):
        Workload(**(values | changes))


def test_unknown_and_missing_names_are_refused() -> None:
    with pytest.raises(OptionsError, match="has no promts"):
        Workload.from_dict({"model": "m", "promts": ["p"]})
    with pytest.raises(OptionsError, match="not a workload"):
        Workload.from_dict({"model": "m"})
