"""Composition root of the gateway: adapters, background tasks and the FastAPI app."""

from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog
from cascade_accelsim.configs_io import read_configs
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.s3 import bucket as s3
from fastapi import FastAPI

from cascade_api import archiver, openapi, problems, web
from cascade_api.auth import TokenCheck
from cascade_api.directory import SimDirectory
from cascade_api.estimates.store import EstimateStore
from cascade_api.gateway import Gateway
from cascade_api.live.hub import Hub
from cascade_api.read_models import database
from cascade_api.read_models.gate import ProjectionGate
from cascade_api.read_models.projection import PROJECTED
from cascade_api.read_models.projector import Projector
from cascade_api.routes import (
    completions,
    downloads,
    events,
    files,
    health,
    metrics,
    runs,
    scenarios,
    simulator,
    traces,
)
from cascade_api.routes import (
    estimates as estimate_routes,
)
from cascade_api.scenarios import retirement
from cascade_api.settings import ApiSettings
from cascade_api.wire.traces import GpuConfig

_logger = structlog.get_logger(__name__)

API_VERSION = "1"
_ROUTE_MODULES = (
    health,
    metrics,
    traces,
    runs,
    estimate_routes,
    events,
    simulator,
    files,
    downloads,
    scenarios,
    completions,
)


@asynccontextmanager
async def opened_gateway(settings: ApiSettings) -> AsyncIterator[Gateway]:
    """Every adapter, connected, for the length of the block. Raises Unavailable, Corrupt."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connected(settings, name="cascade-api"))
        await provision(client, replicas=settings.nats_replicas)
        url = settings.database_url.get_secret_value()
        pool = await stack.enter_async_context(database.opened(url))
        await database.migrate(pool)
        internal = await stack.enter_async_context(s3.opened(settings, bucket=settings.s3_internal_bucket))
        await internal.ensure()
        uploads = await stack.enter_async_context(s3.opened(settings))
        estimates = EstimateStore(uploads, internal, prefix=settings.s3_prefix)
        stack.push_async_callback(estimates.close)
        log = JetStreamLog(client)
        gate = ProjectionGate()
        gate.expect(await log.newest(PROJECTED))
        views = database.Database(pool)
        projector = Projector(views, log, gate)
        yield Gateway(
            settings=settings,
            token_check=TokenCheck(settings),
            database=views,
            log=log,
            internal_bucket=internal,
            gate=gate,
            projector=projector,
            hub=Hub(views, log, gate),
            estimates=estimates,
            gpu_configs=gpu_configs(settings.accelsim_dir),
            sims=SimDirectory(views, projector, gate),
        )


def background_work(gateway: Gateway) -> list[Coroutine[None, None, None]]:
    """What runs beside the routes for as long as the gateway is open. Each ends only by an error that must stop it."""
    url = gateway.settings.database_url.get_secret_value()
    return [
        gateway.gate.listen(url),
        gateway.projector.run(url),
        archiver.run(gateway),
        retirement.run(gateway),
    ]


def gpu_configs(accelsim_dir: Path | None) -> dict[str, GpuConfig]:
    """The registry at startup, by name. Empty without a directory."""
    if accelsim_dir is None:
        return {}
    registry = read_configs(accelsim_dir)
    for skipped in registry.skipped:
        _logger.warning("GPU config skipped", config=skipped.name, reason=skipped.reason)
    return {
        config.name: GpuConfig(name=config.name, arch=config.arch, core_clock_mhz=config.core_clock_mhz)
        for config in registry.configs
    }


def build_app(settings: ApiSettings) -> FastAPI:
    """The HTTP app. Whoever serves it puts an open gateway into `app.state.gateway` first."""
    app = FastAPI(
        title="Cascade",
        version=API_VERSION,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    problems.install(app)
    for module in _ROUTE_MODULES:
        app.include_router(module.router)
    web.install(app, [route for module in _ROUTE_MODULES for route in module.router.routes], settings.web_dir)
    openapi.install(app)
    return app
