"""`cascade bench pipeline`: log lines a second from HTTP to the read model, beside JetStream's raw publish rate."""

import asyncio
import time

import orjson
from cascade_core.jetstream.connection import connected
from cascade_core.settings import NatsSettings
from nats.aio.client import Client

from cascade_cli.bench.result import BenchResult, ProcessTree, machine
from cascade_cli.bench.stage import CHUNK_LINES, Stage, replay_lines, staged
from cascade_cli.bench.wire import Connection

CONNECTIONS = 32
LIMIT_PUBLISHES = 4000
SETTLE_TIMEOUT_S = 120.0


async def bench_pipeline(*, lines: int, sims: int) -> BenchResult:
    """Post `lines` log lines of `sims` sims and wait until every kernel is in the read model."""
    source = replay_lines()
    chunks = [source[start : start + CHUNK_LINES] for start in range(0, len(source), CHUNK_LINES)]
    per_sim = max(1, lines // sims // CHUNK_LINES)
    async with staged() as stage:
        limit = await _raw_publish_rate(stage, chunks[len(chunks) // 2])
        run_id, sim_ids = await stage.run_with(sims)
        await _visible(stage, run_id)
        tree = ProcessTree()
        started = time.monotonic()
        sent = await _post_all(stage, sim_ids, chunks, per_sim)
        posted_s = time.monotonic() - started
        await _parsed(stage, run_id, per_sim, tree)
        settled_s = time.monotonic() - started
        tree.sample()
        kernels = sum(
            sim["kernels_done"] for sim in (await stage.client.get(f"/api/runs/{run_id}")).json()["sims"]
        )
        return BenchResult(
            bench="pipeline",
            figure=sent / settled_s,
            unit="lines/s",
            limit=limit * CHUNK_LINES,
            limit_what=f"raw JetStream publishes of the same {CHUNK_LINES}-line chunks by one connection, acknowledged",
            cpu_s=tree.cpu_s(),
            wall_s=settled_s,
            peak_rss_bytes=tree.peak_rss_bytes,
            detail={
                "lines": sent,
                "sims": sims,
                "kernels": kernels,
                "accepted_lines_per_s": round(sent / posted_s),
                "cpu_by_process_s": tree.cpu_by_process_s(),
                "machine": machine(),
            },
        )


async def _post_all(stage: Stage, sim_ids: list[str], chunks: list[list[str]], per_sim: int) -> int:
    work: asyncio.Queue[str] = asyncio.Queue()
    for sim_id in sim_ids:
        work.put_nowait(sim_id)
    bodies = [orjson.dumps(chunk)[:-1] for chunk in chunks]
    sent = 0

    async def client() -> None:
        nonlocal sent
        async with Connection("127.0.0.1", stage.app.settings.port, stage.token) as connection:
            while not work.empty():
                sim_id = work.get_nowait()
                for seq in range(per_sim):
                    lines = bodies[seq % len(bodies)]
                    status, reply = await connection.post(
                        f"/api/sims/{sim_id}/logs", b'{"seq":%d,"lines":%b]}' % (seq, lines)
                    )
                    if status != 204:
                        raise RuntimeError(f"the app answered {status}: {reply[:200]!r}")
                    sent += len(chunks[seq % len(chunks)])
                # As a real simulator does. It also ends the wait for progress, which is told once a second otherwise.
                status, reply = await connection.post(
                    f"/api/sims/{sim_id}/heartbeat", b'{"state":"succeeded","exit_code":0}'
                )
                if status != 200:
                    raise RuntimeError(f"the app answered {status}: {reply[:200]!r}")

    async with asyncio.TaskGroup() as group:
        for _ in range(min(CONNECTIONS, len(sim_ids))):
            group.create_task(client())
    return sent


async def _visible(stage: Stage, run_id: str) -> None:
    async with asyncio.timeout(SETTLE_TIMEOUT_S):
        while (await stage.client.get(f"/api/runs/{run_id}")).status_code != 200:  # noqa: ASYNC110 - polls a process
            await asyncio.sleep(0.05)


async def _parsed(stage: Stage, run_id: str, per_sim: int, tree: ProcessTree) -> None:
    """Wait until the parser's progress on every sim's last chunk is in the read model."""
    from cascade_core import subjects

    wanted = set()
    async with asyncio.timeout(SETTLE_TIMEOUT_S):
        async with stage.log.follow([f"{subjects.ROOT}.sim.{run_id}.*.progressed"]) as batches:
            detail = (await stage.client.get(f"/api/runs/{run_id}")).json()
            wanted = {sim["id"] for sim in detail["sims"]}
            async for records in batches:
                tree.sample()
                for record in records:
                    if getattr(record.fact, "through_seq", -1) >= per_sim - 1:
                        wanted.discard(getattr(record.fact, "sim_id", ""))
                if not wanted:
                    last = records[-1].position
                    break
        while await _projected(stage) < last:  # noqa: ASYNC110 - polls a process
            await asyncio.sleep(0.01)


async def _projected(stage: Stage) -> int:
    import asyncpg

    connection = await asyncpg.connect(stage.app.urls.database_url)
    try:
        return int(await connection.fetchval("SELECT position FROM projection_checkpoint"))
    finally:
        await connection.close()


async def _raw_publish_rate(stage: Stage, chunk: list[str]) -> float:
    """Acknowledged publishes a second of one chunk's bytes, pipelined, into a stream of its own on the same server."""
    body = orjson.dumps(chunk)
    async with connected(
        NatsSettings(nats_url=stage.app.urls.nats_url), name="cascade-bench-limit"
    ) as client:
        return await publish_rate(client, body)


async def publish_rate(client: Client, body: bytes) -> float:
    """Pipelined, acknowledged publishes a second of `body`."""
    from nats.js import api

    js = client.jetstream(publish_async_max_pending=512)
    await js.add_stream(
        api.StreamConfig(name="BENCH", subjects=["bench.limit"], storage=api.StorageType.FILE)
    )
    try:
        started = time.monotonic()
        futures = [await js.publish_async("bench.limit", body, wait_stall=10) for _ in range(LIMIT_PUBLISHES)]
        await asyncio.gather(*futures)
        return LIMIT_PUBLISHES / (time.monotonic() - started)
    finally:
        await js.delete_stream("BENCH")
