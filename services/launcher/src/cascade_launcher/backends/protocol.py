"""What the launcher asks of a platform that runs sims, in the launcher's own words.

Every call is safe to repeat: a launcher that was killed asks again for what it may have asked before. A
backend finds what it started by the sim's id, so that asking twice never runs a simulator twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from cascade_core.errors import CascadeError, Unavailable
from cascade_core.runs.state import Run


class LaunchError(CascadeError):
    """The run cannot be prepared or the sim cannot be started, and asking again would not help.

    The message is shown as the sim's error, so it says what was met and what to do.
    """


class BackendUnavailable(Unavailable):
    """The platform did not answer; the same call may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One sim as a backend needs to know it."""

    sim_id: str
    run_id: str
    trace_id: str
    gpu_config: str
    replica: int
    attempt: str
    """Names this launch; the simulator sends it back. Letters and digits only."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The platform took the sim but has not started its simulator yet, so no heartbeat can be due."""

    reason: str


@dataclass(frozen=True, slots=True)
class Running:
    """The simulator's process exists."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The simulator's process is over. Whether the sim succeeded is for its final heartbeat to say."""

    exit_code: int | None
    """A negative number is a signal's; None where nobody could see it."""
    reason: str | None = None
    """What the platform says about the end, where the exit code does not tell it all."""
    output: tuple[str, ...] = ()
    """The last lines that the simulator wrote."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The platform knows nothing of the sim: it was never started, or its remains were cleared away."""


Vital: TypeAlias = Waiting | Running | Ended | Gone


class Backend(Protocol):
    """A platform that runs sims. One instance a process; it outlives the loss and return of leadership."""

    poll_every_s: float
    """Pause between two looks at the sims. [s]"""
    ends_with_launcher: bool
    """Whether sims end with an orderly stop of the launcher."""

    async def prepare(self, run: Run) -> None:
        """Get everything in place that the run's sims share. Raises LaunchError, Unavailable."""
        ...

    async def start(self, launch: Launch) -> str:
        """Start the sim, or find it started before; returns its `launcher_ref`. Raises LaunchError,
        Unavailable."""
        ...

    async def stop(self, sim_id: str, *, patience_s: float = 0.0) -> None:
        """End the sim's processes and clear its remains; returns when they are gone. Unknown sims do not
        matter.

        patience_s: how long a simulator that has said goodbye may take to exit by itself. [s]
        Raises Unavailable.
        """
        ...

    async def alive(self, sim_id: str) -> Vital:
        """How one sim fares. Raises Unavailable."""
        ...

    async def census(self) -> Mapping[str, Vital]:
        """Every sim that the platform still holds something of, by sim id. Raises Unavailable."""
        ...

    async def finish(self, run_id: str) -> None:
        """The run's last sim ended: drop what `prepare` made for it, if anything. Raises Unavailable."""
        ...
