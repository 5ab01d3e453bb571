"""A run's state, derived from its sims."""

import pytest
from cascade_core.runs.state import RunState, run_of, run_state, sim_counts
from cascade_core.sims.transitions import SimState
from cascade_core.testing.builders import at, run_requested

S = SimState


# spec: types, Run state.
@pytest.mark.parametrize(
    ("sims", "state"),
    [
        ([S.RUNNING, S.SUCCEEDED], RunState.ACTIVE),
        ([S.SUCCEEDED, S.SUCCEEDED], RunState.SUCCEEDED),
        ([S.SUCCEEDED, S.FAILED], RunState.PARTIAL),
        ([S.FAILED, S.FAILED], RunState.FAILED),
        ([S.CANCELLED, S.FAILED], RunState.CANCELLED),
        ([S.CANCELLED, S.SUCCEEDED], RunState.PARTIAL),
        ([S.CANCELLED, S.CANCELLED], RunState.CANCELLED),
        ([S.SUCCEEDED, S.FAILED, S.CANCELLED], RunState.PARTIAL),
        ([S.FAILED], RunState.FAILED),
        ([], RunState.ACTIVE),
    ],
)
def test_the_run_state_follows_from_the_sims(sims: list[SimState], state: RunState) -> None:
    assert run_state(sims) is state
    assert run_state(reversed(sims)) is state


@pytest.mark.parametrize("unfinished", [S.PENDING, S.LAUNCHING, S.RUNNING, S.LOST])
@pytest.mark.parametrize("other", SimState)
def test_one_sim_that_has_not_finished_keeps_the_run_active(unfinished: SimState, other: SimState) -> None:
    assert run_state([other, unfinished, other]) is RunState.ACTIVE


def test_counts_are_in_lifecycle_order_and_leave_out_empty_states() -> None:
    counts = sim_counts([S.FAILED, S.RUNNING, S.RUNNING, S.PENDING])
    assert list(counts.items()) == [(S.PENDING, 1), (S.RUNNING, 2), (S.FAILED, 1)]
    assert sim_counts([]) == {}


def test_a_run_is_what_was_asked_for() -> None:
    run = run_of(run_requested(trace_id="a trace", kernels_total=7))
    assert (run.trace_id, run.kernels_total, run.created_at) == ("a trace", 7, at(0))
    assert [(entry.gpu_config, entry.count) for entry in run.entries] == [("SM86_RTX3070", 1)]
    assert (run.sample, run.replay) == (False, False)
