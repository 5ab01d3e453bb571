"""The generated page of events."""

from pathlib import Path

from cascade_core.events_page import fact_classes, render, subject_pattern, type_name
from cascade_core.writers import WRITERS

PAGE = Path(__file__).parents[3] / "docs" / "events.md"


def test_the_committed_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == render(), (
        "run `uv run python -m cascade_core.events_page > docs/events.md`"
    )


def test_every_fact_is_on_the_page_with_its_writer_and_its_subject() -> None:
    page = render()
    assert sorted(WRITERS) == sorted(type_name(one) for one in fact_classes())
    for one in fact_classes():
        assert f"\n## {type_name(one)}\n" in page
        assert f"Written by {WRITERS[type_name(one)]} to `{subject_pattern(one)}`" in page
        assert one.__doc__


def test_subjects_are_those_that_facts_are_stored_under() -> None:
    patterns = {type_name(one): subject_pattern(one) for one in fact_classes()}
    assert patterns["trace.ready"] == "cascade.v1.trace.<trace token>.ready"
    assert patterns["sim.went-silent"] == "cascade.v1.sim.<run>.<sim>.went-silent"
    assert patterns["log.appended"] == "cascade.v1.log.<run>.<sim>"
    assert patterns["scenario.failed"] == "cascade.v1.scenario.<scenario>.failed"
