"""Runs services as child processes: started together, restarted when they die, ended in order, never left behind."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import structlog

_logger = structlog.get_logger(__name__)

STOP_GRACE_S = 20.0
"""More than the launcher needs: 2 s to tell the log, 5 s from SIGTERM to SIGKILL of its sims, 10 s until the kernel has
ended them, and a second to leave."""
RESTART_WAIT_S = (0.2, 1.0, 3.0)
"""Waits before the first, second and every later restart in a row."""
STEADY_AFTER_S = 30.0
"""A service that lived this long starts its row of restarts anew."""
MOST_RESTARTS_IN_A_ROW = 20
_PR_SET_PDEATHSIG = 1


class ServiceFailed(Exception):
    """A service died again and again."""


@dataclass(slots=True)
class Service:
    """One child process. `environment` holds only what it needs."""

    name: str
    module: str
    environment: Mapping[str, str]
    process: asyncio.subprocess.Process | None = field(default=None)


def die_with(parent: int) -> None:
    """Tie this process, a child whose program has not begun yet, to its parent: none outlives a killed supervisor."""
    if sys.platform == "linux":
        # The parent's own handler, inherited until the program begins, would swallow it.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # killed before the line above, which tells of no death that was earlier
            os.kill(os.getpid(), signal.SIGTERM)


class Supervisor:
    """Keeps services alive until it is told to stop."""

    def __init__(self, services: Sequence[Service], *, log_to: int | None = None) -> None:
        """log_to: file descriptor for the services' output; None lets them share this process's stderr."""
        self._services = services
        self._log_to = log_to

    async def run(self) -> None:
        """Start all and watch them until cancelled. Raises ServiceFailed."""
        async with asyncio.TaskGroup() as group:
            for service in self._services:
                group.create_task(self._keep(service))

    async def _keep(self, service: Service) -> None:
        loop = asyncio.get_running_loop()
        restarts = 0
        while True:
            started_at = loop.time()
            await self._start(service)
            assert service.process is not None
            code = await service.process.wait()
            if loop.time() - started_at > STEADY_AFTER_S:
                restarts = 0
            if restarts >= MOST_RESTARTS_IN_A_ROW:
                raise ServiceFailed(
                    f"the {service.name} service ended with code {code} {restarts + 1} times in a row; "
                    "its last lines above say why"
                )
            wait = RESTART_WAIT_S[min(restarts, len(RESTART_WAIT_S) - 1)]
            restarts += 1
            _logger.warning("service ended, starting again", name=service.name, code=code, in_s=wait)
            await asyncio.sleep(wait)

    async def _start(self, service: Service) -> None:
        service.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            service.module,
            env=dict(service.environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=self._log_to,
            stderr=self._log_to,
            # Ctrl+C reaches this process alone, which then ends the services in order.
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid()),
        )

    async def stop(self) -> None:
        """End the services one after another, in the order they were given.

        Only once `run` has ended: it would start again what ends here, or what it was about to start again.
        """
        for service in self._services:
            await self._end(service)

    async def _end(self, service: Service) -> None:
        process = service.process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        await self._ended(service)

    async def run_last(self, service: Service) -> None:
        """Run what ends by itself, once; killed like any other where it takes too long."""
        await self._start(service)
        await self._ended(service)

    @staticmethod
    async def _ended(service: Service) -> None:
        process = service.process
        assert process is not None
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await process.wait()
        except TimeoutError:
            _logger.warning("service does not stop, killing it", name=service.name)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
