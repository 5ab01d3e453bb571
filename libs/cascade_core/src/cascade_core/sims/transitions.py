"""The sim's state machine as a table: the only list of allowed moves."""

from enum import StrEnum


class SimState(StrEnum):
    """Where a sim is in its lifecycle."""

    PENDING = "pending"
    LAUNCHING = "launching"
    RUNNING = "running"
    LOST = "lost"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


_S = SimState
TERMINAL_SIM_STATES = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})

# Allowed sim transitions. The app owns pending, launching, lost and cancelled; heartbeats own the rest.
SIM_TRANSITIONS: dict[SimState, frozenset[SimState]] = {
    _S.PENDING: frozenset({_S.LAUNCHING, _S.FAILED, _S.CANCELLED}),
    _S.LAUNCHING: frozenset({_S.RUNNING, _S.LOST, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.LOST, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.LOST: frozenset({_S.RUNNING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}


def may_move(from_state: SimState, to_state: SimState) -> bool:
    """Whether `SIM_TRANSITIONS` allows the move."""
    return to_state in SIM_TRANSITIONS[from_state]
