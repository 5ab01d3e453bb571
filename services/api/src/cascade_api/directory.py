"""Sims as this replica saw them last, so that what simulators send can be stored without asking the database.

The projector's memory is exact where this replica leads. Elsewhere a copy from the views serves for a short time. That
copy, or what the projector knew last, serves for as long as the database does not answer: a heartbeat or a log chunk
needs only the sim's run and its owner, which never change once they are known, and every fold judges for itself.
"""

import time
from collections import OrderedDict

from cascade_core.errors import NotFound
from cascade_core.sims.state import Sim

from cascade_api import absence
from cascade_api.read_models import queries
from cascade_api.read_models.database import Database, DatabaseUnavailable
from cascade_api.read_models.gate import ProjectionGate
from cascade_api.read_models.projector import Projector

REMEMBERED = 8192
FRESH_FOR_S = 1.0


class SimDirectory:
    """Looks sims up by id."""

    def __init__(self, database: Database, projector: Projector, gate: ProjectionGate) -> None:
        self._database = database
        self._projector = projector
        self._gate = gate
        self._seen: OrderedDict[str, tuple[float, Sim]] = OrderedDict()

    async def known(self, sim_id: str) -> Sim:
        """The sim, perhaps a second old. Raises NotFound, DatabaseUnavailable."""
        remembered = self._projector.remembered(sim_id)
        if remembered is not None:
            return remembered
        seen = self._seen.get(sim_id)
        if seen is not None and time.monotonic() - seen[0] < FRESH_FOR_S:
            return seen[1]
        try:
            return await self.current(sim_id, at_least=self._gate.position)
        except DatabaseUnavailable:
            # Whoever led never had to look in the views, and without a database nobody leads for long.
            last = seen[1] if seen is not None else self._projector.remembered_last(sim_id)
            if last is None:
                raise
            return last

    async def current(self, sim_id: str, *, at_least: int) -> Sim:
        """The sim in views that contain `at_least`. Raises NotFound, DatabaseUnavailable, ProjectionLate."""
        remembered = self._projector.remembered(sim_id, at_least=at_least)
        if remembered is not None:
            return remembered
        try:
            sim = await queries.sim(self._database, sim_id)
        except NotFound:
            with absence.judged(self._gate):
                await self._gate.passed(self._gate.expected)  # it may have been created a moment ago
                sim = await queries.sim(self._database, sim_id)
        self._seen[sim_id] = (time.monotonic(), sim)
        self._seen.move_to_end(sim_id)
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return sim
