"""One sim from its first heartbeat to its last: the order of things, and who may stop them.

Two tasks run side by side. The work task prepares, simulates, forwards the log, uploads and times the steps.
The heartbeat task says every few seconds that the sim is alive and hears whether it is cancelled; it goes on
while the work waits on retries. Whatever ends the sim early (a cancel, a fence, a signal, a refusal) cancels
the work task, and that ends the simulator's process group.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from cascade_worker.errors import (
    CannotStartError,
    FencedOffError,
    GatewayError,
    GatewayRefusedError,
    GatewayUnavailableError,
    SourceFailedError,
)
from cascade_worker.gateway import Gateway, HeartbeatAck, Outcome

EXIT_CANNOT_START: Final = 2
"""Exit code when something that the simulation needs is missing (spec: simulator, The built-in worker)."""

EXIT_WORKER_FAILED: Final = 1
"""Exit code of the worker when the sim could not be brought to a reported end."""

LAST_WORD_S: Final = 3.0
"""What a terminated worker may spend on its final heartbeat: less than any launcher's grace. [s]"""

_FINAL_STATES: Final = frozenset({"succeeded", "failed", "cancelled"})

_log = logging.getLogger(__name__)


class StopReason(Enum):
    """Why a sim ends before its work does."""

    CANCELLED = auto()
    """The gateway asked for it."""
    ALREADY_OVER = auto()
    """The sim has a final state that this worker did not report."""
    FENCED_OFF = auto()
    """Another start of this sim has taken over."""
    REFUSED = auto()
    """The gateway refuses this worker: wrong token, or no such sim."""
    TERMINATED = auto()
    """A signal told the worker to end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop and the words for the worker's log."""

    reason: StopReason
    why: str
    exit_code: int


class StopSwitch:
    """Set once; the first reason wins."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._stop: Stop | None = None

    def set(self, stop: Stop) -> None:
        """Ask the session to stop."""
        if self._stop is None:
            self._stop = stop
            self._event.set()

    async def wait(self) -> Stop:
        """Wait for the first stop."""
        await self._event.wait()
        assert self._stop is not None
        return self._stop


Work = Callable[[], Awaitable[Outcome]]


async def run_session(
    gateway: Gateway, work: Work, *, switch: StopSwitch, heartbeat_interval_s: float
) -> int:
    """Do `work` between the first and the final heartbeat; return the worker's exit code."""
    stopping = asyncio.create_task(switch.wait())
    working = asyncio.create_task(
        _announce_and_work(gateway, work, switch=switch, interval_s=heartbeat_interval_s)
    )
    try:
        await asyncio.wait({stopping, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        stop = stopping.result()
        await _cancel(working)  # returns once the simulator's process group is gone
        _log.info("stopped: %s", stop.why)
        if stop.reason is StopReason.TERMINATED:
            await _last_word(gateway, stop)
        return stop.exit_code
    finally:
        await _cancel(stopping, working)


async def _announce_and_work(gateway: Gateway, work: Work, *, switch: StopSwitch, interval_s: float) -> int:
    try:
        if _obey(await gateway.announce(), switch):
            return await _until_stopped()
        beating = asyncio.create_task(_beat(gateway, switch=switch, interval_s=interval_s))
        try:
            outcome = await _outcome_of(work)
        finally:
            await _cancel(beating)  # no `running` may overtake the final heartbeat
        _log.info("%s%s", outcome.state, f": {outcome.error}" if outcome.error else "")
        await gateway.finish(outcome)
    except FencedOffError as error:
        switch.set(Stop(StopReason.FENCED_OFF, str(error), exit_code=0))
        return await _until_stopped()
    except GatewayError as error:
        # Not even the final heartbeat gets through: the launcher will notice the silence.
        _log.error("giving up: %s", error)  # an expected end; a traceback would bury the sentence
        return EXIT_WORKER_FAILED
    if outcome.state == "succeeded":
        return 0
    return outcome.exit_code or EXIT_WORKER_FAILED


async def _outcome_of(work: Work) -> Outcome:
    """The work's outcome, where a gateway that refuses the log is one too."""
    try:
        return await work()
    except CannotStartError as error:
        return Outcome(state="failed", exit_code=EXIT_CANNOT_START, error=str(error))
    except (SourceFailedError, OSError) as error:
        return Outcome(state="failed", exit_code=EXIT_WORKER_FAILED, error=str(error))
    except FencedOffError:
        raise
    except (GatewayRefusedError, GatewayUnavailableError) as error:
        # A log with a hole in it is worth nothing, so the simulation ended with it.
        return Outcome(
            state="failed", exit_code=EXIT_WORKER_FAILED, error=f"the log could not be delivered: {error}"
        )


async def _beat(gateway: Gateway, *, switch: StopSwitch, interval_s: float) -> None:
    """Heartbeats at a steady pace, each tried once, until cancelled or told to stop."""
    loop = asyncio.get_running_loop()
    next_at = loop.time()
    while True:
        next_at = max(next_at + interval_s, loop.time())
        await asyncio.sleep(next_at - loop.time())
        try:
            if _obey(await gateway.beat(), switch):
                return
        except FencedOffError as error:
            switch.set(Stop(StopReason.FENCED_OFF, str(error), exit_code=0))
            return
        except GatewayRefusedError as error:
            switch.set(Stop(StopReason.REFUSED, str(error), exit_code=EXIT_WORKER_FAILED))
            return
        except GatewayUnavailableError as error:
            _log.warning("%s", error)


def _obey(ack: HeartbeatAck, switch: StopSwitch) -> bool:
    """Whether the gateway's answer ends this sim."""
    if ack.cancel:
        # Also the answer to a start that is fenced off; the sim is not cancelled then.
        why = "the run was cancelled" if ack.state == "cancelled" else f"told to stop; the sim is {ack.state}"
        switch.set(Stop(StopReason.CANCELLED, why, exit_code=0))
    elif ack.state in _FINAL_STATES:
        switch.set(Stop(StopReason.ALREADY_OVER, f"the sim is already {ack.state}", exit_code=0))
    else:
        return False
    return True


async def _last_word(gateway: Gateway, stop: Stop) -> None:
    """Say that the sim failed, if that takes no time; a sim that was cancelled stays cancelled."""
    try:
        async with asyncio.timeout(LAST_WORD_S):
            await gateway.finish_once(Outcome(state="failed", exit_code=stop.exit_code, error=stop.why))
    except (GatewayError, TimeoutError) as error:
        _log.warning("no final heartbeat: %s", error)


async def _until_stopped() -> int:
    """Stand still until the session, which has its stop already, cancels this task."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def _cancel(*tasks: asyncio.Task[object]) -> None:
    """End the tasks and wait for them. What one of them raised on its own, a defect, is raised here."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
