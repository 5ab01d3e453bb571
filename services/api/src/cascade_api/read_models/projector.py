"""Copies facts into tables: batch, fold, write, checkpoint, all in one transaction. Has no other effect.

One replica leads, by an advisory lock. The checkpoint moves by compare-and-set, so even two leaders could not apply
a fact twice. An error ends the leadership; it starts again at the checkpoint, with nothing remembered.
"""

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

import asyncpg
import structlog
from cascade_core import subjects, telemetry
from cascade_core.errors import Unavailable
from cascade_core.facts import AnyFact
from cascade_core.metrics import PROJECTION_DELAY
from cascade_core.ports import EventLog
from cascade_core.record import Recorded
from cascade_core.sims.state import Sim

from cascade_api.read_models import codec, database, spans, writes
from cascade_api.read_models.batch import Batch, run_ids_in, sim_ids_in, trace_tokens_in
from cascade_api.read_models.gate import CHANNEL, ProjectionGate

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Reader = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

_logger = structlog.get_logger(__name__)

LEADER_LOCK = 0x0CA5CADF
TRY_LEAD_EVERY_S = 0.5
BATCH = 1024
SIMS_REMEMBERED = 4096
"""Folded sims kept between batches; more live sims than this cost a read each."""
PROJECTED = [
    subjects.ALL_TRACES,
    subjects.ALL_RUNS,
    subjects.ALL_SIMS,
    subjects.ALL_BEATS,
    subjects.ALL_LOGS,
    subjects.ALL_KERNELS,
]


class CheckpointMoved(Unavailable):
    """Another leader has written meanwhile. Start again at the checkpoint."""


class Projector:
    """Folds the log into the views while this replica leads."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", log: EventLog, gate: ProjectionGate) -> None:
        self._pool = pool
        self._log = log
        self._gate = gate
        self._sims: OrderedDict[str, Sim] = OrderedDict()
        self.leads = False
        self.position = 0
        self.facts_projected = 0

    async def run(self, database_url: str) -> None:
        """Lead whenever nobody else does, for ever. Returns only by cancellation; raises Corrupt."""
        while True:
            try:
                await self._lead_once(database_url)
            except (*database.PASSING_ERRORS, Unavailable) as error:
                _logger.warning("projector starts over", error=str(error) or type(error).__name__)
            finally:
                self.leads = False
            await asyncio.sleep(TRY_LEAD_EVERY_S)

    async def _lead_once(self, database_url: str) -> None:
        # A connection of its own: the lock ends with it, whatever happens to the pool.
        connection = await asyncpg.connect(database_url, timeout=5, command_timeout=5)
        try:
            if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", LEADER_LOCK):
                return
            self.leads = True
            self._sims.clear()
            position = int(
                await connection.fetchval(
                    "SELECT position FROM projection_checkpoint WHERE projection = 'views'"
                )
            )
            self.position = position
            self._gate.advance(position)
            _logger.info("projector leads", position=position)
            async with self._log.follow(PROJECTED, after=position, batch=BATCH, reader="views") as batches:
                async for records in batches:
                    position = await self.project(position, records)
        finally:
            await connection.close(timeout=2)

    async def project(self, position: int, records: list[Recorded[AnyFact]]) -> int:
        """Fold `records`, which follow `position`, into the views; returns the new position.

        Raises CheckpointMoved if the views were not at `position`.
        """
        last = records[-1].position
        started_ns = time.time_ns()
        async with self._pool.acquire() as connection, connection.transaction():
            batch = await self._loaded(connection, records)
            for record in records:
                batch.fold(record)
            await writes.write(connection, batch)
            moved = await connection.execute(writes.MOVE_CHECKPOINT, position, last)
            if moved != "UPDATE 1":
                raise CheckpointMoved("another api replica leads the projection now")
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, str(last))
            committing_ns = time.time_ns()
        for sim_id in sim_ids_in(records):
            if sim_id in batch.sims:
                self._remember(batch.sims[sim_id])
        for sim_id in batch.changed_sims:
            self._remember(batch.sims[sim_id])
        self.facts_projected += len(records)
        self.position = last
        self._gate.advance(last)
        ended_ns = time.time_ns()
        PROJECTION_DELAY.observe(max(0.0, ended_ns / 1e9 - records[0].fact.occurred_at.timestamp()))
        if telemetry.exports_spans():
            spans.record(records, started_ns=started_ns, committing_ns=committing_ns, ended_ns=ended_ns)
        return last

    def remembered(self, sim_id: str, *, at_least: int = 0) -> Sim | None:
        """The sim as the views hold it, without asking them; None where this replica does not know it by heart.

        at_least: a position that it must contain. A commit may be heard of before its projector has gone on.
        """
        return self._sims.get(sim_id) if self.leads and self.position >= at_least else None

    def _remember(self, sim: Sim) -> None:
        self._sims[sim.sim_id] = sim
        self._sims.move_to_end(sim.sim_id)
        while len(self._sims) > SIMS_REMEMBERED:
            self._sims.popitem(last=False)

    async def _loaded(self, connection: "Reader", records: list[Recorded[AnyFact]]) -> Batch:
        sims = {sim_id: self._sims[sim_id] for sim_id in sim_ids_in(records) if sim_id in self._sims}
        missing = sim_ids_in(records) - sims.keys()
        sims_of_run: dict[str, list[str]] = {}
        runs = run_ids_in(records)
        if missing or runs:
            rows = await connection.fetch(
                "SELECT sim_id, run_id, state FROM sim_view WHERE sim_id = ANY($1::text[]) OR run_id = ANY($2::text[])"
                " ORDER BY gpu_config, replica",
                list(missing),
                list(runs),
            )
            for row in rows:
                if row["sim_id"] not in sims:
                    remembered = self._sims.get(row["sim_id"])
                    sims[row["sim_id"]] = remembered or codec.decode_sim(row["state"])
                if row["run_id"] in runs:
                    sims_of_run.setdefault(row["run_id"], []).append(row["sim_id"])
        traces = {}
        if tokens := trace_tokens_in(records):
            rows = await connection.fetch(
                "SELECT trace_token, state FROM trace_view WHERE trace_token = ANY($1::text[])", list(tokens)
            )
            traces = {row["trace_token"]: codec.decode_trace(row["state"]) for row in rows}
        return Batch(sims=sims, sims_of_run=sims_of_run, traces=traces)
