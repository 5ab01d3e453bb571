"""The base simulation of a scenario: found, attached to or launched, then waited for.

spec: request-simulation, "Build a profile from a finished sim", 1 and 2.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

from cascade_core.errors import NotFound, Refused, Unavailable
from cascade_core.ids import run_id, sim_id
from cascade_core.runs.facts import PlannedSim, RunEntry, RunRequested
from cascade_core.sims.state import Sim
from cascade_core.sims.transitions import SimState
from cascade_core.traces.state import Trace
from pydantic import TypeAdapter

from cascade_api.gateway import Gateway
from cascade_api.read_models import queries
from cascade_api.read_models.gate import ProjectionLate
from cascade_api.scenarios import choice, sims
from cascade_api.scenarios.errors import BaseSimFailed, BaseSimLate
from cascade_api.scenarios.places import Places
from cascade_api.scenarios.sims import BaseCandidate
from cascade_api.wire.traces import GpuConfig, TraceSummary

LOOK_AT_MOST_EVERY_S = 0.2
LOOK_AT_LEAST_EVERY_S = 5.0
"""Commits of other runs wake a waiter too; it looks at its own sim no more often than this, and no less."""

places = Places(256, "base simulations")
"""A wait may take an hour, and looks at its sim again and again."""

_SUMMARIES: TypeAdapter[TraceSummary] = TypeAdapter(TraceSummary)
_launching: "WeakValueDictionary[tuple[str, str], asyncio.Lock]" = WeakValueDictionary()
"""Two scenarios at once on a trace without a base share one launch."""

Progress = Callable[[Sim], Awaitable[None]]
Gone = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class BaseRun:
    """The base of one scenario."""

    trace: Trace
    config: GpuConfig
    run_id: str
    sim_id: str
    reused: bool
    """It was finished when the scenario came."""


async def resolve(
    gateway: Gateway, *, trace_id: str | None, model: str | None, gpu_config: str | None, fresh: bool
) -> BaseRun:
    """The base simulation of a scenario; a new one where there is none or `fresh` asks for it.

    Exactly one of trace_id and model is given. Raises NotFound, Refused, Unavailable.
    """
    trace = await _trace(gateway, trace_id=trace_id, model=model, gpu_config=gpu_config)
    suggested = [
        trace.text("suggested_sim_config"),
        trace.text("real_gpu_config"),
        *trace.texts("sample_sim_configs"),
    ]
    config = choice.choose_config(gpu_config, suggested, gateway.gpu_configs)
    choice.check_trace(trace, config)
    if not fresh:
        found = await sims.candidates(gateway.database, trace.trace_id, config.name)
        finished = sims.reusable(found)
        if finished is not None:
            return BaseRun(trace, config, finished.run_id, finished.sim_id, reused=True)
    places.check()  # before anything is launched that nobody could wait for
    key = (trace.trace_id, config.name)
    lock = _launching.get(key) or _launching.setdefault(key, asyncio.Lock())
    async with lock:
        # Views that lack a run which was launched a moment ago would have another one launched.
        await gateway.gate.passed(gateway.gate.expected)
        found = await sims.candidates(gateway.database, trace.trace_id, config.name)
        running = None if fresh else sims.reusable(found) or sims.attachable(found)
        if running is not None:
            return BaseRun(
                trace, config, running.run_id, running.sim_id, reused=running.state is SimState.SUCCEEDED
            )
        return await _launched(gateway, trace, config, found)


async def wait_for_timing(
    gateway: Gateway,
    base: BaseRun,
    *,
    within_s: float,
    progress: Progress | None = None,
    is_gone: Gone | None = None,
) -> None:
    """Return once the base sim has succeeded with step timing.

    Raises BaseSimFailed (502), BaseSimLate (504), TooManyWaiting (503).

    progress: called with the sim after every look that finds it still under way.
    is_gone: whether whoever asked has hung up; then nobody needs the answer, and the wait ends with Refused.
    """
    if base.reused:
        return
    with places.one():
        await _timing(gateway, base, within_s=within_s, progress=progress, is_gone=is_gone)


async def _timing(
    gateway: Gateway, base: BaseRun, *, within_s: float, progress: Progress | None, is_gone: Gone | None
) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while True:
        seen = gateway.gate.position
        sim = await _found(gateway, base)
        if sim is not None and sim.is_terminal:
            await _check_ended(gateway, base, sim)
            return
        if is_gone is not None and await is_gone():
            raise Refused(
                f"the client left before base simulation {base.sim_id} ended; it goes on", status=400
            )
        if sim is not None and progress is not None:
            await progress(sim)
        left = until - loop.time()
        if left <= 0:
            state = sim.state if sim is not None else SimState.PENDING
            raise BaseSimLate(
                f"base simulation {base.sim_id} of run {base.run_id} is {state} and gave no step timing in "
                f"{within_s:g} s. It goes on; send the request again later.",
                run_id=base.run_id,
                sim_id=base.sim_id,
            )
        await asyncio.sleep(min(LOOK_AT_MOST_EVERY_S, left))
        if gateway.gate.position == seen:
            await gateway.gate.next_commit(within_s=min(LOOK_AT_LEAST_EVERY_S, max(until - loop.time(), 0)))


async def _found(gateway: Gateway, base: BaseRun) -> Sim | None:
    """The base sim; None while the views cannot tell. That ends no wait: asked again, `fresh` launches another one."""
    try:
        return await gateway.sims.current(base.sim_id, at_least=gateway.gate.position)
    except (NotFound, Unavailable):
        return None


async def _check_ended(gateway: Gateway, base: BaseRun, sim: Sim) -> None:
    if sim.state is not SimState.SUCCEEDED:
        reason = f": {sim.error}" if sim.error else ""
        raise BaseSimFailed(
            f"base simulation {base.sim_id} of run {base.run_id} {_ENDED.get(sim.state, sim.state)}{reason}",
            run_id=base.run_id,
            sim_id=base.sim_id,
        )
    if not await sims.has_step_timeline(gateway.database, base.sim_id):
        raise BaseSimFailed(
            f"base simulation {base.sim_id} of run {base.run_id} succeeded without a step timeline; what its worker "
            f"printed says why (work/sims/{base.sim_id}.out, or the log of its pod or sandbox)",
            run_id=base.run_id,
            sim_id=base.sim_id,
        )


_ENDED = {SimState.FAILED: "failed", SimState.CANCELLED: "was cancelled"}


async def _trace(
    gateway: Gateway, *, trace_id: str | None, model: str | None, gpu_config: str | None
) -> Trace:
    database = await gateway.fresh()
    if trace_id is None:
        assert model is not None
        summaries = [_SUMMARIES.validate_json(summary) for summary in await queries.trace_summaries(database)]
        trace_id = choice.choose_trace_id(model, gpu_config, summaries, gateway.gpu_configs)
    return await queries.trace(database, trace_id)


async def _launched(gateway: Gateway, trace: Trace, config: GpuConfig, found: list[BaseCandidate]) -> BaseRun:
    if trace.sample and sims.recorded(found) is None:
        raise Refused(
            f"sample {trace.trace_id} has no recorded results for {config.name}, and no instruction traces to simulate"
        )
    choice.check_can_be_timed(trace)
    planned = PlannedSim(
        sim_id=sim_id(uuid.uuid4().hex[:12]),
        gpu_config=config.name,
        replica=0,
        arch=config.arch,
        core_clock_mhz=config.core_clock_mhz,
    )
    fact = RunRequested(
        run_id=run_id(uuid.uuid4().hex[:12]),
        occurred_at=gateway.now(),
        trace_id=trace.trace_id,
        entries=[RunEntry(gpu_config=config.name, count=1)],
        sims=[planned],
        kernels_total=trace.kernel_count,
        replay=trace.sample,
    )
    stored = await gateway.append(fact)
    with suppress(ProjectionLate):  # it is launched all the same, and is waited for
        await gateway.gate.passed(stored.position)
    return BaseRun(trace, config, fact.run_id, planned.sim_id, reused=False)
