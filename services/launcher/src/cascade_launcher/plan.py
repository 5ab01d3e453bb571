"""What to prepare and what to start next. Pure: decides from folded state alone."""

from collections.abc import Collection, Iterable

from cascade_core.sims.state import Sim
from cascade_core.sims.transitions import SimState

MOST_LAUNCHES = 8
"""Launches under way at once. spec: concepts, How a run launches."""
MOST_PREPARATIONS = 2
"""Runs being prepared at once: each fills the network or the platform by itself."""


def needs_launch(sim: Sim, found: Collection[str]) -> bool:
    """Whether the sim has yet to be started, or its start has yet to be written down.

    found: sims that the backend holds, by id. A launcher that was killed may have taken a sim and not come
    back; starting is idempotent on every backend, so asking again finds what may already run.
    """
    if sim.state is SimState.PENDING:
        return True
    return sim.launcher_ref is None and (sim.last_heartbeat_at is None or sim.sim_id in found)


def runs_to_prepare(
    sims: Iterable[Sim],
    *,
    settled: Collection[str],
    preparing: Collection[str],
    found: Collection[str] = (),
    limit: int = MOST_PREPARATIONS,
) -> list[str]:
    """Runs whose preparation should begin now, oldest first. `settled`: those prepared already."""
    chosen: list[str] = []
    for sim in sims:
        if len(preparing) + len(chosen) >= limit:
            break
        known = sim.run_id in settled or sim.run_id in preparing or sim.run_id in chosen
        if not known and sim.sim_id not in found and needs_launch(sim, found):
            chosen.append(sim.run_id)
    return chosen


def next_launches(
    sims: Iterable[Sim],
    *,
    prepared: Collection[str],
    taken: Collection[str],
    in_flight: int,
    found: Collection[str] = (),
    limit: int = MOST_LAUNCHES,
) -> list[Sim]:
    """Sims to start now, in their order: those of prepared runs that this launcher has not taken yet.

    What the backend holds already needs no preparation.
    """
    room = limit - in_flight
    chosen: list[Sim] = []
    for sim in sims:
        if len(chosen) >= room:
            break
        startable = sim.run_id in prepared or sim.sim_id in found
        if startable and sim.sim_id not in taken and needs_launch(sim, found):
            chosen.append(sim)
    return chosen
