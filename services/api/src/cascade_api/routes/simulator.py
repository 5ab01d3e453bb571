"""What simulators call: heartbeats, log chunks, step timing. Every call is safe to repeat."""

import json
from typing import TypeVar

from cascade_core.errors import Refused
from cascade_core.logs.facts import LogAppended
from cascade_core.sims import state as sim_state
from cascade_core.sims.facts import SimReported, SimStepTimelineStored
from cascade_core.sims.state import Sim
from cascade_core.sims.transitions import SimState
from fastapi import APIRouter, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from cascade_api.auth import AuthedRoute
from cascade_api.gateway import Gate, Gateway
from cascade_api.read_models import queries
from cascade_api.wire.simulator import Heartbeat, HeartbeatAck, LogChunk, StepTimelineUpload

router = APIRouter(route_class=AuthedRoute, tags=["simulator"])

PARSED_WAIT_S = 10.0
"""A final heartbeat is answered once the log is parsed to its end, so that results are complete; or after this."""
LONGEST_ERROR = 20_000
"""Characters of an `error` that are kept."""

M = TypeVar("M", bound=BaseModel)
Attempt = Header(default=None, alias="X-Cascade-Attempt", max_length=128)


@router.post("/api/sims/{sim_id}/heartbeat")
async def heartbeat(
    sim_id: str, body: Heartbeat, gateway: Gate, attempt: str | None = Attempt
) -> HeartbeatAck:
    """Report a sim's state. The reply says whether to stop."""
    sim = await queries.sim(await gateway.fresh(), sim_id)
    if sim_state.is_fenced(sim, attempt):
        return HeartbeatAck(state=sim.state, cancel=True)
    if not sim.is_terminal:
        sim = await _report(gateway, sim, body, attempt)
    return HeartbeatAck(state=sim.state, cancel=sim.state is SimState.CANCELLED)


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
    after = await queries.sim(gateway.database, sim.sim_id)
    if after.is_terminal and not after.parsed_to_end:
        after = await _parsed(gateway, after)
    return after


async def _parsed(gateway: Gateway, sim: Sim) -> Sim:
    loop_until = gateway.now().timestamp() + PARSED_WAIT_S
    while not sim.parsed_to_end:
        left = loop_until - gateway.now().timestamp()
        if left <= 0:
            break
        await gateway.gate.next_commit(within_s=left)
        sim = await queries.sim(gateway.database, sim.sim_id)
    return sim


@router.post(
    "/api/sims/{sim_id}/logs",
    status_code=204,
    response_class=Response,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": LogChunk.model_json_schema()}},
        }
    },
)
async def append_log(sim_id: str, request: Request, gateway: Gate, attempt: str | None = Attempt) -> Response:
    """Append a chunk of simulator output. Answered once it is durable."""
    # Parsed by hand: this is the hottest route, and its body is a megabyte of strings at times.
    chunk = _validated(LogChunk, await request.body())
    sim = await gateway.known_sim(sim_id)
    fact = LogAppended(
        run_id=sim.run_id,
        sim_id=sim_id,
        occurred_at=gateway.now(),
        seq=chunk.seq,
        lines=chunk.lines,
        attempt=attempt,
    )
    if sim_state.is_fenced(sim, attempt):
        raise Refused(
            f"another start of {sim_id} reported first; this one is set aside. Stop it, its log is not kept",
            status=409,
        )
    if sim.archive_key is not None:
        raise Refused(f"{sim_id} has finished and its log is archived; nothing can be added", status=409)
    digest = sim_state.chunk_digest(chunk.lines)
    await gateway.append(fact, event_id=f"log:{sim_id}:{chunk.seq}:{digest}")
    return Response(status_code=204)


@router.post(
    "/api/sims/{sim_id}/step-timeline",
    status_code=204,
    response_class=Response,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": StepTimelineUpload.model_json_schema()}},
        }
    },
)
async def store_step_timeline(sim_id: str, request: Request, gateway: Gate) -> Response:
    """Store a sim's predicted step timeline and its comparison. Sending again replaces it."""
    upload = _validated(StepTimelineUpload, await request.body())
    sim = await queries.sim(await gateway.fresh(), sim_id)
    await gateway.append_and_project(
        SimStepTimelineStored(
            run_id=sim.run_id,
            sim_id=sim_id,
            occurred_at=gateway.now(),
            simulated=upload.simulated,
            compare=upload.compare,
        )
    )
    return Response(status_code=204)


def _validated(model: type[M], body: bytes) -> M:
    """The body as `model`. Lone surrogates, which a lenient client may send, become U+FFFD."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if any(problem["type"] == "json_invalid" for problem in error.errors()):
            try:
                lenient = json.loads(body)
            except ValueError:
                raise _as_request_error(error) from error
            try:
                return model.model_validate(_without_surrogates(lenient))
            except ValidationError as still:
                raise _as_request_error(still) from still
        raise _as_request_error(error) from error


def _as_request_error(error: ValidationError) -> RequestValidationError:
    problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors(include_url=False)]
    return RequestValidationError(problems)


def _without_surrogates(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [_without_surrogates(item) for item in value]
        case dict():
            return {str(key): _without_surrogates(item) for key, item in value.items()}
        case _:
            return value
