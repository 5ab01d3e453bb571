"""Reading the views. Every function is one question of a route; rows become states here and nowhere else."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from cascade_core.errors import NotFound
from cascade_core.ids import trace_token
from cascade_core.runs.state import Run
from cascade_core.sims.state import Sim
from cascade_core.sims.transitions import SimState
from cascade_core.traces.state import Trace

from cascade_api.read_models import codec
from cascade_api.read_models.batch import FileRow
from cascade_api.read_models.database import Reader
from cascade_api.read_models.writes import CHECKPOINT
from cascade_api.text import without_nul

KERNELS_PER_FETCH = 200


@dataclass(frozen=True, slots=True)
class KernelTime:
    """What the comparison needs of a kernel."""

    sim_id: str
    kernel_index: int
    kernel_name: str
    sim_time_ns: float | None


async def checkpoint(db: Reader) -> int:
    """The last position that the views contain."""
    return int(await db.fetchval(CHECKPOINT))


async def trace_summaries(db: Reader) -> list[bytes]:
    """Every trace's summary as JSON, newest first."""
    rows = await db.fetch(
        "SELECT summary FROM trace_view WHERE NOT removed ORDER BY created_at DESC, trace_token"
    )
    return [row["summary"] for row in rows]


async def trace(db: Reader, trace_id: str) -> Trace:
    """One trace that is still there. Raises NotFound."""
    found = await _trace(db, trace_id)
    if found is None or found.removed:
        raise NotFound(f"trace {trace_id} not found")
    return found


async def trace_of_run(db: Reader, run: Run) -> Trace:
    """The run's trace, even if it was removed since."""
    found = await _trace(db, run.trace_id)
    if found is None:
        raise NotFound(f"trace {run.trace_id} not found")
    return found


async def _trace(db: Reader, trace_id: str) -> Trace | None:
    document = await db.fetchval("SELECT state FROM trace_view WHERE trace_token = $1", trace_token(trace_id))
    return codec.decode_trace(document) if document is not None else None


async def run(db: Reader, run_id: str) -> Run:
    """One run. Raises NotFound."""
    document = await db.fetchval("SELECT state FROM run_view WHERE run_id = $1", without_nul(run_id))
    if document is None:
        raise NotFound(f"run {run_id} not found")
    return codec.decode_run(document)


async def runs(db: Reader) -> list[tuple[Run, list[SimState], set[str]]]:
    """Every run with its sims' states and what made their numbers, newest first."""
    rows = await db.fetch(
        "SELECT run_view.state AS state, counts.states AS states, counts.engines AS engines FROM run_view LEFT JOIN ("
        " SELECT run_id, array_agg(sim_state) AS states, array_agg(DISTINCT engine_json) AS engines"
        " FROM sim_view GROUP BY run_id"
        ") counts USING (run_id) ORDER BY created_at DESC, position DESC"
    )
    return [
        (
            codec.decode_run(row["state"]),
            [SimState(state) for state in row["states"] or []],
            {engine for engine in map(codec.decode_engine, row["engines"] or []) if engine is not None},
        )
        for row in rows
    ]


async def sims_of_run(db: Reader, run_id: str) -> list[Sim]:
    """The run's sims, by config and then replica."""
    rows = await db.fetch(
        'SELECT state FROM sim_view WHERE run_id = $1 ORDER BY gpu_config COLLATE "C", replica, sim_id',
        run_id,
    )
    return [codec.decode_sim(row["state"]) for row in rows]


async def sim(db: Reader, sim_id: str) -> Sim:
    """One sim. Raises NotFound."""
    document = await db.fetchval("SELECT state FROM sim_view WHERE sim_id = $1", without_nul(sim_id))
    if document is None:
        raise NotFound(f"sim {sim_id} not found")
    return codec.decode_sim(document)


async def kernel_stats(db: Reader, sims: Sequence[Sim]) -> list[bytes]:
    """KernelStat JSON with an empty stats map, in the order of `sims`, then by kernel."""
    rows = await db.fetch(
        "SELECT sim_id, kernel_index, head FROM kernel_view"
        " JOIN unnest($1::text[]) WITH ORDINALITY AS wanted (sim_id, place)"
        " USING (sim_id) ORDER BY place, kernel_index",
        [sim.sim_id for sim in sims],
    )
    cut = {sim.sim_id: sim.partial_kernel for sim in sims}
    return [
        _kernel_stat(row["head"], b"{}", partial=cut[row["sim_id"]] == row["kernel_index"]) for row in rows
    ]


