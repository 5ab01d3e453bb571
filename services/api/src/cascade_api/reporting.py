"""What a simulator's reports do: heartbeats and log chunks become facts. Every report is safe to repeat.

These two calls are nearly all of the gateway's traffic, so they take bytes and give bytes; `hot` and the routes both
call them.
"""

import asyncio
from collections.abc import Awaitable, Callable

from cascade_core.errors import Refused
from cascade_core.logs.facts import LogAppended
from cascade_core.sims import state as sim_state
from cascade_core.sims.facts import SimReported
from cascade_core.sims.state import Sim
from cascade_core.sims.transitions import SimState

from cascade_api.bodies import parsed
from cascade_api.gateway import Gateway
from cascade_api.wire.simulator import Heartbeat, HeartbeatAck, LogChunk

Report = Callable[[Gateway, str, bytes, str | None], Awaitable[bytes]]
"""`(gateway, sim id, body, attempt)` to the body of the answer."""

PARSED_WAIT_S = 4.0
"""A final heartbeat is answered once the log is parsed to its end, so that results are complete; or after this.
Well below the 10 s that simulators wait for an answer."""
LONGEST_ERROR = 20_000
"""Characters of an `error` that are kept."""
LONGEST_ATTEMPT = 128
LATE_SHARE = 0.5
"""New chunks are refused after this share of the time until an ended sim's log is archived: what is accepted must be
in the archive, and an append takes seconds at most."""


async def report_heartbeat(gateway: Gateway, sim_id: str, body: bytes, attempt: str | None) -> bytes:
    """Store a heartbeat; a HeartbeatAck. Raises NotFound, RequestValidationError, Unavailable."""
    beat = parsed(Heartbeat, body)
    _check_attempt(attempt)
    sim = await gateway.sims.known(sim_id)
    if not sim.is_terminal and not sim_state.is_fenced(sim, attempt):
        sim = await _reported(gateway, sim, beat, attempt)
    cancel = sim.state is SimState.CANCELLED or sim_state.is_fenced(sim, attempt)
    return HeartbeatAck(state=sim.state, cancel=cancel).model_dump_json().encode()


async def _reported(gateway: Gateway, sim: Sim, beat: Heartbeat, attempt: str | None) -> Sim:
    state = SimState(beat.state)
    fact = SimReported(
        run_id=sim.run_id,
        sim_id=sim.sim_id,
        occurred_at=gateway.now(),
        state=state,
        exit_code=beat.exit_code,
        error=beat.error[:LONGEST_ERROR] if beat.error else None,
        attempt=attempt,
        engine=beat.engine,
    )
    repeats = state is SimState.RUNNING and sim.state is SimState.RUNNING and sim.attempt == attempt
    if repeats and sim.error is None:
        # It changes nothing but the time of the last heartbeat, so the answer need not wait for the views. Whoever
        # cancelled has waited for them, so a cancel that was answered before this call is seen here.
        await gateway.append(fact, liveness=True)
        return await gateway.sims.current(sim.sim_id, at_least=gateway.gate.position)
    stored_at = await gateway.append_and_project(fact)
    after = await gateway.sims.current(sim.sim_id, at_least=stored_at)
    return await _parsed(gateway, after) if after.is_terminal else after


async def _parsed(gateway: Gateway, sim: Sim) -> Sim:
    loop = asyncio.get_running_loop()
    until = loop.time() + PARSED_WAIT_S
    while not sim.parsed_to_end:
        left = until - loop.time()
        if left <= 0 or not await gateway.gate.next_commit(within_s=left):
            return sim
        sim = await gateway.sims.current(sim.sim_id, at_least=gateway.gate.position)
    return sim


async def report_log(gateway: Gateway, sim_id: str, body: bytes, attempt: str | None) -> bytes:
    """Store a log chunk; nothing once it is durable.

    Raises NotFound, RequestValidationError, Refused (409: another start's, or long after the end), LogUnavailable.
    """
    async with gateway.log_slots:
        chunk = parsed(LogChunk, body)
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
    return b""


def _is_repeat_after_the_end(gateway: Gateway, sim: Sim, seq: int, attempt: str | None) -> bool:
    """Whether this chunk was stored long ago. Raises Refused (409) for one that will not be kept."""
    refuse_fenced(sim, attempt)
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


def refuse_fenced(sim: Sim, attempt: str | None) -> None:
    """Raises Refused: 409 where another start owns the sim, 422 for what is no attempt at all."""
    _check_attempt(attempt)
    if sim_state.is_fenced(sim, attempt):
        raise Refused(
            f"another start of {sim.sim_id} reported first; this one is set aside. Stop it, nothing of it is kept",
            status=409,
        )


def _check_attempt(attempt: str | None) -> None:
    if attempt is not None and len(attempt) > LONGEST_ATTEMPT:
        raise Refused(
            f"the X-Cascade-Attempt header has {len(attempt)} characters, at most {LONGEST_ATTEMPT} are "
            "taken. Send CASCADE_ATTEMPT as the launcher gave it"
        )
