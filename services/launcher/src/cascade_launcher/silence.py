"""Who has been silent for too long. Pure: judges event times against a clock that is passed in.

Silence only counts while the launcher could hear: a launcher that was down, or cut off from the log, must not
take its own deafness for the sims' silence. And a judgement carries the heartbeat it judged by, so that the
fold can set it aside when a later one had already arrived.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from cascade_core.sims.facts import SimGivenUp, SimLaunchFailed, SimWentSilent
from cascade_core.sims.state import Sim
from cascade_core.sims.transitions import SimState

CHECK_EVERY_S = 5.0
"""spec: concepts, Sim states."""
GIVE_UP_FACTOR = 10
"""A lost sim fails after so many times the timeout. spec: concepts, Sim states."""


@dataclass(frozen=True, slots=True)
class Hearing:
    """Since when the launcher has been hearing everything without a gap."""

    since: datetime
    checked_at: datetime


def still_hearing(hearing: Hearing, now: datetime, *, reachable: bool, longest_gap: timedelta) -> Hearing:
    """The state after a check at `now`. Hearing starts over when the log was out of reach, or nobody was
    listening.

    longest_gap: a longer pause between two checks means that this process slept.
    """
    deaf = not reachable or now - hearing.checked_at > longest_gap
    return Hearing(since=now if deaf else hearing.since, checked_at=now)


def judge(
    sims: Iterable[Sim],
    *,
    now: datetime,
    hearing: Hearing,
    timeout: timedelta,
    waiting: Collection[str] = (),
    waited_until: Mapping[str, datetime] = MappingProxyType({}),
) -> list[SimWentSilent | SimGivenUp]:
    """The facts that follow from silence at `now`.

    timeout: silence after which a sim is lost. waiting: sims whose simulator the platform has not started
    yet. waited_until: when it had started those that had to wait; nothing was due from them before.
    """
    judged: list[SimWentSilent | SimGivenUp] = []
    for sim in sims:
        heard_at = sim.last_heartbeat_at or sim.launched_at
        if heard_at is None or sim.sim_id in waiting:
            continue
        heard_at = max(heard_at, waited_until.get(sim.sim_id, heard_at))
        if sim.state is SimState.LOST:
            long_lost = now - heard_at >= GIVE_UP_FACTOR * timeout and now - hearing.since >= timeout
            if long_lost:
                judged.append(
                    SimGivenUp(
                        occurred_at=now,
                        run_id=sim.run_id,
                        sim_id=sim.sim_id,
                        error=silence_error(GIVE_UP_FACTOR * timeout),
                        heartbeat_seen_at=sim.last_heartbeat_at,
                    )
                )
        elif sim.state in (SimState.LAUNCHING, SimState.RUNNING) and (
            now - max(heard_at, hearing.since) >= timeout
        ):
            judged.append(
                SimWentSilent(
                    occurred_at=now,
                    run_id=sim.run_id,
                    sim_id=sim.sim_id,
                    error=silence_error(timeout),
                    heartbeat_seen_at=sim.last_heartbeat_at,
                )
            )
    return judged


def silence_error(silent_for: timedelta) -> str:
    """spec: types, SimSummary.error, also of a lost sim; concepts, Sim states: `no heartbeat for 600s`."""
    return f"no heartbeat for {silent_for.total_seconds():g}s"


def overdue(
    sims: Iterable[Sim], *, now: datetime, waiting: dict[str, str], limit: timedelta
) -> list[SimLaunchFailed]:
    """Sims that the platform has kept waiting for longer than `limit`. waiting: its reason by sim id."""
    return [
        SimLaunchFailed(
            occurred_at=now,
            run_id=sim.run_id,
            sim_id=sim.sim_id,
            error=f"the simulator did not start in {limit.total_seconds():g}s: {waiting[sim.sim_id]}",
        )
        for sim in sims
        if sim.sim_id in waiting and sim.launched_at is not None and now - sim.launched_at >= limit
    ]
