"""Keeps the views up to date while this replica leads.

One replica leads, by an advisory lock on a connection of its own. The server ends that session when it is silent for
some seconds, so a leader that is killed, stopped or cut off is replaced, whatever the network says. Two leaders could
still not apply a fact twice: the checkpoint moves by compare-and-set.
"""

import asyncio
import time

import asyncpg
import structlog
from cascade_core import telemetry
from cascade_core.errors import Unavailable
from cascade_core.facts import AnyFact
from cascade_core.metrics import PROJECTION_DELAY
from cascade_core.ports import EventLog
from cascade_core.record import Recorded
from cascade_core.sims.state import Sim
from cascade_core.tasks import end

from cascade_api.read_models import spans
from cascade_api.read_models.database import CONNECT_TIMEOUT_S, PASSING_ERRORS, Database, translated
from cascade_api.read_models.gate import ProjectionGate
from cascade_api.read_models.projection import PROJECTED, Projection

_logger = structlog.get_logger(__name__)

LEADER_LOCK = 0x0CA5CADF
TRY_LEAD_EVERY_S = 0.5
HOLD_EVERY_S = 1.0
SILENT_LEADER_S = 6.0
"""The server ends the lock's session after this silence."""
BATCH = 1024
"""The larger, the fewer turns on a busy event loop a backlog takes; decoding one holds up requests for some 10 ms."""
SIMS_REMEMBERED = 4096
"""Folded sims kept between batches; more live sims than this cost a read each."""


class LeadershipLost(Unavailable):
    """The session that holds the lock is gone. Somebody else may lead by now."""


class Projector:
    """Folds the log into the views while this replica leads."""

    def __init__(self, database: Database, log: EventLog, gate: ProjectionGate) -> None:
        self._log = log
        self._gate = gate
        self._projection = Projection(database, sims_remembered=SIMS_REMEMBERED)
        self.leads = False

    async def run(self, database_url: str) -> None:
        """Lead whenever nobody else does, for ever. Returns only by cancellation; raises Corrupt."""
        while True:
            try:
                await self._lead_once(database_url)
            except Unavailable as error:
                _logger.warning("projector starts over", reason=str(error))
            finally:
                self.leads = False
            await asyncio.sleep(TRY_LEAD_EVERY_S)

    def remembered(self, sim_id: str, *, at_least: int = 0) -> Sim | None:
        """The sim as the views hold it, without asking them; None where this replica does not know it by heart.

        at_least: a position that it must contain. A commit may be heard of before its projector has gone on.
        """
        return self._projection.sim(sim_id) if self.leads and self._projection.position >= at_least else None

    def remembered_last(self, sim_id: str) -> Sim | None:
        """The sim as this replica projected it last, also once it has lost the lead and others may be further."""
        return self._projection.sim(sim_id)

    async def _lead_once(self, database_url: str) -> None:
        with translated():
            connection = await asyncpg.connect(
                database_url,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=CONNECT_TIMEOUT_S,
                server_settings={"idle_session_timeout": str(int(SILENT_LEADER_S * 1000))},
            )
        try:
            with translated():
                leads = await connection.fetchval("SELECT pg_try_advisory_lock($1)", LEADER_LOCK)
            if leads:
                await self._lead(connection)
        finally:
            await _closed(connection)

    async def _lead(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        position = await self._projection.start()
        self.leads = True
        self._gate.advance(position)
        _logger.info("projector leads", position=position)
        work = [asyncio.create_task(self._hold(connection)), asyncio.create_task(self._follow(position))]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await end(*work)

    async def _hold(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        try:
            while True:
                await asyncio.sleep(HOLD_EVERY_S)
                await connection.execute("SELECT 1")
        except PASSING_ERRORS as error:
            raise LeadershipLost(f"the session that holds the lock is gone: {error}") from error

    async def _follow(self, position: int) -> None:
        async with self._log.follow(PROJECTED, after=position, batch=BATCH, reader="views") as batches:
            async for records in batches:
                await self._project(records)

    async def _project(self, records: list[Recorded[AnyFact]]) -> None:
        started_ns = time.time_ns()
        await self._projection.project(records)
        self._gate.advance(self._projection.position)
        ended_ns = time.time_ns()
        PROJECTION_DELAY.observe(max(0.0, ended_ns / 1e9 - records[0].fact.occurred_at.timestamp()))
        if telemetry.exports_spans():
            spans.record(
                records,
                started_ns=started_ns,
                committing_ns=self._projection.committing_ns,
                ended_ns=ended_ns,
            )


async def _closed(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    try:
        await connection.close(timeout=2)
    except PASSING_ERRORS:
        connection.terminate()