async def kernels_with_stats(db: Reader, sim: Sim) -> AsyncIterator[bytes]:
    """KernelStat JSON with the full stats map of one sim's kernels, a bounded number in memory."""
    after = -1
    while True:
        rows = await db.fetch(
            "SELECT kernel_index, head, stats FROM kernel_view WHERE sim_id = $1 AND kernel_index > $2"
            " ORDER BY kernel_index LIMIT $3",
            sim.sim_id,
            after,
            KERNELS_PER_FETCH,
        )
        for row in rows:
            partial = sim.partial_kernel == row["kernel_index"]
            yield _kernel_stat(row["head"], codec.decompress(row["stats"]), partial=partial)
        if len(rows) < KERNELS_PER_FETCH:
            return
        after = rows[-1]["kernel_index"]


def _kernel_stat(head: bytes, stats: bytes, *, partial: bool) -> bytes:
    # That a limit cut a kernel is known only after its block was read, so it is no part of the kernel's row.
    return b'%b,"stats":%b%b}' % (head[:-1], stats, b',"partial":true' if partial else b"")


async def kernel_times(db: Reader, sim_ids: Sequence[str]) -> list[KernelTime]:
    """The times of the given sims' kernels, by kernel, then in the order of `sim_ids`."""
    rows = await db.fetch(
        "SELECT sim_id, kernel_index, kernel_name, sim_time_ns FROM kernel_view"
        " JOIN unnest($1::text[]) WITH ORDINALITY AS wanted (sim_id, place) USING (sim_id)"
        " ORDER BY kernel_index, place",
        list(sim_ids),
    )
    return [KernelTime(*row) for row in rows]


async def log_positions(db: Reader, sim_id: str) -> list[int]:
    """Where the sim's chunks lie in the stream, in `seq` order."""
    rows = await db.fetch("SELECT position FROM log_chunk_view WHERE sim_id = $1 ORDER BY seq", sim_id)
    return [row["position"] for row in rows]


async def files(db: Reader, sim_ids: Sequence[str]) -> list[FileRow]:
    """The given sims' output files, in the order of `sim_ids`, then by name."""
    rows = await db.fetch(
        "SELECT sim_id, name, size, content_type, created_at, object_key FROM sim_file_view"
        " JOIN unnest($1::text[]) WITH ORDINALITY AS wanted (sim_id, place) USING (sim_id)"
        ' ORDER BY place, name COLLATE "C"',
        list(sim_ids),
    )
    return [FileRow(*row) for row in rows]


async def step_timeline(db: Reader, sim_id: str) -> tuple[bytes, bytes | None] | None:
    """`(simulated, compare)` of a sim that sent step timing, zstd JSON for `codec.pieces`."""
    rows = await db.fetch("SELECT simulated, compare FROM step_timeline_view WHERE sim_id = $1", sim_id)
    return (rows[0]["simulated"], rows[0]["compare"]) if rows else None


async def sims_to_archive(db: Reader, *, finished_before_s: float, most: int) -> list[Sim]:
    """Ended and fully parsed sims whose log still lies in the stream, oldest first."""
    rows = await db.fetch(
        "SELECT state FROM sim_view WHERE NOT archived AND parsed AND finished_at < now() - make_interval(secs => $1)"
        " ORDER BY finished_at LIMIT $2",
        finished_before_s,
        most,
    )
    return [codec.decode_sim(row["state"]) for row in rows]


async def chunk_numbers(db: Reader, sim_ids: Sequence[str]) -> dict[str, list[int]]:
    """The chunk numbers stored for each of the given sims, ascending."""
    rows = await db.fetch(
        "SELECT sim_id, array_agg(seq ORDER BY seq) AS seqs FROM log_chunk_view WHERE sim_id = ANY($1::text[])"
        " GROUP BY sim_id",
        list(sim_ids),
    )
    return {row["sim_id"]: list(row["seqs"]) for row in rows}


async def kernel_counts(db: Reader, sim_ids: Sequence[str]) -> dict[str, int]:
    """One more than the highest kernel index stored for each of the given sims."""
    rows = await db.fetch(
        "SELECT sim_id, max(kernel_index) + 1 AS done FROM kernel_view WHERE sim_id = ANY($1::text[]) GROUP BY sim_id",
        list(sim_ids),
    )
    return {row["sim_id"]: row["done"] for row in rows}


async def sims_by_state(db: Reader) -> dict[str, int]:
    """How many sims are in each state; states without any are left out. Answered by an index."""
    rows = await db.fetch("SELECT sim_state, count(*) AS sims FROM sim_view GROUP BY sim_state")
    return {row["sim_state"]: row["sims"] for row in rows}


async def sims_by_id(db: Reader, sim_ids: Sequence[str]) -> list[Sim]:
    """The given sims that exist, in no particular order."""
    rows = await db.fetch("SELECT state FROM sim_view WHERE sim_id = ANY($1::text[])", list(sim_ids))
    return [codec.decode_sim(row["state"]) for row in rows]
