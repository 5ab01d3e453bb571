"""Ids and the tokens that stand for them in subjects."""

import re
from itertools import combinations

import pytest
from cascade_core import ids, subjects
from cascade_core.testing.builders import at
from cascade_core.traces.facts import TraceDiscovered
from hypothesis import given, settings
from hypothesis import strategies as st

# Our own list of ids that have made subjects, keys or files meet elsewhere.
HOSTILE_IDS = [
    "20261107-120000__facebook_opt-125m__model.decoder.layers.10.self_attn",
    "20261107-120000__facebook_opt-125m__model_decoder_layers_10_self_attn",
    "sample__facebook_opt-125m__h100-e2e",
    "run 1",
    "run_1",
    "run+1",
    "run%201",
    "a*b",
    "a>b",
    "a..b",
    "a.b.",
    ".hidden-like",
    "caf\u00e9",
    "cafe\u0301",
    "Demo",
    "demo",
    "x" * 200,
    "x" * 255,
    "\udcff",
    "\x00",
    "=",
]
TOKEN = re.compile(r"[A-Za-z0-9_=-]+")

any_text = st.text(alphabet=st.characters(codec=None), max_size=300)


@pytest.mark.parametrize("trace_id", HOSTILE_IDS)
def test_a_hostile_trace_id_becomes_one_harmless_subject_token(trace_id: str) -> None:
    token = ids.trace_token(trace_id)
    assert TOKEN.fullmatch(token)
    subject = subjects.trace_filter(trace_id)
    assert subject.count(".") == 4
    assert len(subject) <= 255


def test_two_ids_never_share_a_token() -> None:
    assert all(ids.trace_token(a) != ids.trace_token(b) for a, b in combinations(HOSTILE_IDS, 2))


@given(any_text)
@settings(max_examples=50)
def test_a_token_leads_back_to_its_id_or_says_that_it_cannot(trace_id: str) -> None:
    token = ids.trace_token(trace_id)
    assert TOKEN.fullmatch(token)
    assert len(token) <= 180
    assert ids.trace_id_of(token) == (None if token.startswith("=") else trace_id)


@given(any_text, any_text)
@settings(max_examples=50)
def test_tokens_are_equal_only_where_ids_are(one: str, other: str) -> None:
    assert (ids.trace_token(one) == ids.trace_token(other)) == (one == other)


def test_an_id_that_fits_is_kept_readable_and_a_longer_one_is_hashed() -> None:
    assert ids.trace_id_of(ids.trace_token("x" * 135)) == "x" * 135
    assert ids.trace_id_of(ids.trace_token("x" * 136)) is None
    assert ids.trace_token("x" * 136).startswith("=")


def test_the_empty_id_still_makes_a_token() -> None:
    assert TOKEN.fullmatch(ids.trace_token(""))


@pytest.mark.parametrize("token", ["", "=", "====", "a", "YQ==", "Y Q", "YR", "YQ\n", "é", "_w"])
def test_what_is_no_token_leads_nowhere(token: str) -> None:
    assert ids.trace_id_of(token) is None


def test_the_subject_of_a_trace_fact_is_below_its_filter() -> None:
    fact = TraceDiscovered(trace_id="a.b c", occurred_at=at(0))
    assert subjects.subject_of(fact).startswith(subjects.trace_filter("a.b c").removesuffix(">"))


@pytest.mark.parametrize("text", ["run-a", "sim-0123456789ab", "scn-x-y", "run-" + "a" * 100])
def test_generated_ids_are_recognised(text: str) -> None:
    assert ids.is_generated_id(text)


@pytest.mark.parametrize(
    "text",
    ["", "run-", "run-A", "run-a.b", "run-*", "run-a\n", "run--", "job-a", "xrun-a", "run-" + "a" * 101],
)
def test_nothing_else_passes_for_a_generated_id(text: str) -> None:
    assert not ids.is_generated_id(text)


def test_ids_are_made_with_their_prefixes() -> None:
    made = [ids.run_id("0123456789ab"), ids.sim_id("0123456789ab"), ids.scenario_id("0123456789ab")]
    assert made == ["run-0123456789ab", "sim-0123456789ab", "scn-0123456789ab"]
    assert all(ids.is_generated_id(one) for one in made)
