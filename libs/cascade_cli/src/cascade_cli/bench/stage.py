"""A running app for a benchmark: the real process tree, and sims that exist without being launched."""

import gzip
import secrets
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.runs.facts import PlannedSim, RunEntry, RunRequested
from cascade_core.settings import NatsSettings
from cascade_core.sims.facts import SimLaunchStarted
from cascade_core.traces.facts import TraceDiscovered

from cascade_cli import app_stack, bundled
from cascade_cli.demo import healthy
from cascade_cli.isolated import isolated_settings

TRACE_ID = "bench"
CONFIG = "SM86_RTX3070"
CHUNK_LINES = 200


@dataclass(frozen=True, slots=True)
class Stage:
    """A healthy app, its log, and where it listens."""

    app: app_stack.RunningApp
    log: JetStreamLog
    client: httpx.AsyncClient
    token: str

    async def run_with(self, sims: int) -> tuple[str, list[str]]:
        """A run whose sims are launching and wait for reports; no process was started for them."""
        run_id = f"run-{uuid.uuid4().hex[:12]}"
        planned = [
            PlannedSim(
                sim_id=f"sim-{uuid.uuid4().hex[:12]}",
                gpu_config=CONFIG,
                replica=index,
                arch="sm_86",
                core_clock_mhz=1132.0,
            )
            for index in range(sims)
        ]
        now = datetime.now(UTC)
        await self.log.append(TraceDiscovered(trace_id=TRACE_ID, occurred_at=now, sample=True))
        # A sample run is never launched, which is what a benchmark of everything else needs.
        await self.log.append(
            RunRequested(
                run_id=run_id,
                occurred_at=now,
                trace_id=TRACE_ID,
                entries=[RunEntry(gpu_config=CONFIG, count=1)],
                sims=planned,
                kernels_total=6,
                sample=True,
            )
        )
        started = [
            (SimLaunchStarted(run_id=run_id, sim_id=sim.sim_id, occurred_at=now, attempt="bench"), None)
            for sim in planned
        ]
        await self.log.append_all(started)
        return run_id, [sim.sim_id for sim in planned]


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    """Start an app of its own on free ports in a temporary folder."""
    token = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory(prefix="cascade-bench-") as scratch:
        settings = isolated_settings(Path(scratch), token=token, sim_cmd="true")
        with (Path(scratch) / "services.log").open("ab") as log_file:
            async with app_stack.running_app(settings, log_to=log_file.fileno()) as app:
                headers = {"Authorization": f"Bearer {token}"}
                async with (
                    httpx.AsyncClient(base_url=app.url, headers=headers, timeout=60) as client,
                    connected(NatsSettings(nats_url=app.urls.nats_url), name="cascade-bench") as nats,
                ):
                    await healthy(app.url)
                    yield Stage(app, JetStreamLog(nats), client, token)


def replay_lines() -> list[str]:
    """The lines of the bundled recorded log."""
    return gzip.decompress(bundled.REPLAY_LOG.read_bytes()).decode("utf-8", "replace").split("\n")
