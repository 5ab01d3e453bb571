"""Subjects: where each fact is stored, and who finds it there."""

import pytest
from cascade_core import facts, subjects
from cascade_core.events_page import fact_classes
from cascade_core.fact_base import Fact
from cascade_core.runs.facts import RunFact
from cascade_core.sims.transitions import SimState
from cascade_core.testing import strategies
from cascade_core.testing.builders import RUN, SIM, chunk, kernel, launch_started, reported, run_requested
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("fact_class", fact_classes(), ids=lambda one: str(one.__name__))
@given(data=st.data())
@settings(max_examples=10)
def test_every_fact_has_a_subject_that_the_server_takes(fact_class: type[Fact], data: st.DataObject) -> None:
    fact = data.draw(strategies.models(fact_class))
    subject = subjects.subject_of(fact)
    assert subjects.matches(subjects.ALL, subject)
    tokens = subject.split(".")
    assert all(tokens)
    assert not set(subject) & set("*> \t\r\n")
    assert len(subject) <= 255
    aggregate = {"kernel.finished": "kernel", "log.appended": "log"}.get(fact.type, fact.type.split(".")[0])
    assert tokens[2] == aggregate


def test_filters_find_what_they_are_for() -> None:
    of_sim = [subjects.subject_of(one) for one in (launch_started(), chunk(0, []), kernel(0))]
    of_sim.append(subjects.subject_of(reported(SimState.RUNNING, 1), liveness=True))
    for subject in of_sim:
        assert any(subjects.matches(one, subject) for one in subjects.sim_filters(RUN, SIM))
        assert any(subjects.matches(one, subject) for one in subjects.run_filters(RUN))
        assert not any(subjects.matches(one, subject) for one in subjects.sim_filters(RUN, "sim-other"))
    assert any(
        subjects.matches(one, subjects.subject_of(run_requested())) for one in subjects.run_filters(RUN)
    )
    assert subjects.matches(subjects.ALL_BEATS, of_sim[3])
    assert not subjects.matches(subjects.ALL_SIMS, of_sim[3])


def test_liveness_concerns_heartbeats_of_sims_alone() -> None:
    assert subjects.subject_of(run_requested(), liveness=True) == subjects.subject_of(run_requested())


def test_the_sim_of_a_log_subject_is_read_back() -> None:
    assert subjects.sim_of_log_subject(subjects.log_of(RUN, SIM)) == (RUN, SIM)
    for other in (subjects.kernels_of(RUN, SIM), subjects.ALL_LOGS, "cascade.v1.log.a", "", "a.b.log.c.d.e"):
        assert subjects.sim_of_log_subject(other) is None


@given(strategies.facts())
@settings(max_examples=25)
def test_the_subject_of_a_fact_does_not_depend_on_who_read_it(fact: RunFact) -> None:
    again = facts.decode(facts.encode(fact))  # type: ignore[arg-type]  # any fact of the union
    assert subjects.subject_of(again) == subjects.subject_of(fact)  # type: ignore[arg-type]
