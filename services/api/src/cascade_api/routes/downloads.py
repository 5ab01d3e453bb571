"""Results, logs and Perfetto traces, streamed: a run's results are tens of megabytes at times."""

from collections.abc import AsyncIterator

import orjson
from cascade_core.sims.state import Sim
from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from cascade_api import perfetto
from cascade_api.auth import AuthedRoute
from cascade_api.gateway import Gate, Gateway
from cascade_api.log_text import log_text
from cascade_api.read_models import queries
from cascade_api.routes.runs import compared
from cascade_api.streams import begun
from cascade_api.wire.problems import documented
from cascade_api.wire.results import ChromeTrace, KernelStat, RunResults, SimResults
from cascade_api.wire.runs import run_summary, sim_summary
from cascade_api.wire.traces import GpuConfig, detail_of

router = APIRouter(route_class=AuthedRoute, tags=["downloads"])


async def _download(body: AsyncIterator[bytes], name: str, media_type: str) -> StreamingResponse:
    return StreamingResponse(
        await begun(body),
        media_type=media_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@router.get(
    "/api/sims/{sim_id}/log",
    response_class=StreamingResponse,
    responses={
        200: {"description": "The log as plain text.", "content": {"text/plain": {}}},
        **documented(404),
    },
)
async def get_log(sim_id: str, gateway: Gate) -> StreamingResponse:
    """The sim's full raw output, in `seq` order."""
    sim = await queries.sim(await gateway.fresh(), sim_id)
    return await _download(log_text(gateway, sim), f"{sim_id}.log", "text/plain; charset=utf-8")


@router.get("/api/sims/{sim_id}/results", response_model=SimResults, responses=documented(404))
async def get_sim_results(sim_id: str, gateway: Gate) -> StreamingResponse:
    """One sim's config, per-kernel stats and totals."""
    database = await gateway.fresh()
    sim = await queries.sim(database, sim_id)
    run = await queries.run(database, sim.run_id)
    return await _download(
        _sim_results(gateway, sim, run.trace_id), f"{sim_id}-results.json", "application/json"
    )


@router.get("/api/runs/{run_id}/results", response_model=RunResults, responses=documented(404))
async def get_run_results(run_id: str, gateway: Gate) -> StreamingResponse:
    """One JSON file with the run, trace, every sim's stats and the comparison."""
    await queries.run(await gateway.fresh(), run_id)
    return await _download(_run_results(gateway, run_id), f"{run_id}-results.json", "application/json")


@router.get("/api/runs/{run_id}/perfetto", response_model=ChromeTrace, responses=documented(404))
async def get_run_perfetto(run_id: str, gateway: Gate) -> StreamingResponse:
    """The run's simulated kernels as a Chrome trace JSON for ui.perfetto.dev."""
    await queries.run(await gateway.fresh(), run_id)
    return await _download(_perfetto(gateway, run_id), f"{run_id}-perfetto.json", "application/json")


async def _sim_results(gateway: Gateway, sim: Sim, trace_id: str) -> AsyncIterator[bytes]:
    config = gateway.gpu_configs.get(sim.gpu_config) or GpuConfig(
        name=sim.gpu_config, arch="unknown", core_clock_mhz=0
    )
    yield b'{"sim":%b,"trace_id":%b,"gpu_config":%b,"kernels":[' % (
        sim_summary(sim).model_dump_json().encode(),
        orjson.dumps(trace_id),
        config.model_dump_json().encode(),
    )
    separator = b""
    async for stat in queries.kernels_with_stats(gateway.database, sim):
        yield separator + stat
        separator = b","
    yield b'],"totals":%b}' % sim.latest.model_dump_json().encode()


async def _run_results(gateway: Gateway, run_id: str) -> AsyncIterator[bytes]:
    database = gateway.database
    run = await queries.run(database, run_id)
    trace = await queries.trace_of_run(database, run)
    sims = await queries.sims_of_run(database, run_id)
    yield b'{"run":%b,"trace":%b,"sims":[' % (
        run_summary(run, [sim.state for sim in sims], [sim.engine for sim in sims])
        .model_dump_json()
        .encode(),
        detail_of(trace).model_dump_json().encode(),
    )
    for number, sim in enumerate(sims):
        if number:
            yield b","
        async for piece in _sim_results(gateway, sim, run.trace_id):
            yield piece
    yield b'],"comparison":%b}' % (await compared(database, run_id)).model_dump_json().encode()


async def _perfetto(gateway: Gateway, run_id: str) -> AsyncIterator[bytes]:
    database = gateway.database
    run = await queries.run(database, run_id)
    trace = await queries.trace_of_run(database, run)
    sims = await queries.sims_of_run(database, run_id)
    stats = await queries.kernel_stats(database, sims)
    kernels: dict[str, list[KernelStat]] = {}
    for stat in map(KernelStat.model_validate_json, stats):
        kernels.setdefault(stat.sim_id, []).append(stat)
    tracks = [
        perfetto.SimTrack(sim.sim_id, sim.gpu_config, sim.replica, kernels.get(sim.sim_id, []), sim.engine)
        for sim in sims
    ]
    yield b'{"traceEvents":['
    separator = b""
    for event in perfetto.trace_events(tracks, trace.real_timing, trace.text("gpu") or "unknown GPU"):
        yield separator + orjson.dumps(event)
        separator = b","
    yield b'],"displayTimeUnit":"ns","otherData":%b}' % orjson.dumps(
        perfetto.other_data(run_id, run.trace_id)
    )
