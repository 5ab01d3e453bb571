"""Liveness without a token, and readiness, which looks at every server behind the gateway."""

import asyncio

from cascade_core.errors import Unavailable
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from cascade_api.gateway import Gate

router = APIRouter(tags=["health"])

READY_TIMEOUT_S = 3.0
LATE_POSITIONS = 50_000
"""A projection further behind than this is not ready to answer readers."""


class Health(BaseModel):
    """Answer of the liveness check."""

    ok: bool
    auth: bool = Field(description="False only when the app runs with CASCADE_NO_AUTH=1.")
    workspace: str | None
    s3_endpoint: str = Field(description="Where uploads go.")


class Ready(BaseModel):
    """Answer of the deep check: each server's state in a word, `ok` where it answers."""

    ok: bool
    nats: str
    postgres: str
    s3: str
    projection: str


@router.get("/api/health", responses={})
async def health(gateway: Gate) -> Health:
    """Liveness: the process serves requests. Checks nothing behind it."""
    settings = gateway.settings
    return Health(
        ok=True,
        auth=gateway.token_check.required,
        workspace=settings.workspace,
        s3_endpoint=settings.s3_public_url or settings.s3_endpoint,
    )


@router.get("/api/ready", responses={503: {"model": Ready}})
async def ready(gateway: Gate, response: Response) -> Ready:
    """Readiness: NATS, Postgres and S3 answer, and the read models are not far behind the log."""
    states = {"nats": "ok", "postgres": "ok", "s3": "ok", "projection": "ok"}
    last = 0

    async def nats() -> None:
        nonlocal last
        last = await gateway.log.last_position()

    async def postgres() -> None:
        await gateway.database.fetchval("SELECT 1")

    async def s3() -> None:
        await gateway.internal_bucket.head("readiness-probe")

    for name, probe in (("nats", nats), ("postgres", postgres), ("s3", s3)):
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await probe()
        except (Unavailable, TimeoutError) as error:
            states[name] = f"{type(error).__name__}: does not answer"
    if states["nats"] == "ok" and last - gateway.gate.position > LATE_POSITIONS:
        states["projection"] = f"{last - gateway.gate.position} positions behind"
    ok = all(state == "ok" for state in states.values())
    if not ok:
        response.status_code = 503
    return Ready(ok=ok, **states)
