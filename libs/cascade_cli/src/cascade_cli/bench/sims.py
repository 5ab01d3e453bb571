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
RAMP_S = 5.0
"""Sims begin one after the other over this time, as a launcher starts them. What they measure counts once all run."""
WATCHED_RUN_SIMS = 16
"""Sims of the one run that a browser watches; a run has tens of sims, not a thousand."""
_STAMP = b"bench-stamp "
_LOG_EVENT = b'"type":"log"'


@dataclass(frozen=True, slots=True)
class _Plan:
    filler: bytes
    """All lines of a chunk but the last, which is a stamp: the JSON list without its end."""
    stop_at: float
    """Monotonic. [s]"""


@dataclass(slots=True)
class _Measured:
    heartbeats_ms: list[float] = field(default_factory=list)
    first_heartbeats_ms: list[float] = field(default_factory=list)
    """Of the sims as they begin; it changes their state, so it waits for the views."""
    chunks_ms: list[float] = field(default_factory=list)
    line_to_sse_ms: list[float] = field(default_factory=list)
    errors: int = 0
    late_s: float = 0.0
    counts_from: float = 0.0
    """Monotonic; what began earlier is not measured. [s]"""


async def bench_sims(*, count: int, seconds: float) -> BenchResult:
    """`count` sims for `seconds`: a heartbeat every 5 s and a 200-line chunk every 0.5 s each."""
    async with staged() as stage:
        lines = replay_lines()[5000 : 5000 + CHUNK_LINES]
        body = orjson.dumps(lines)
        async with connected(
            NatsSettings(nats_url=stage.app.urls.nats_url), name="cascade-bench-limit"
        ) as client:
            limit = await publish_rate(client, body)
        watched_run, watched = await stage.run_with(min(WATCHED_RUN_SIMS, count))
        _, others = await stage.run_with(count - len(watched)) if count > len(watched) else ("", [])
        await _visible(stage, watched_run)
        measured = _Measured()
        tree = ProcessTree()
        measured.counts_from = time.monotonic() + RAMP_S
        plan = _Plan(filler=orjson.dumps(lines[:-1])[:-1], stop_at=measured.counts_from + seconds)
        watcher = asyncio.create_task(_watch(stage, watched_run, measured))
        sampler = asyncio.create_task(_sample(tree))
        async with asyncio.TaskGroup() as group:
            for number, sim_id in enumerate([*watched, *others]):
                group.create_task(_sim(stage, sim_id, number / count, plan, measured))
        watcher.cancel()
        sampler.cancel()
        await asyncio.gather(watcher, sampler, return_exceptions=True)
        sent_s = time.monotonic() - measured.counts_from
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
                "first_heartbeat_p99_ms": round(percentile(measured.first_heartbeats_ms, 0.99), 2),
                "line_to_sse_p50_ms": round(percentile(measured.line_to_sse_ms, 0.5), 2),
                "line_to_sse_p99_ms": round(percentile(measured.line_to_sse_ms, 0.99), 2),
                "line_to_sse_samples": len(measured.line_to_sse_ms),
                "chunk_p99_ms": round(percentile(measured.chunks_ms, 0.99), 2),
                "chunk_bytes": len(body),
                "chunks_per_s": round(chunks / sent_s, 1),
                "chunks_per_s_wanted": round(count / CHUNK_EVERY_S, 1),
                "furthest_behind_pace_s": round(measured.late_s, 2),
                "errors": measured.errors,
                "cpus_busy": round(tree.cpu_s() / tree.wall_s(), 2),
                "cpu_by_process_s": tree.cpu_by_process_s(),
                "machine": machine(),
            },
        )


async def _visible(stage: Stage, run_id: str) -> None:
    async with asyncio.timeout(60):
        while (await stage.client.get(f"/api/runs/{run_id}")).status_code != 200:  # noqa: ASYNC110 - polls a process
            await asyncio.sleep(0.05)


async def _sim(stage: Stage, sim_id: str, phase: float, plan: _Plan, measured: _Measured) -> None:
    await asyncio.sleep(phase * RAMP_S)
    next_chunk = time.monotonic()
    next_beat = next_chunk + HEARTBEAT_EVERY_S
    seq = 0
    async with Connection("127.0.0.1", stage.app.settings.port, stage.token) as connection:
        started = time.monotonic()
        status, _ = await connection.post(f"/api/sims/{sim_id}/heartbeat", b'{"state":"running"}')
        measured.first_heartbeats_ms.append((time.monotonic() - started) * 1000)
        measured.errors += status != 200
        while time.monotonic() < plan.stop_at:
            if time.monotonic() >= next_beat:
                started = time.monotonic()
                status, _ = await connection.post(f"/api/sims/{sim_id}/heartbeat", b'{"state":"running"}')
                if started >= measured.counts_from:
                    measured.heartbeats_ms.append((time.monotonic() - started) * 1000)
                measured.errors += status != 200
                next_beat += HEARTBEAT_EVERY_S
            stamp = b'"%b%f"' % (_STAMP, time.monotonic())
            started = time.monotonic()
            status, _ = await connection.post(
                f"/api/sims/{sim_id}/logs", b'{"seq":%d,"lines":%b,%b]}' % (seq, plan.filler, stamp)
            )
            if started >= measured.counts_from:
                measured.chunks_ms.append((time.monotonic() - started) * 1000)
            measured.errors += status != 204
            seq += 1
            next_chunk += CHUNK_EVERY_S
            behind = time.monotonic() - next_chunk
            if started >= measured.counts_from:
                measured.late_s = max(measured.late_s, behind)
            if behind < 0:
                await asyncio.sleep(-behind)


async def _watch(stage: Stage, run_id: str, measured: _Measured) -> None:
    async with Connection("127.0.0.1", stage.app.settings.port, stage.token) as connection:
        reader = await connection.stream(f"/api/runs/{run_id}/events")
        while True:
            event = await reader.readuntil(b"\n\n")
            # A sim's own events repeat the log's last lines; only the line's first appearance counts.
            found = event.find(_STAMP) if _LOG_EVENT in event[:64] else -1
            if found < 0:
                continue
            sent_at = float(event[found + len(_STAMP) : event.index(b'"', found)])
            if sent_at >= measured.counts_from:
                measured.line_to_sse_ms.append((time.monotonic() - sent_at) * 1000)


async def _sample(tree: ProcessTree) -> None:
    while True:
        tree.sample()
        await asyncio.sleep(1.0)
