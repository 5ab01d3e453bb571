"""Takes answered scenarios out of the log: results are transient, and one of them may have megabytes.

Only the leading replica does. When an answer was seen first is remembered here alone, so a new leader lets everything
lie for the whole time once more; nothing is read too late, and nothing stays for ever.
"""

import asyncio

import structlog
from cascade_core import subjects
from cascade_core.errors import Unavailable

from cascade_api.gateway import Gateway

_logger = structlog.get_logger(__name__)

ROUND_EVERY_S = 30.0
KEEP_S = 600.0
"""Ten times the longest wait for an answer."""
MOST_PER_ROUND = 200


class Retirement:
    """When each answer was seen first, and what is due."""

    def __init__(self, keep_s: float = KEEP_S) -> None:
        self._keep_s = keep_s
        self._seen_at: dict[str, float] = {}

    def due(self, answered: set[str], now_s: float) -> list[str]:
        """The scenarios that have been answered for long enough, at most `MOST_PER_ROUND`, oldest first.

        answered: every answered scenario that the log holds. now_s: a clock that only goes forward.
        """
        for scenario in answered:
            self._seen_at.setdefault(scenario, now_s)
        self._seen_at = {scenario: at for scenario, at in self._seen_at.items() if scenario in answered}
        old = [scenario for scenario, at in self._seen_at.items() if now_s - at >= self._keep_s]
        return sorted(old, key=self._seen_at.__getitem__)[:MOST_PER_ROUND]

    def start_over(self) -> None:
        """Forget what was seen: somebody else led meanwhile."""
        self._seen_at.clear()


async def run(gateway: Gateway, *, every_s: float = ROUND_EVERY_S, keep_s: float = KEEP_S) -> None:
    """Retire for ever."""
    retirement = Retirement(keep_s)
    while True:
        await asyncio.sleep(every_s)
        if not gateway.projector.leads:
            retirement.start_over()
            continue
        try:
            await _round(gateway, retirement)
        except Unavailable as error:
            _logger.warning("retiring scenarios waits", error=str(error))


async def _round(gateway: Gateway, retirement: Retirement) -> None:
    answered = set()
    for subject in await gateway.log.subjects(subjects.ALL_SCENARIOS):
        named = subjects.scenario_of_subject(subject)
        if named is not None and named[1] != "requested":
            answered.add(named[0])
    due = retirement.due(answered, asyncio.get_running_loop().time())
    for scenario in due:
        # The question first: a crash in between leaves an answer, which the next round finds again.
        for name in ("requested", "completed", "failed"):
            await gateway.log.purge(subjects.scenario_fact(scenario, name))
    if due:
        _logger.info("scenarios retired", count=len(due))
