"""`cascade bench rebuild`: facts a second from the log into the views, beside a raw COPY of as many rows."""

import asyncio
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import uvloop
from cascade_api.read_models import database
from cascade_api.read_models.rebuild import rebuild
from cascade_core import lifecycle
from cascade_core.facts import AnyFact
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.kernels.facts import KernelFinished
from cascade_core.runs.facts import PlannedSim, RunEntry, RunRequested
from cascade_core.settings import NatsSettings
from cascade_core.sims.facts import SimMetrics, SimProgressed, SimReported
from cascade_core.sims.transitions import SimState
from cascade_core.traces.facts import TraceDiscovered

from cascade_cli.bench.result import BenchResult, ProcessTree, machine
from cascade_cli.embedded.stack import EmbeddedStack

SIMS_PER_RUN = 16
KERNELS_PER_SIM = 20


async def bench_rebuild(*, facts: int) -> BenchResult:
    """Fill a log with a plausible mix of facts, then throw the views away and replay it."""
    with tempfile.TemporaryDirectory(prefix="cascade-bench-") as scratch:
        async with (
            EmbeddedStack(Path(scratch)) as stack,
            connected(NatsSettings(nats_url=stack.urls.nats_url), name="cascade-bench") as client,
            database.opened(stack.urls.database_url) as pool,
        ):
            await provision(client)
            log = JetStreamLog(client)
            await database.migrate(pool)
            stored = await _fill(log, facts)
            limit = await _copy_rate(pool, stored)
            tree = ProcessTree()
            started = time.monotonic()
            replayed = await rebuild(pool, log, lambda _done, _total: tree.sample())
            wall_s = time.monotonic() - started
            return BenchResult(
                bench="rebuild",
                figure=replayed / wall_s,
                unit="facts/s",
                limit=limit,
                limit_what="rows a second of one raw COPY into an unlogged table of the same width, same server",
                cpu_s=tree.cpu_s(),
                wall_s=wall_s,
                peak_rss_bytes=tree.peak_rss_bytes,
                detail={"facts": replayed, "machine": machine()},
            )


async def _fill(log: JetStreamLog, wanted: int) -> int:
    now = datetime.now(UTC)
    await log.append(TraceDiscovered(trace_id="bench", occurred_at=now))
    stored = 1
    stats: dict[str, float | str] = {f"counter_{number}[READ]": float(number) for number in range(60)}
    while stored < wanted:
        run_id = f"run-{uuid.uuid4().hex[:12]}"
        sims = [f"sim-{uuid.uuid4().hex[:12]}" for _ in range(SIMS_PER_RUN)]
        facts: list[AnyFact] = [
            RunRequested(
                run_id=run_id,
                occurred_at=now,
                trace_id="bench",
                entries=[RunEntry(gpu_config="SM80_A100", count=SIMS_PER_RUN)],
                sims=[
                    PlannedSim(
                        sim_id=sim, gpu_config="SM80_A100", replica=index, arch="sm_80", core_clock_mhz=1410.0
                    )
                    for index, sim in enumerate(sims)
                ],
                kernels_total=KERNELS_PER_SIM,
                sample=True,
            )
        ]
        facts.extend(
            SimReported(run_id=run_id, sim_id=sim, occurred_at=now, state=SimState.RUNNING) for sim in sims
        )
        for index in range(KERNELS_PER_SIM):
            for sim in sims:
                facts.append(
                    KernelFinished(
                        run_id=run_id,
                        sim_id=sim,
                        occurred_at=now,
                        index=index,
                        kernel_name="_Z11copy_kernelIdEvPKT_PS0_",
                        kernel_launch_uid=index + 1,
                        gpu_sim_cycle=6000 + index,
                        gpu_sim_insn=20000,
                        gpu_ipc=3.3,
                        stats=stats,
                    )
                )
                facts.append(
                    SimProgressed(
                        run_id=run_id,
                        sim_id=sim,
                        occurred_at=now,
                        through_seq=index,
                        kernels_done=index + 1,
                        current_kernel="_Z11copy_kernelIdEvPKT_PS0_",
                        latest=SimMetrics(gpu_tot_sim_cycle=float(index)),
                    )
                )
        ended = now + timedelta(seconds=1)
        facts.extend(
            SimReported(run_id=run_id, sim_id=sim, occurred_at=ended, state=SimState.SUCCEEDED, exit_code=0)
            for sim in sims
        )
        await log.append_all([(fact, None) for fact in facts])
        stored += len(facts)
    return stored


async def _copy_rate(pool: "asyncpg.Pool[asyncpg.Record]", rows: int) -> float:
    async with pool.acquire() as connection:
        await connection.execute("CREATE UNLOGGED TABLE bench_copy (id bigint, body bytea)")
        body = b"x" * 400
        started = time.monotonic()
        await connection.copy_records_to_table(
            "bench_copy", records=[(number, body) for number in range(rows)]
        )
        took = time.monotonic() - started
        await connection.execute("DROP TABLE bench_copy")
    return rows / took


def run(facts: int) -> BenchResult:
    """The benchmark, from outside a loop: in the same surroundings as `cascade rebuild`."""
    lifecycle.collect_seldom()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bench_rebuild(facts=facts))
