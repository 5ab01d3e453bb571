"""The statements that write a batch: set-based, named, with parameters. Idempotent where facts may repeat."""

import re
from typing import TYPE_CHECKING

import asyncpg

from cascade_api.read_models import codec
from cascade_api.read_models.batch import Batch
from cascade_api.wire.traces import summary_of

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Writer = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]


def _numbered(statement: str, before: int) -> str:
    """The statement as a part of a larger one, behind `before` parameters."""
    return re.sub(r"\$(\d+)", lambda found: f"${int(found[1]) + before}", statement)


CHECKPOINT = "SELECT position FROM projection_checkpoint WHERE projection = 'views'"
MOVE_CHECKPOINT = """
WITH moved AS (
    UPDATE projection_checkpoint SET position = $2 WHERE projection = 'views' AND position = $1 RETURNING position
)
SELECT pg_notify('cascade_projected', position::text) IS NOT NULL FROM moved
"""
# Compare-and-set: a leader that was paused finds the checkpoint moved on, writes nothing and starts over. Whoever
# waits for a position hears of it with the commit.
SIMS_OF = """
SELECT sim_id, run_id, state FROM sim_view WHERE sim_id = ANY($1::text[]) OR run_id = ANY($2::text[])
"""
TRACES_OF = "SELECT trace_token, state FROM trace_view WHERE trace_token = ANY($1::text[])"

UPSERT_SIMS = """
INSERT INTO sim_view (sim_id, run_id, gpu_config, replica, sim_state, finished_at, archived, parsed, state)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::text[], $6::timestamptz[], $7::bool[],
                     $8::bool[], $9::bytea[])
ON CONFLICT (sim_id) DO UPDATE SET sim_state = excluded.sim_state, finished_at = excluded.finished_at,
    archived = excluded.archived, parsed = excluded.parsed, state = excluded.state
"""
INSERT_RUNS = """
INSERT INTO run_view (run_id, created_at, position, state)
SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::bytea[])
ON CONFLICT (run_id) DO NOTHING
"""
UPSERT_TRACES = """
INSERT INTO trace_view (trace_token, created_at, removed, summary, state)
SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::bool[], $4::bytea[], $5::bytea[])
ON CONFLICT (trace_token) DO UPDATE SET created_at = excluded.created_at, removed = excluded.removed,
    summary = excluded.summary, state = excluded.state
"""
INSERT_KERNELS = """
INSERT INTO kernel_view (sim_id, kernel_index, kernel_name, sim_time_ns, head, stats)
SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::float8[], $5::bytea[], $6::bytea[])
ON CONFLICT (sim_id, kernel_index) DO NOTHING
"""
INSERT_CHUNKS = """
INSERT INTO log_chunk_view (sim_id, seq, position)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])
ON CONFLICT (sim_id, seq) DO NOTHING
"""
DELETE_CHUNKS = "DELETE FROM log_chunk_view WHERE sim_id = ANY($1::text[])"
UPSERT_FILES = """
INSERT INTO sim_file_view (sim_id, name, size, content_type, created_at, object_key)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::timestamptz[], $6::text[])
ON CONFLICT (sim_id, name) DO UPDATE SET size = excluded.size, content_type = excluded.content_type,
    created_at = excluded.created_at, object_key = excluded.object_key
"""
UPSERT_STEP_TIMELINES = """
INSERT INTO step_timeline_view (sim_id, simulated, compare, stored_at)
SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::timestamptz[])
ON CONFLICT (sim_id) DO UPDATE SET simulated = excluded.simulated, compare = excluded.compare,
    stored_at = excluded.stored_at
"""


WRITE_USUAL = f"""
WITH moved AS (
    UPDATE projection_checkpoint SET position = $2 WHERE projection = 'views' AND position = $1 RETURNING position
), sims AS ({_numbered(UPSERT_SIMS, 2)}), kernels AS ({_numbered(INSERT_KERNELS, 11)}), chunks AS (
    {_numbered(INSERT_CHUNKS, 17)}
)
SELECT pg_notify('cascade_projected', (coalesce(max(position), 1) / count(*))::text) IS NOT NULL FROM moved
"""  # noqa: S608 - made of the statements above
# What nearly every batch holds, in one statement and so one round trip: on a busy event loop each one costs as much as
# all requests that are ready to go on. A checkpoint that has moved on divides by zero, which takes everything back.


