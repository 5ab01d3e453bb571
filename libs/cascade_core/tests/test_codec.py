"""Facts as bytes and back."""

import json

import pytest
from cascade_core import facts
from cascade_core.errors import Corrupt, Refused, UnknownFactVersion
from cascade_core.events_page import fact_classes
from cascade_core.fact_base import Fact
from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.testing import strategies
from cascade_core.testing.builders import RUN, SIM, at, chunk
from cascade_core.traces.facts import TraceObserved
from cascade_core.upcasting import CURRENT_VERSION
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not strict JSON")


@pytest.mark.parametrize("fact_class", fact_classes(), ids=lambda one: str(one.__name__))
@given(data=st.data())
@settings(max_examples=20)
def test_every_fact_comes_back_as_it_was(fact_class: type[Fact], data: st.DataObject) -> None:
    fact = data.draw(strategies.models(fact_class))
    body = facts.encode(fact)
    json.loads(body, parse_constant=refuse)
    assert facts.decode(body) == fact


def test_every_fact_has_a_type_of_its_own() -> None:
    types = [str(one.model_fields["type"].default) for one in fact_classes()]
    assert len(set(types)) == len(types)
    assert len(types) >= 20
    assert all(facts.fact_type(one) == one.type for one in [chunk(0, [])])


@pytest.mark.parametrize(
    "line", ["\x00", "\u2028\u2029\x85\x0b\x0c\x1c", "\ufffd", "\x1b[31mred", "x" * 1_000_000, ""]
)
def test_a_log_line_may_hold_anything(line: str) -> None:
    fact = chunk(0, [line, "next"])
    assert facts.decode(facts.encode(fact)) == fact


def test_a_lone_surrogate_is_refused_before_it_is_stored() -> None:
    with pytest.raises(Refused, match=r"log\.appended cannot be stored"):
        facts.encode(chunk(0, ["\ud800"]))


def nested(levels: int) -> JsonValue:
    value: JsonValue = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [200, 250])
def test_a_document_that_no_reader_could_read_is_refused_before_it_is_stored(levels: int) -> None:
    fact = TraceObserved(
        trace_id="x", occurred_at=at(0), kernel_count=0, size_bytes=0, metadata={"a": nested(levels)}
    )
    with pytest.raises(Refused, match="fewer than 100 levels"):
        facts.encode(fact)


def test_a_document_of_a_hundred_levels_is_kept() -> None:
    fact = TraceObserved(
        trace_id="x", occurred_at=at(0), kernel_count=0, size_bytes=0, metadata={"a": nested(100)}
    )
    assert facts.decode(facts.encode(fact)) == fact


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_cannot_be_put_into_a_fact(number: float) -> None:
    with pytest.raises(ValidationError):
        KernelFinished(
            run_id=RUN, sim_id=SIM, occurred_at=at(0), index=0, kernel_name="k", stats={"a": number}
        )
    with pytest.raises(ValidationError):
        KernelFinished(run_id=RUN, sim_id=SIM, occurred_at=at(0), index=0, kernel_name="k", gpu_ipc=number)


def test_text_that_looks_like_a_number_stays_text_and_a_number_stays_a_number() -> None:
    stats: dict[str, float | str] = {"a": "12", "b": 12.0, "c": "-nan", "d": "0x1f", "e": 1e308, "f": "1e400"}
    fact = KernelFinished(run_id=RUN, sim_id=SIM, occurred_at=at(0), index=0, kernel_name="k", stats=stats)
    read = facts.decode(facts.encode(fact))
    assert isinstance(read, KernelFinished)
    assert {key: type(value) for key, value in read.stats.items()} == {
        "a": str, "b": float, "c": str, "d": str, "e": float, "f": str,
    }  # fmt: skip


def test_a_fact_cannot_be_changed() -> None:
    fact: LogAppended = chunk(0, ["a"])
    with pytest.raises(ValidationError):
        fact.seq = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"type":"sim.exploded"}',
        b'{"type":"trace.discovered","trace_id":"x"}',
        b'{"type":"trace.discovered","trace_id":"x","occurred_at":"2026-11-07T12:00:00Z","extra":1}',
        b'{"type":"trace.discovered","trace_id":"x","occurred_at":"2026-11-07T12:00:00"}',
    ],
)
def test_what_is_no_fact_is_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt):
        facts.decode(body)


def test_a_fact_of_a_later_version_stops_the_reader() -> None:
    with pytest.raises(UnknownFactVersion, match="Upgrade"):
        facts.decode(facts.encode(chunk(0, [])), version=CURRENT_VERSION + 1)


def test_a_version_that_never_was_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="no version of Cascade wrote"):
        facts.decode(facts.encode(chunk(0, [])), version=0)
