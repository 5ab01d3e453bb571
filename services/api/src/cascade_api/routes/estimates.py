"""The instant estimate of a run, which sharpens as real kernels finish."""

import asyncio

from cascade_core.errors import Refused
from cascade_core.runs.state import Run
from cascade_core.sims.state import Sim
from fastapi import APIRouter

from cascade_api.auth import AuthedRoute
from cascade_api.estimates.rows import ConfigEstimate, RunEstimate, sharpened
from cascade_api.estimates.store import ENGINE, ConfigFiles
from cascade_api.gateway import Gate, Gateway
from cascade_api.read_models import queries
from cascade_api.wire.problems import documented
from cascade_api.wire.results import KernelStat

router = APIRouter(route_class=AuthedRoute, tags=["estimate"])

ANSWER_WITHIN_S = 10.0
"""Past it a config is answered as `computing`; ask again."""
NOT_SIMULATED = frozenset({"replay", "estimate"})


@router.get("/api/runs/{run_id}/estimate", responses=documented(404))
async def get_run_estimate(run_id: str, gateway: Gate) -> RunEstimate:
    """Every kernel on every config of the run, each estimated or simulated, with intervals and totals."""
    database = await gateway.fresh()
    run = await queries.run(database, run_id)
    sims = await queries.sims_of_run(database, run_id)
    names = list(dict.fromkeys(entry.gpu_config for entry in run.entries))
    configs = await asyncio.gather(*(_config(gateway, run, sims, name) for name in names))
    return RunEstimate(run_id=run_id, trace_id=run.trace_id, engine=ENGINE, configs=list(configs))


async def _config(gateway: Gateway, run: Run, sims: list[Sim], name: str) -> ConfigEstimate:
    config = gateway.gpu_configs.get(name)
    if run.sample or config is None or gateway.settings.accelsim_dir is None:
        reason = (
            "a sample has no instruction traces"
            if run.sample
            else f"the config {name} is not known here any more"
        )
        return ConfigEstimate(gpu_config=name, state="failed", detail=reason)
    files = ConfigFiles.of(gateway.settings.accelsim_dir, name)
    try:
        kernels = await gateway.estimates.kernels(run.trace_id, files, within_s=ANSWER_WITHIN_S)
    except Refused as error:
        return ConfigEstimate(gpu_config=name, state="failed", detail=error.detail)
    if kernels is None:
        return ConfigEstimate(
            gpu_config=name, state="computing", detail="still computed; ask again in a moment"
        )
    return sharpened(name, kernels, config.core_clock_mhz, await _simulated(gateway, sims, name))


async def _simulated(gateway: Gateway, sims: list[Sim], name: str) -> dict[int, list[float]]:
    """Cycles of every kernel that a simulator finished on this config, by position."""
    real = [sim for sim in sims if sim.gpu_config == name and sim.engine not in NOT_SIMULATED]
    cycles: dict[int, list[float]] = {}
    for stat in map(KernelStat.model_validate_json, await queries.kernel_stats(gateway.database, real)):
        if stat.gpu_sim_cycle is not None and not stat.since_last_completion and not stat.partial:
            cycles.setdefault(stat.kernel_index, []).append(float(stat.gpu_sim_cycle))
    return cycles
