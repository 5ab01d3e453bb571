"""Copies facts into tables: batch, fold, write, checkpoint, all in one transaction. Has no other effect.

What is folded is remembered between batches, so that a live sim costs one write a batch and no read. The checkpoint
moves by compare-and-set: whoever was overtaken writes nothing.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from cascade_core import subjects
from cascade_core.errors import Unavailable
from cascade_core.facts import AnyFact
from cascade_core.record import Recorded
from cascade_core.sims.state import Sim

from cascade_api.read_models import codec, writes
from cascade_api.read_models.batch import Batch, run_ids_in, sim_ids_in, trace_tokens_in

if TYPE_CHECKING:
    from cascade_api.read_models.database import Connection

PROJECTED = [
    subjects.ALL_TRACES,
    subjects.ALL_RUNS,
    subjects.ALL_SIMS,
    subjects.ALL_BEATS,
    subjects.ALL_LOGS,
    subjects.ALL_KERNELS,
]
"""Everything but scenarios: their answers go to whoever waits for them, not into a view."""
FOLDED_AT_ONCE = 64
"""Facts folded before others may run: at most some milliseconds, kernels cost the most."""


class CheckpointMoved(Unavailable):
    """Somebody else has written meanwhile. Start again at the checkpoint."""


class Connections(Protocol):
    """Where a projection writes."""

    def connection(self) -> "AbstractAsyncContextManager[Connection]":
        """A connection outside any transaction. Raises DatabaseUnavailable."""
        ...


class Projection:
    """The views as of `position`, and what of them is known by heart."""

    def __init__(self, database: Connections, *, sims_remembered: int) -> None:
        self._database = database
        self._most = sims_remembered
        self._sims: OrderedDict[str, Sim] = OrderedDict()
        self.position = 0
        self.committing_ns = 0
        """When the last batch was handed to its commit. [ns since 1970]"""

    async def start(self) -> int:
        """Begin at the checkpoint with nothing remembered; returns it."""
        async with self._database.connection() as connection:
            self.position = int(await connection.fetchval(writes.CHECKPOINT))
        self._sims.clear()  # not before: a database that does not answer is what they are remembered for
        return self.position

    def sim(self, sim_id: str) -> Sim | None:
        """The sim as of `position`; None where it is not known by heart."""
        return self._sims.get(sim_id)

    async def project(self, records: Sequence[Recorded[AnyFact]]) -> None:
        """Fold `records`, which follow `position`, into the views.

        Raises CheckpointMoved if the views are not at `position`, DatabaseUnavailable. Either way nothing was written,
        or (a connection lost in the commit) nobody can tell: start again at the checkpoint.
        """
        last = records[-1].position
        batch = await self._folded(records)
        self.committing_ns = time.time_ns()
        async with self._database.connection() as connection:
            if not await writes.write(connection, batch, after=self.position, until=last):
                raise CheckpointMoved(f"the views are not at position {self.position} any more")
        self._remember(batch.sims.values())
        self.position = last

    async def _folded(self, records: Sequence[Recorded[AnyFact]]) -> Batch:
        batch = await self._loaded(records)
        for number, record in enumerate(records, 1):
            batch.fold(record)
            if number % FOLDED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return batch

    def _remember(self, sims: Iterable[Sim]) -> None:
        for sim in sims:
            self._sims[sim.sim_id] = sim
            self._sims.move_to_end(sim.sim_id)
        while len(self._sims) > self._most:
            self._sims.popitem(last=False)

    async def _loaded(self, records: Sequence[Recorded[AnyFact]]) -> Batch:
        named, runs, tokens = sim_ids_in(records), run_ids_in(records), trace_tokens_in(records)
        batch = Batch(
            sims={sim_id: self._sims[sim_id] for sim_id in named if sim_id in self._sims},
            sims_of_run={},
            traces={},
        )
        missing = named - batch.sims.keys()
        if missing or runs or tokens:
            async with self._database.connection() as connection:
                await self._load(connection, batch, missing, runs, tokens)
        return batch

    async def _load(
        self, connection: "Connection", batch: Batch, missing: set[str], runs: set[str], tokens: set[str]
    ) -> None:
        if missing or runs:
            for row in await connection.fetch(writes.SIMS_OF, list(missing), list(runs)):
                sim_id = row["sim_id"]
                if sim_id not in batch.sims:
                    batch.sims[sim_id] = self._sims.get(sim_id) or codec.decode_sim(row["state"])
                if row["run_id"] in runs:
                    batch.sims_of_run.setdefault(row["run_id"], []).append(sim_id)
        if tokens:
            for row in await connection.fetch(writes.TRACES_OF, list(tokens)):
                batch.traces[row["trace_token"]] = codec.decode_trace(row["state"])