async def write(connection: "Writer", batch: Batch, *, after: int, until: int) -> bool:
    """Write everything that the batch changed and move the checkpoint, or do nothing and return False."""
    if batch.is_usual:
        try:
            await connection.fetchval(
                WRITE_USUAL,
                after,
                until,
                *_sim_columns(batch),
                *_kernel_columns(batch),
                *_chunk_columns(batch),
            )
        except asyncpg.DivisionByZeroError:
            return False
        return True
    async with connection.transaction():
        # First, so that a rival waits here and not in the middle.
        if not await connection.fetchval(MOVE_CHECKPOINT, after, until):
            return False
        await _write_all(connection, batch)
    return True


async def _write_all(connection: "Writer", batch: Batch) -> None:
    await _write_traces(connection, batch)
    await _write_runs(connection, batch)
    if batch.changed_sims:
        await connection.execute(UPSERT_SIMS, *_sim_columns(batch))
    if batch.kernels:
        await connection.execute(INSERT_KERNELS, *_kernel_columns(batch))
    if batch.chunks:
        await connection.execute(INSERT_CHUNKS, *_chunk_columns(batch))
    if batch.archived:
        await connection.execute(DELETE_CHUNKS, list(batch.archived))
    await _write_files(connection, batch)
    await _write_step_timelines(connection, batch)


def _sim_columns(batch: Batch) -> tuple[list[object], ...]:
    sims = [batch.sims[sim_id] for sim_id in sorted(batch.changed_sims)]
    return (
        [sim.sim_id for sim in sims],
        [sim.run_id for sim in sims],
        [sim.gpu_config for sim in sims],
        [sim.replica for sim in sims],
        [sim.state.value for sim in sims],
        [sim.finished_at for sim in sims],
        [sim.archive_key is not None for sim in sims],
        [sim.parsed_to_end for sim in sims],
        [codec.encode_sim(sim) for sim in sims],
    )


def _kernel_columns(batch: Batch) -> tuple[list[object], ...]:
    rows = batch.kernels.values()
    return (
        [row.sim_id for row in rows],
        [row.kernel_index for row in rows],
        [row.kernel_name for row in rows],
        [row.sim_time_ns for row in rows],
        [row.head for row in rows],
        [row.stats for row in rows],
    )


def _chunk_columns(batch: Batch) -> tuple[list[object], ...]:
    return (
        [sim_id for sim_id, _ in batch.chunks],
        [seq for _, seq in batch.chunks],
        list(batch.chunks.values()),
    )


async def _write_files(connection: "Writer", batch: Batch) -> None:
    if not batch.files:
        return
    files = batch.files.values()
    await connection.execute(
        UPSERT_FILES,
        [file.sim_id for file in files],
        [file.name for file in files],
        [file.size for file in files],
        [file.content_type for file in files],
        [file.created_at for file in files],
        [file.object_key for file in files],
    )


async def _write_step_timelines(connection: "Writer", batch: Batch) -> None:
    if not batch.step_timelines:
        return
    rows = batch.step_timelines.values()
    await connection.execute(
        UPSERT_STEP_TIMELINES,
        list(batch.step_timelines),
        [row.simulated for row in rows],
        [row.compare for row in rows],
        [row.stored_at for row in rows],
    )


async def _write_traces(connection: "Writer", batch: Batch) -> None:
    if not batch.changed_traces:
        return
    traces = [(token, batch.traces[token]) for token in sorted(batch.changed_traces)]
    await connection.execute(
        UPSERT_TRACES,
        [token for token, _ in traces],
        [trace.created_at for _, trace in traces],
        [trace.removed for _, trace in traces],
        [summary_of(trace).model_dump_json().encode() for _, trace in traces],
        [codec.encode_trace(trace) for _, trace in traces],
    )


async def _write_runs(connection: "Writer", batch: Batch) -> None:
    if not batch.new_runs:
        return
    await connection.execute(
        INSERT_RUNS,
        list(batch.new_runs),
        [run.created_at for _, run in batch.new_runs.values()],
        [position for position, _ in batch.new_runs.values()],
        [codec.encode_run(run) for _, run in batch.new_runs.values()],
    )
