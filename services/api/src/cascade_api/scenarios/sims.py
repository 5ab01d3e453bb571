"""Base sims in the views: those that can be reused, and those that can be waited for."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from cascade_core.sims.transitions import SimState

from cascade_api.read_models import codec
from cascade_api.read_models.database import Reader

# A run's document is small JSON written by one encoder, so its trace id is looked up as the bytes that this wrote, by
# an index (`run_view_by_trace`). From there each run's sims of the config are found by `sim_view_by_run`.
CANDIDATES = """
SELECT sim_view.sim_id AS sim_id, sim_view.run_id AS run_id, sim_view.sim_state AS sim_state,
       run_view.state AS run_state
FROM sim_view JOIN run_view USING (run_id)
WHERE sim_view.gpu_config = $1
  AND (sim_view.sim_state = ANY($2::text[])
       OR (sim_view.sim_state = 'succeeded'
           AND EXISTS (SELECT 1 FROM step_timeline_view WHERE step_timeline_view.sim_id = sim_view.sim_id)))
  AND run_view.trace_json = $3::bytea
ORDER BY run_view.created_at DESC, run_view.position DESC, sim_view.replica
"""
_ACTIVE = (SimState.RUNNING, SimState.LAUNCHING, SimState.PENDING)
"""Sims worth waiting for, the furthest along first."""


@dataclass(frozen=True, slots=True)
class BaseCandidate:
    """A sim that is, or may become, a scenario's base."""

    run_id: str
    sim_id: str
    state: SimState
    sample: bool
    replay: bool


async def candidates(db: Reader, trace_id: str, gpu_config: str) -> list[BaseCandidate]:
    """Sims of this trace on this config that succeeded with step timing or are under way, newest run first."""
    rows = await db.fetch(CANDIDATES, gpu_config, [state.value for state in _ACTIVE], trace_json(trace_id))
    found = []
    for row in rows:
        run = codec.decode_run(row["run_state"])
        if run.trace_id == trace_id:
            found.append(
                BaseCandidate(
                    row["run_id"], row["sim_id"], SimState(row["sim_state"]), run.sample, run.replay
                )
            )
    return found


def trace_json(trace_id: str) -> bytes:
    """The trace id as it stands in a run's document."""
    return json.dumps(trace_id, ensure_ascii=False).encode("utf-8", "surrogatepass")


def reusable(found: Sequence[BaseCandidate]) -> BaseCandidate | None:
    """The newest finished sim with step timing."""
    return next((sim for sim in found if sim.state is SimState.SUCCEEDED), None)


def recorded(found: Sequence[BaseCandidate]) -> BaseCandidate | None:
    """The sample's own sim, whose results were recorded."""
    return next((sim for sim in found if sim.sample and sim.state is SimState.SUCCEEDED), None)


def attachable(found: Sequence[BaseCandidate]) -> BaseCandidate | None:
    """The sim under way that is furthest along; of equals the newest."""
    for state in _ACTIVE:
        for sim in found:
            if sim.state is state:
                return sim
    return None


async def has_step_timeline(db: Reader, sim_id: str) -> bool:
    """Whether the sim sent step timing."""
    return bool(
        await db.fetchval("SELECT EXISTS (SELECT 1 FROM step_timeline_view WHERE sim_id = $1)", sim_id)
    )
