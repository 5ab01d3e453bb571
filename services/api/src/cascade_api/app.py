"""Composition root of the gateway: adapters, background tasks and the FastAPI app."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog
from cascade_accelsim.configs_io import read_configs
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.s3 import bucket as s3
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from cascade_api import archiver, problems, web
from cascade_api.auth import TokenCheck
from cascade_api.gateway import Gateway
from cascade_api.live.hub import Hub
from cascade_api.read_models import database
from cascade_api.read_models.gate import ProjectionGate
from cascade_api.read_models.projector import Projector
from cascade_api.routes import downloads, events, files, health, runs, simulator, traces
from cascade_api.settings import ApiSettings
from cascade_api.wire.traces import GpuConfig

_logger = structlog.get_logger(__name__)

API_VERSION = "1"


@asynccontextmanager
async def opened_gateway(settings: ApiSettings) -> AsyncIterator[Gateway]:
    """Every adapter, connected, and the background tasks, running, for the length of the block."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connected(settings, name="cascade-api"))
        await provision(client, replicas=settings.nats_replicas)
        url = settings.database_url.get_secret_value()
        pool = await stack.enter_async_context(database.opened(url))
        await database.migrate(pool)
        bucket = await stack.enter_async_context(s3.opened(settings))
        internal = await stack.enter_async_context(s3.opened(settings, bucket=settings.s3_internal_bucket))
        await internal.ensure()
        log = JetStreamLog(client)
        gate = ProjectionGate()
        projector = Projector(pool, log, gate)
        hub = Hub(pool, log, gate)
        gateway = Gateway(
            settings=settings,
            token_check=TokenCheck(settings),
            database=pool,
            log=log,
            internal_bucket=internal,
            bucket=bucket,
            gate=gate,
            projector=projector,
            hub=hub,
            gpu_configs=gpu_configs(settings.accelsim_dir),
        )
        tasks = [
            asyncio.create_task(gate.listen(url), name="projection channel"),
            asyncio.create_task(projector.run(url), name="projector"),
            asyncio.create_task(archiver.run(gateway), name="archiver"),
        ]
        try:
            yield gateway
        finally:
            await hub.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


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
    """The HTTP app. Its lifespan opens the gateway."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opened_gateway(settings) as gateway:
            app.state.gateway = gateway
            yield

    app = FastAPI(
        title="Cascade",
        version=API_VERSION,
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    problems.install(app)
    app.add_exception_handler(HTTPException, _http_problem)
    for module in (health, traces, runs, events, simulator, files, downloads):
        app.include_router(module.router)
    web.install(app, settings.web_dir)
    return app


async def _http_problem(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code, headers=error.headers)
