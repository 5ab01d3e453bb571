"""Read your writes: wait, for a bounded time, until the views contain a position.

The leading replica announces each commit on a Postgres channel; every replica listens. The announcement travels with
the commit, so it can neither come early nor be lost while the connection lives; a lost connection is made anew and
reads the checkpoint first.
"""

import asyncio
import heapq
import itertools

import asyncpg
import structlog
from cascade_core.errors import Unavailable

from cascade_api.read_models.database import PASSING_ERRORS
from cascade_api.read_models.writes import CHECKPOINT

_logger = structlog.get_logger(__name__)

CHANNEL = "cascade_projected"
"""`writes.MOVE_CHECKPOINT` announces on it."""
WAIT_S = 5.0
RECONNECT_S = 0.5
LIVENESS_CHECK_S = 2.0


class ProjectionLate(Unavailable):
    """The views did not catch up in time. What was sent is stored: only a call that may be repeated ends with it."""


class ProjectionGate:
    """How far the views are, and whoever waits for them."""

    def __init__(self) -> None:
        self.position = 0
        self.expected = 0
        """What readers must see: everything stored before this replica started, and all that it stored since."""
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._ticket = itertools.count()
        self._commit = asyncio.Event()

    def advance(self, position: int) -> None:
        """The views contain everything up to `position`."""
        if position <= self.position:
            return
        self.position = position
        self._commit.set()
        self._commit = asyncio.Event()
        while self._waiters and self._waiters[0][0] <= position:
            _, _, waiter = heapq.heappop(self._waiters)
            if not waiter.done():
                waiter.set_result(None)

    def expect(self, position: int) -> None:
        """Readers of this replica must see `position`."""
        self.expected = max(self.expected, position)

    @property
    def is_behind(self) -> bool:
        """Whether the views lack something that readers must see, so that "not found" may be untrue."""
        return self.position < self.expected

    def _went_back(self, position: int) -> None:
        # A crash of the server took the last commits back, or an older backup was put in its place.
        _logger.warning("the views went back", from_position=self.position, to_position=position)
        self.position = position

    async def passed(self, position: int, *, within_s: float | None = None) -> None:
        """Return once the views contain `position`. Raises ProjectionLate after `within_s`, or WAIT_S if left out."""
        if position <= self.position:
            return
        within_s = WAIT_S if within_s is None else within_s
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiters, (position, next(self._ticket), waiter))
        try:
            async with asyncio.timeout(within_s):
                await waiter
        except TimeoutError:
            raise ProjectionLate(
                f"the read models are at position {self.position} and did not reach {position} in {within_s:.0f} s. "
                "Nothing is lost; repeat the call in a moment."
            ) from None

    async def next_commit(self, *, within_s: float) -> bool:
        """Wait for any commit; False if none came in time."""
        commit = self._commit
        try:
            async with asyncio.timeout(within_s):
                await commit.wait()
        except TimeoutError:
            return False
        return True

    async def listen(self, database_url: str) -> None:
        """Follow the leader's announcements for ever."""
        while True:
            try:
                await self._listen_once(database_url)
            except PASSING_ERRORS as error:
                _logger.warning("projection channel lost", error=str(error) or type(error).__name__)
            await asyncio.sleep(RECONNECT_S)

    async def _listen_once(self, database_url: str) -> None:
        connection = await asyncpg.connect(database_url, timeout=5, command_timeout=5)
        try:
            await connection.add_listener(CHANNEL, self._on_announcement)
            while True:
                seen = self.position
                position = int(await connection.fetchval(CHECKPOINT))
                if position < seen:
                    self._went_back(position)
                self.advance(position)
                await asyncio.sleep(LIVENESS_CHECK_S)
        finally:
            await connection.close(timeout=2)

    def _on_announcement(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self.advance(int(str(payload)))
