"""Creating, reading and cancelling runs."""

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

from cascade_core.ids import run_id, sim_id
from cascade_core.runs.facts import RunCancelRequested, RunRequested
from cascade_core.runs.state import run_of
from cascade_core.sims.state import sims_of
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from cascade_api.auth import AuthedRoute
from cascade_api.bodies import model_of
from cascade_api.compare import comparison
from cascade_api.gateway import Gate, Gateway
from cascade_api.live.hub import detail_of
from cascade_api.openapi import body_schema
from cascade_api.plan import plan_sims
from cascade_api.read_models import codec, queries
from cascade_api.read_models.database import Reader
from cascade_api.read_models.gate import ProjectionLate
from cascade_api.streams import begun
from cascade_api.wire.problems import documented
from cascade_api.wire.results import Comparison, KernelStat, SimStepTimeline
from cascade_api.wire.runs import RunCreate, RunDetail, RunSummary, run_detail, run_summary
from cascade_api.wire.traces import summary_of

router = APIRouter(route_class=AuthedRoute, tags=["runs"])

JSON = "application/json"
UNAVAILABLE_AND_PERHAPS_MADE = (
    "A server that Cascade needs does not answer. The run may have been made all the same: look at the newest runs "
    "before you send the request again."
)


@router.post(
    "/api/runs",
    status_code=201,
    response_model=RunDetail,
    openapi_extra=body_schema(RunCreate),
    responses=documented(404, 409, 413, 422, unavailable=UNAVAILABLE_AND_PERHAPS_MADE),
)
async def create_run(request: Request, gateway: Gate) -> Response:
    """Launch sims for a ready trace. The sims launch in the background."""
    body = await model_of(request, RunCreate)
    trace = await queries.trace(await gateway.fresh(), body.trace_id)
    sims = plan_sims(trace, body.entries, gateway.gpu_configs, _new_sim_ids())
    fact = RunRequested(
        run_id=run_id(uuid.uuid4().hex[:12]),
        occurred_at=gateway.now(),
        trace_id=trace.trace_id,
        entries=body.entries,
        sims=sims,
        kernels_total=trace.kernel_count,
    )
    stored = await gateway.append(fact)
    # It is stored, so it will run: views that are late are no reason for a 503, after which its client would ask again
    # and have two.
    with suppress(ProjectionLate):
        await gateway.gate.passed(stored.position)
    planned = sorted(sims_of(fact), key=lambda sim: (sim.gpu_config, sim.replica, sim.sim_id))
    return _answer(run_detail(run_of(fact), summary_of(trace), planned), status=201)


@router.get("/api/runs", responses=documented())
async def list_runs(gateway: Gate) -> list[RunSummary]:
    """Every run, newest first, with per-state sim counts."""
    return [
        run_summary(run, states, engines)
        for run, states, engines in await queries.runs(await gateway.fresh())
    ]


@router.get("/api/runs/{run_id}", response_model=RunDetail, responses=documented(404))
async def get_run(run_id: str, gateway: Gate) -> Response:
    """One run with its trace and every sim."""
    await gateway.fresh()
    return await _detail(gateway, run_id)


@router.post("/api/runs/{run_id}/cancel", response_model=RunDetail, responses=documented(404))
async def cancel_run(run_id: str, gateway: Gate) -> Response:
    """Cancel every unfinished sim. Calling it again changes nothing."""
    database = await gateway.fresh()
    await queries.run(database, run_id)
    if any(not sim.is_terminal for sim in await queries.sims_of_run(database, run_id)):
        await gateway.append_and_project(RunCancelRequested(run_id=run_id, occurred_at=gateway.now()))
    return await _detail(gateway, run_id)


@router.get("/api/runs/{run_id}/comparison", responses=documented(404))
async def get_comparison(run_id: str, gateway: Gate) -> Comparison:
    """Per-kernel real time against simulated time per config."""
    return await compared(await gateway.fresh(), run_id)


@router.get("/api/runs/{run_id}/kernels", response_model=list[KernelStat], responses=documented(404))
async def list_run_kernels(run_id: str, gateway: Gate) -> Response:
    """Every sim's per-kernel stats, without the full stats maps, by config, replica, then kernel."""
    database = await gateway.fresh()
    await queries.run(database, run_id)
    sims = await queries.sims_of_run(database, run_id)
    stats = await queries.kernel_stats(database, sims)
    return Response(b"[" + b",".join(stats) + b"]", media_type=JSON)


@router.get(
    "/api/runs/{run_id}/step-timelines", response_model=list[SimStepTimeline], responses=documented(404)
)
async def list_step_timelines(run_id: str, gateway: Gate) -> StreamingResponse:
    """Each sim's predicted step timeline and its comparison with the real run, by config, then replica."""
    await queries.run(await gateway.fresh(), run_id)
    return StreamingResponse(await begun(_step_timelines(gateway.database, run_id)), media_type=JSON)


async def _step_timelines(database: Reader, run_id: str) -> AsyncIterator[bytes]:
    # Sim by sim: each has megabytes, and a run may have hundreds.
    separator = b"["
    for sim in await queries.sims_of_run(database, run_id):
        sent = await queries.step_timeline(database, sim.sim_id)
        if sent is None:
            continue
        simulated, compare = sent
        head = SimStepTimeline(
            sim_id=sim.sim_id, gpu_config=sim.gpu_config, replica=sim.replica, simulated={}, compare=None
        ).model_dump_json(include={"sim_id", "gpu_config", "replica"})
        yield b'%b%b,"simulated":' % (separator, head[:-1].encode())
        separator = b","
        for piece in codec.pieces(simulated):
            yield piece
        yield b',"compare":'
        for piece in [b"null"] if compare is None else codec.pieces(compare):
            yield piece
        yield b"}"
    yield b"[]" if separator == b"[" else b"]"


async def compared(database: Reader, run_id: str) -> Comparison:
    """The comparison of one run. Raises NotFound."""
    run = await queries.run(database, run_id)
    trace = await queries.trace_of_run(database, run)
    sims = await queries.sims_of_run(database, run_id)
    times = await queries.kernel_times(database, [sim.sim_id for sim in sims])
    return comparison(run.entries, {sim.sim_id: sim.gpu_config for sim in sims}, times, trace.real_timing)


async def _detail(gateway: Gateway, run_id: str) -> Response:
    detail, _ = await detail_of(gateway.database, run_id)
    return _answer(detail)


def _answer(detail: RunDetail, *, status: int = 200) -> Response:
    return Response(detail.model_dump_json(), status_code=status, media_type=JSON)


def _new_sim_ids() -> Iterator[str]:
    while True:
        yield sim_id(uuid.uuid4().hex[:12])
