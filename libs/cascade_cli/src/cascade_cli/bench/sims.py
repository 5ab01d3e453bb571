"""`cascade bench sims`: many live sims at their real pace: heartbeat and line-to-browser latency, CPU and memory."""

import asyncio
import time
from dataclasses import dataclass, field

import orjson
from cascade_core.jetstream.connection import connected
from cascade_core.settings import NatsSettings

from cascade_cli.bench.pipeline import publish_rate
from cascade_cli.bench.result import BenchResult, ProcessTree, machine, percentile
from cascade_cli.bench.stage import CHUNK_LINES, Stage, replay_lines, staged
from cascade_cli.bench.wire import Connection

HEARTBEAT_EVERY_S = 5.0
CHUNK_EVERY_S = 0.5
WATCHED_RUN_SIMS = 16
"""Sims of the one run that a browser watches; a run has tens of sims, not a thousand."""
STAMP = "bench-stamp "


@dataclass(slots=True)
class _Measured:
    heartbeats_ms: list[float] = field(default_factory=list)
    chunks_ms: list[float] = field(default_factory=list)
    line_to_sse_ms: list[float] = field(default_factory=list)
    errors: int = 0
    late_s: float = 0.0


async def bench_sims(*, count: int, seconds: float) -> BenchResult:
    """`count` sims for `seconds`: a heartbeat every 5 s and a 200-line chunk every 0.5 s each."""
    async with staged() as stage:
        body = orjson.dumps(replay_lines()[5000 : 5000 + CHUNK_LINES])
        async with connected(
            NatsSettings(nats_url=stage.app.urls.nats_url), name="cascade-bench-limit"
        ) as client:
            limit = await publish_rate(client, body)
        watched_run, watched = await stage.run_with(min(WATCHED_RUN_SIMS, count))
        _, others = await stage.run_with(count - len(watched)) if count > len(watched) else ("", [])
        await _visible(stage, watched_run)
        measured = _Measured()
        tree = ProcessTree()
        stop_at = time.monotonic() + seconds
        watcher = asyncio.create_task(_watch(stage, watched_run, measured))
        sampler = asyncio.create_task(_sample(tree))
        async with asyncio.TaskGroup() as group:
            for number, sim_id in enumerate([*watched, *others]):
                group.create_task(_sim(stage, sim_id, number / count, stop_at, measured))
        watcher.cancel()
        sampler.cancel()
        await asyncio.gather(watcher, sampler, return_exceptions=True)
        chunks = len(measured.chunks_ms)
        return BenchResult(
            bench="sims",
            figure=percentile(measured.heartbeats_ms, 0.99),
            unit="ms p99 heartbeat reply",
            limit=1000 / limit,
            limit_what="one raw acknowledged JetStream publish of a chunk at full pipelining",
            cpu_s=tree.cpu_s(),
            wall_s=tree.wall_s(),
            peak_rss_bytes=tree.peak_rss_bytes,
            detail={
                "sims": count,
                "heartbeat_p50_ms": round(percentile(measured.heartbeats_ms, 0.5), 2),
                "heartbeat_p99_ms": round(percentile(measured.heartbeats_ms, 0.99), 2),
                "line_to_sse_p50_ms": round(percentile(measured.line_to_sse_ms, 0.5), 2),
                "line_to_sse_p99_ms": round(percentile(measured.line_to_sse_ms, 0.99), 2),
                "chunks_per_s": round(chunks / tree.wall_s(), 1),
                "chunks_per_s_wanted": round(count / CHUNK_EVERY_S, 1),
                "furthest_behind_pace_s": round(measured.late_s, 2),
                "errors": measured.errors,
                "cpus_busy": round(tree.cpu_s() / tree.wall_s(), 2),
                "machine": machine(),
            },
        )


async def _visible(stage: Stage, run_id: str) -> None:
    async with asyncio.timeout(60):
        while (await stage.client.get(f"/api/runs/{run_id}")).status_code != 200:  # noqa: ASYNC110 - polls a process
            await asyncio.sleep(0.05)


async def _sim(stage: Stage, sim_id: str, phase: float, stop_at: float, measured: _Measured) -> None:
    filler = orjson.dumps(replay_lines_once()[: CHUNK_LINES - 1])[:-1]
    await asyncio.sleep(phase * CHUNK_EVERY_S)
    next_chunk = time.monotonic()
    next_beat = next_chunk + phase * HEARTBEAT_EVERY_S
    seq = 0
    async with Connection("127.0.0.1", stage.app.settings.port, stage.token) as connection:
        await connection.post(f"/api/sims/{sim_id}/heartbeat", b'{"state":"running"}')
        while time.monotonic() < stop_at:
            if time.monotonic() >= next_beat:
                started = time.monotonic()
                status, _ = await connection.post(f"/api/sims/{sim_id}/heartbeat", b'{"state":"running"}')
                measured.heartbeats_ms.append((time.monotonic() - started) * 1000)
                measured.errors += status != 200
                next_beat += HEARTBEAT_EVERY_S
            stamp = orjson.dumps(f"{STAMP}{time.monotonic()}")
            started = time.monotonic()
            status, _ = await connection.post(
                f"/api/sims/{sim_id}/logs", b'{"seq":%d,"lines":%b,%b]}' % (seq, filler, stamp)
            )
            measured.chunks_ms.append((time.monotonic() - started) * 1000)
            measured.errors += status != 204
            seq += 1
            next_chunk += CHUNK_EVERY_S
            behind = time.monotonic() - next_chunk
            measured.late_s = max(measured.late_s, behind)
            if behind < 0:
                await asyncio.sleep(-behind)


_LINES: list[str] = []


def replay_lines_once() -> list[str]:
    """The recorded log's lines, read once."""
    if not _LINES:
        _LINES.extend(replay_lines()[3000:4000])
    return _LINES


async def _watch(stage: Stage, run_id: str, measured: _Measured) -> None:
    async with Connection("127.0.0.1", stage.app.settings.port, stage.token) as connection:
        reader = await connection.stream(f"/api/runs/{run_id}/events")
        mark = STAMP.encode()
        rest = b""
        while piece := await reader.read(1 << 18):
            rest += piece
            while (found := rest.find(mark)) >= 0:
                end = rest.find(b'"', found)
                if end < 0:
                    break
                sent_at = float(rest[found + len(mark) : end])
                measured.line_to_sse_ms.append((time.monotonic() - sent_at) * 1000)
                rest = rest[end:]
            rest = rest[-4096:] if rest.find(mark) < 0 else rest


async def _sample(tree: ProcessTree) -> None:
    while True:
        tree.sample()
        await asyncio.sleep(1.0)
