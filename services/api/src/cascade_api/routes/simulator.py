"""What simulators call: heartbeats, log chunks, step timing. Every call is safe to repeat."""

import asyncio

from cascade_core.errors import Refused
from cascade_core.logs.facts import LogAppended
from cascade_core.sims import state as sim_state
from cascade_core.sims.facts import SimReported, SimStepTimelineStored
from cascade_core.sims.state import Sim
from cascade_core.sims.transitions import SimState
from fastapi import APIRouter, Header, Request, Response

from cascade_api.auth import AuthedRoute
from cascade_api.bodies import finite, model_of
from cascade_api.gateway import Gate, Gateway
from cascade_api.openapi import body_schema
from cascade_api.wire.problems import documented
from cascade_api.wire.simulator import Heartbeat, HeartbeatAck, LogChunk, StepTimelineUpload

router = APIRouter(route_class=AuthedRoute, tags=["simulator"])

PARSED_WAIT_S = 4.0
"""A final heartbeat is answered once the log is parsed to its end, so that results are complete; or after this.
Well below the 10 s that simulators wait for an answer."""
LONGEST_ERROR = 20_000
"""Characters of an `error` that are kept."""
LATE_SHARE = 0.5
"""New chunks are refused after this share of the time until an ended sim's log is archived: what is accepted must be
in the archive, and an append takes seconds at most."""

Attempt = Header(
    default=None,
    alias="X-Cascade-Attempt",
    max_length=128,
    description="Names the start that calls, from `CASCADE_ATTEMPT`. A second start of the same sim is fenced off.",
)


@router.post(
    "/api/sims/{sim_id}/heartbeat",
    response_model=HeartbeatAck,
    openapi_extra=body_schema(Heartbeat),
    responses=documented(404, 413, 422),
)
async def heartbeat(
    sim_id: str, request: Request, gateway: Gate, attempt: str | None = Attempt
) -> HeartbeatAck:
    """Report a sim's state. The reply says whether to stop."""
    body = await model_of(request, Heartbeat)
    sim = await gateway.sims.known(sim_id)
    if not sim.is_terminal and not sim_state.is_fenced(sim, attempt):
        sim = await _report(gateway, sim, body, attempt)
    fenced = sim_state.is_fenced(sim, attempt)
    return HeartbeatAck(state=sim.state, cancel=fenced or sim.state is SimState.CANCELLED)


async def _report(gateway: Gateway, sim: Sim, body: Heartbeat, attempt: str | None) -> Sim:
    state = SimState(body.state)
    fact = SimReported(
        run_id=sim.run_id,
        sim_id=sim.sim_id,
        occurred_at=gateway.now(),
        state=state,
        exit_code=body.exit_code,
        error=body.error[:LONGEST_ERROR] if body.error else None,
        attempt=attempt,
        engine=body.engine,
    )
    repeats = state is SimState.RUNNING and sim.state is SimState.RUNNING and sim.attempt == attempt
    await gateway.append_and_project(fact, liveness=repeats and sim.error is None)
    after = await gateway.sims.current(sim.sim_id)
    return await _parsed(gateway, after) if after.is_terminal else after


async def _parsed(gateway: Gateway, sim: Sim) -> Sim:
    loop = asyncio.get_running_loop()
    until = loop.time() + PARSED_WAIT_S
    while not sim.parsed_to_end:
        left = until - loop.time()
        if left <= 0 or not await gateway.gate.next_commit(within_s=left):
            return sim
        sim = await gateway.sims.current(sim.sim_id)
    return sim


@router.post(
    "/api/sims/{sim_id}/logs",
    status_code=204,
    response_class=Response,
    openapi_extra=body_schema(LogChunk),
    responses=documented(404, 409, 413, 422),
)
async def append_log(sim_id: str, request: Request, gateway: Gate, attempt: str | None = Attempt) -> Response:
    """Append a chunk of simulator output. Answered once it is durable."""
    chunk = await model_of(request, LogChunk)
    sim = await gateway.sims.known(sim_id)
    if not _is_repeat_after_the_end(gateway, sim, chunk.seq, attempt):
        fact = LogAppended(
            run_id=sim.run_id,
            sim_id=sim.sim_id,
            occurred_at=gateway.now(),
            seq=chunk.seq,
            lines=chunk.lines,
            attempt=attempt,
        )
        digest = sim_state.chunk_digest(chunk.lines)
        await gateway.append(fact, event_id=f"log:{sim_id}:{chunk.seq}:{digest}")
    return Response(status_code=204)


def _is_repeat_after_the_end(gateway: Gateway, sim: Sim, seq: int, attempt: str | None) -> bool:
    """Whether this chunk was stored long ago. Raises Refused (409) for one that will not be kept."""
    if sim_state.is_fenced(sim, attempt):
        raise Refused(
            f"another start of {sim.sim_id} reported first; this one is set aside. Stop it, its log is not kept",
            status=409,
        )
    if sim.finished_at is None:
        return False
    ended_s = (gateway.now() - sim.finished_at).total_seconds()
    if sim.archive_key is None and ended_s < LATE_SHARE * gateway.settings.archive_after_s:
        return False
    if sim.parsed_to_end and seq <= sim.through_seq:
        return True
    raise Refused(
        f"{sim.sim_id} finished {ended_s:.0f} s ago and its log is closed; chunk {seq} came too late. "
        "Send every chunk before the final heartbeat",
        status=409,
    )


@router.post(
    "/api/sims/{sim_id}/step-timeline",
    status_code=204,
    response_class=Response,
    openapi_extra=body_schema(StepTimelineUpload),
    responses=documented(404, 413, 422),
)
async def store_step_timeline(sim_id: str, request: Request, gateway: Gate) -> Response:
    """Store a sim's predicted step timeline and its comparison. Sending again replaces it."""
    upload = await model_of(request, StepTimelineUpload)
    sim = await gateway.sims.known(sim_id)
    await gateway.append_and_project(
        SimStepTimelineStored(
            run_id=sim.run_id,
            sim_id=sim_id,
            occurred_at=gateway.now(),
            simulated=finite(upload.simulated),
            compare=finite(upload.compare),
        )
    )
    return Response(status_code=204)
