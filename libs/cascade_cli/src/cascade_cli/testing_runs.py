"""For tests: runs that nobody launches, told to a running app's log by its operator.

They stand still in any state that a test wants to look at, or move as fast as it writes. Their log is the bundled
recorded one, so the parser finds real kernels in it.
"""

import asyncio
import gzip
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cascade_core.errors import LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.logs.facts import LogAppended
from cascade_core.runs.facts import PlannedSim, RunEntry, RunRequested
from cascade_core.settings import NatsSettings
from cascade_core.sims.facts import SimLaunched, SimLaunchStarted, SimReported, SimWentSilent
from cascade_core.sims.transitions import SimState

from cascade_cli import bundled, running

ATTEMPT: Final = "told"
CHUNK_LINES: Final = 500
KERNELS: Final = 6
"""Kernels of the recorded log."""
CLOCK_MHZ: Final = 1410.0
PATIENCE_S: Final = 60.0
RETRY_S: Final = 0.5


@asynccontextmanager
async def operator_log(data_dir: Path) -> AsyncIterator[JetStreamLog]:
    """The event log of the app that runs on `data_dir`, with its operator's login."""
    urls = running.read(data_dir)
    assert urls is not None, f"no app runs on {data_dir}"
    async with connected(NatsSettings(nats_url=urls.nats_url), name="tests") as client:
        yield JetStreamLog(client)


def recorded_lines() -> list[str]:
    """The lines of the bundled recorded log."""
    return (
        gzip.decompress(bundled.REPLAY_LOG.read_bytes()).decode("utf-8", "replace").rstrip("\n").split("\n")
    )


@dataclass(frozen=True, slots=True)
class ToldRun:
    """A run that exists only in the log."""

    run_id: str
    sims: Sequence[PlannedSim]

    def launched(self, sim: PlannedSim) -> list[AnyFact]:
        """The sim waits for its first report."""
        now = datetime.now(UTC)
        return [
            SimLaunchStarted(run_id=self.run_id, sim_id=sim.sim_id, occurred_at=now, attempt=ATTEMPT),
            SimLaunched(
                run_id=self.run_id, sim_id=sim.sim_id, occurred_at=now, launcher_ref="told by a test"
            ),
        ]

    def heartbeat(self, sim: PlannedSim) -> SimReported:
        """The sim runs."""
        return self._report(sim, SimState.RUNNING)

    def succeeded(self, sim: PlannedSim) -> SimReported:
        """The sim ended well."""
        return self._report(sim, SimState.SUCCEEDED)

    def failed(self, sim: PlannedSim, error: str) -> SimReported:
        """The sim ended with code 1."""
        return self._report(sim, SimState.FAILED, error=error)

    def silent(self, sim: PlannedSim) -> SimWentSilent:
        """The sim was not heard of for too long."""
        return SimWentSilent(
            run_id=self.run_id,
            sim_id=sim.sim_id,
            occurred_at=datetime.now(UTC),
            error="no heartbeat for 60s",
            heartbeat_seen_at=datetime.now(UTC),
        )

    def logged(self, sim: PlannedSim, lines: Sequence[str], *, chunk: int = CHUNK_LINES) -> list[AnyFact]:
        """The sim's log from its beginning, in chunks of `chunk` lines."""
        return [
            self.chunk(sim, seq, lines[start : start + chunk])
            for seq, start in enumerate(range(0, len(lines), chunk))
        ]

    def chunk(self, sim: PlannedSim, seq: int, lines: Sequence[str]) -> LogAppended:
        """One chunk of the sim's log."""
        return LogAppended(
            run_id=self.run_id,
            sim_id=sim.sim_id,
            occurred_at=datetime.now(UTC),
            seq=seq,
            lines=list(lines),
            attempt=ATTEMPT,
        )

    def _report(self, sim: PlannedSim, state: SimState, *, error: str | None = None) -> SimReported:
        assert state in (SimState.RUNNING, SimState.SUCCEEDED, SimState.FAILED)
        ended = None if state is SimState.RUNNING else int(state is SimState.FAILED)
        return SimReported(
            run_id=self.run_id,
            sim_id=sim.sim_id,
            occurred_at=datetime.now(UTC),
            state=state,
            exit_code=ended,
            error=error,
            attempt=ATTEMPT,
            engine="replay",
        )


async def tell(log: JetStreamLog, facts: Sequence[AnyFact]) -> None:
    """Store facts in this order; all of them again when the log was late, since some of them may be stored.

    The folds take a repeat for nothing. Not by event ids: what follows a fact that was lost would stay in front of it.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            await log.append_all([(fact, None) for fact in facts])
        except LogUnavailable:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(RETRY_S)
        else:
            return


async def tell_run(log: JetStreamLog, trace_id: str, entries: Mapping[str, int]) -> ToldRun:
    """A run of pending sims. Told as a sample's: those are never launched."""
    sims = [
        PlannedSim(
            sim_id=f"sim-{uuid.uuid4().hex[:12]}",
            gpu_config=config,
            replica=replica,
            arch="sm_80",
            core_clock_mhz=CLOCK_MHZ,
        )
        for config, count in entries.items()
        for replica in range(count)
    ]
    run = ToldRun(f"run-{uuid.uuid4().hex[:12]}", sims)
    asked = RunRequested(
        run_id=run.run_id,
        occurred_at=datetime.now(UTC),
        trace_id=trace_id,
        entries=[RunEntry(gpu_config=config, count=count) for config, count in entries.items()],
        sims=sims,
        kernels_total=KERNELS,
        sample=True,
    )
    await tell(log, [asked])
    return run
