"""Old facts, read by today's code. `golden/v1.jsonl` holds one stored fact of each type; lines are only ever added."""

import json
from pathlib import Path

import pytest
from cascade_core import facts
from cascade_core.errors import Corrupt
from cascade_core.events_page import fact_classes
from cascade_core.upcasting import CURRENT_VERSION, UPCASTERS, Payload, upcast

GOLDEN = Path(__file__).parent / "golden"
STORED = {
    version: [line for line in (GOLDEN / f"v{version}.jsonl").read_text("utf-8").split("\n") if line]
    for version in range(1, CURRENT_VERSION + 1)
}
LINES = [(version, line) for version, lines in STORED.items() for line in lines]


@pytest.mark.parametrize(("version", "line"), LINES, ids=lambda one: str(one)[:60])
def test_a_stored_fact_of_every_version_is_read_today(version: int, line: str) -> None:
    fact = facts.decode(line.encode(), version=version)
    assert facts.fact_type(fact) == json.loads(line)["type"]


def test_there_is_a_stored_example_of_every_type_that_is_written_today() -> None:
    stored = {json.loads(line)["type"] for line in STORED[CURRENT_VERSION]}
    assert stored == {str(one.model_fields["type"].default) for one in fact_classes()}


@pytest.mark.parametrize("line", STORED[CURRENT_VERSION], ids=lambda one: str(one)[:60])
def test_what_todays_examples_say_survives_reading_and_writing(line: str) -> None:
    written = json.loads(facts.encode(facts.decode(line.encode())))
    stored = json.loads(line)
    assert {key: written[key] for key in stored} == stored


def test_there_is_an_upcaster_for_every_earlier_version() -> None:
    assert sorted(UPCASTERS) == list(range(1, CURRENT_VERSION))


def test_upcasters_run_one_after_another() -> None:
    def renamed(payload: Payload) -> Payload:
        return {**payload, "lines": payload["text"], "text": None}

    def split(payload: Payload) -> Payload:
        lines = payload["lines"]
        assert isinstance(lines, str)
        return {**payload, "lines": list(lines.split("\n"))}

    upcasters = {1: renamed, 2: split}
    body = b'{"text": "a\\nb"}'
    assert json.loads(upcast(body, 1, to=3, upcasters=upcasters)) == {"text": None, "lines": ["a", "b"]}
    assert json.loads(upcast(b'{"lines": "a"}', 2, to=3, upcasters=upcasters)) == {"lines": ["a"]}
    assert json.loads(upcast(b"{}", 3, to=3, upcasters=upcasters)) == {}


@pytest.mark.parametrize("body", [b"", b"[1]", b"\xff", b"null"])
def test_an_old_body_that_is_no_object_is_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt):
        upcast(body, 1, to=2, upcasters={1: lambda payload: payload})
