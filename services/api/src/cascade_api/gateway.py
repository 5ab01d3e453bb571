"""What every route may use: the log, the views, the bucket, the gate. One object, built in `app`."""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

from cascade_core.facts import AnyFact
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.record import Appended
from cascade_core.s3.bucket import S3Bucket
from fastapi import Depends, Request

from cascade_api.auth import TokenCheck
from cascade_api.directory import SimDirectory
from cascade_api.estimates.store import EstimateStore
from cascade_api.live.hub import Hub
from cascade_api.read_models.database import Database
from cascade_api.read_models.gate import ProjectionGate, ProjectionLate
from cascade_api.read_models.projector import Projector
from cascade_api.settings import ApiSettings
from cascade_api.slots import Slots
from cascade_api.wire.traces import GpuConfig

LOGS_AT_ONCE = 128
"""Log chunks under way at once: some milliseconds of work for the event loop, and thousands a second."""
LOG_PATIENCE_S = 4.0
"""With the 5 s that an append may take, below the 10 s that simulators wait for an answer."""
FRESH_READ_WAIT_S = 2.0
"""A read waits this long for what this replica has appended; past it, it shows what there is."""


@dataclass(slots=True)
class Gateway:
    """The adapters and the shared state of one api process."""

    settings: ApiSettings
    token_check: TokenCheck
    database: Database
    log: JetStreamLog
    internal_bucket: S3Bucket
    gate: ProjectionGate
    projector: Projector
    hub: Hub
    estimates: EstimateStore
    gpu_configs: dict[str, GpuConfig]
    sims: SimDirectory
    log_slots: Slots = field(default_factory=lambda: Slots(LOGS_AT_ONCE, patience_s=LOG_PATIENCE_S))
    """Places for log chunks, so that heartbeats and the projection get their turn beside them."""

    def now(self) -> datetime:
        """UTC, aware."""
        return datetime.now(UTC)

    async def append(self, fact: AnyFact, *, event_id: str | None = None, liveness: bool = False) -> Appended:
        """Store a fact durably. Raises LogUnavailable (503)."""
        stored = await self.log.append(fact, event_id=event_id, liveness=liveness)
        self.gate.expect(stored.position)
        return stored

    async def append_and_project(self, fact: AnyFact, *, liveness: bool = False) -> int:
        """Store a fact and wait until the views contain it; its position. Raises LogUnavailable, ProjectionLate."""
        stored = await self.append(fact, liveness=liveness)
        await self.gate.passed(stored.position)
        return stored.position

    async def fresh(self) -> Database:
        """The views, containing what this replica has appended so far if that is possible in time."""
        with suppress(ProjectionLate):  # stale is better than nothing for a reader; writers get the 503
            await self.gate.passed(self.gate.expected, within_s=FRESH_READ_WAIT_S)
        return self.database


async def gateway_of(request: Request) -> Gateway:
    """The gateway of the app that serves `request`. Async, or the framework would call it on a thread."""
    gateway: Gateway = request.app.state.gateway
    return gateway


Gate = Annotated[Gateway, Depends(gateway_of)]
