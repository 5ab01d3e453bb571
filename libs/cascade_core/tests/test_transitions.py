"""The sim's state machine, written out once more as the product's pages draw it."""

import pytest
from cascade_core.sims.transitions import SIM_TRANSITIONS, TERMINAL_SIM_STATES, SimState, may_move

# spec: concepts, Sim states.
MOVES = {
    "pending": "launching failed cancelled",
    "launching": "running lost succeeded failed cancelled",
    "running": "lost succeeded failed cancelled",
    "lost": "running succeeded failed cancelled",
    "succeeded": "",
    "failed": "",
    "cancelled": "",
}


@pytest.mark.parametrize("before", SimState)
@pytest.mark.parametrize("after", SimState)
def test_exactly_the_moves_of_the_table_are_allowed(before: SimState, after: SimState) -> None:
    assert may_move(before, after) == (after.value in MOVES[before.value].split())


def test_nothing_leaves_a_terminal_state() -> None:
    assert {"succeeded", "failed", "cancelled"} == TERMINAL_SIM_STATES
    assert all(not SIM_TRANSITIONS[state] for state in TERMINAL_SIM_STATES)


def test_failed_and_cancelled_are_reached_from_every_state_that_has_not_finished() -> None:
    unfinished = set(SimState) - TERMINAL_SIM_STATES
    assert all({SimState.FAILED, SimState.CANCELLED} <= SIM_TRANSITIONS[state] for state in unfinished)
