"""What can go wrong between a scenario and its base simulation, with the ids that a client needs to look further.

Refused
└── BaseRunError          names the base run and sim
    ├── BaseSimFailed     502: the simulation failed, was cancelled, or gave no step timing
    └── BaseSimLate       504: it is still under way; nothing is cancelled
"""

from cascade_core.errors import Refused, Unavailable


class BaseRunError(Refused):
    """The base simulation gave nothing to answer from."""

    def __init__(self, detail: str, *, run_id: str, sim_id: str) -> None:
        super().__init__(detail)
        self.run_id = run_id
        self.sim_id = sim_id


class BaseSimFailed(BaseRunError):
    """The base simulation ended without step timing."""

    status = 502


class BaseSimLate(BaseRunError):
    """The base simulation, or the answer built on it, did not come in time."""

    status = 504


class TooManyWaiting(Unavailable):
    """As many scenarios wait as this gateway lets wait."""
