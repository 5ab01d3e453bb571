"""How a scenario finds sims to build on: which ones, and without looking at every run there is."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cascade_api.read_models import codec, database
from cascade_api.read_models.database import Database
from cascade_api.scenarios import sims
from cascade_core.runs.facts import RunEntry
from cascade_core.runs.state import Run
from cascade_core.sims.transitions import SimState

if TYPE_CHECKING:
    from cascade_api.read_models.database import Pool

CONFIG, OTHER_CONFIG = "SM90_H100", "SM80_A100"
STATES = (*SimState, SimState.SUCCEEDED)
ACTIVE = (SimState.PENDING, SimState.LAUNCHING, SimState.RUNNING)
TRACES, RUNS_EACH = 50, 8
INSERT_RUN = "INSERT INTO run_view (run_id, created_at, position, state) VALUES ($1, $2, $3, $4)"
INSERT_SIM = """
INSERT INTO sim_view (sim_id, run_id, gpu_config, replica, sim_state, archived, parsed, state)
VALUES ($1, $2, $3, $4, $5, true, true, '{}')
"""
INSERT_TIMELINE = "INSERT INTO step_timeline_view (sim_id, simulated, stored_at) VALUES ($1, '', now())"
HOSTILE_IDS = [
    'a","created_at":"b',
    ',"created_at":',
    'x","trace_id":"y',
    '"trace_id":',
    "back\\slash and 'quotes'",
    "nul \x00, bell \x07, tab \t, \x1f \x7f / <&>",
    "\u2028 \u0085 \U0001f600 ß",
    "dots.and*stars>and blanks",
    "long " * 1000,
]
"""Each begins with nothing of its neighbours, and some hold what the id is cut out by."""


@pytest.fixture
async def pool(postgres_url: str) -> AsyncIterator["Pool"]:
    """Empty views in a database of their own."""
    async with database.opened(postgres_url) as opened:
        await database.migrate(opened)
        yield opened


async def _store(pool: "Pool", number: int, trace_id: str) -> str:
    """A run with one sim of each state on each config; those of an odd replica sent step timing."""
    created = datetime(2026, 11, 8, tzinfo=UTC) + timedelta(seconds=number)
    entries = (RunEntry(gpu_config=CONFIG, count=1),)
    run = Run(f"run-{number:012x}", trace_id, created, entries, kernels_total=1)
    await pool.execute(INSERT_RUN, run.run_id, created, number, codec.encode_run(run))
    rows = [
        (f"sim-{number:06x}{place:03x}{replica:03x}", run.run_id, config, replica, state.value)
        for place, config in enumerate((CONFIG, OTHER_CONFIG))
        for replica, state in enumerate(STATES)
    ]
    await pool.executemany(INSERT_SIM, rows)
    await pool.executemany(INSERT_TIMELINE, [(row[0],) for row in rows if row[3] % 2])
    return run.run_id


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


async def test_sims_that_are_under_way_or_gave_timing_are_found_the_newest_run_first(pool: "Pool") -> None:
    older, _, newer = [await _store(pool, number, trace_id) for number, trace_id in enumerate("aba")]
    found = await sims.candidates(Database(pool), "a", CONFIG)
    wanted = [
        state
        for replica, state in enumerate(STATES)
        if state in ACTIVE or (state is SimState.SUCCEEDED and replica % 2)
    ]
    assert {*wanted} == {*ACTIVE, SimState.SUCCEEDED}
    assert [(sim.run_id, sim.state) for sim in found] == [
        (run_id, state) for run_id in (newer, older) for state in wanted
    ]
    assert await sims.candidates(Database(pool), "a", "SM00_NONE") == []


async def test_a_run_is_found_by_its_trace_whatever_that_is_called(pool: "Pool") -> None:
    runs = {
        trace_id: await _store(pool, number, trace_id)
        for number, trace_id in enumerate([*HOSTILE_IDS, "", "a"])
    }
    for trace_id, run_id in runs.items():
        found = await sims.candidates(Database(pool), trace_id, CONFIG)
        assert {sim.run_id for sim in found} == {run_id}, trace_id[:40]


async def test_a_document_of_another_form_is_stored_and_not_found(pool: "Pool") -> None:
    # A projector must never stop at a row that it cannot write.
    for number, document in enumerate(
        [b"", b"{}", b'{"created_at":1,"trace_id":"a"}', b'"trace_id":', b"\x00\xff"]
    ):
        await pool.execute(INSERT_RUN, f"run-{number:012x}", datetime.now(UTC), number, document)
    assert await sims.candidates(Database(pool), "a", CONFIG) == []


async def test_the_lookup_goes_by_indices_and_reads_no_run_of_another_trace(pool: "Pool") -> None:
    for number in range(TRACES * RUNS_EACH):
        await _store(pool, number, f"trace {number % TRACES}")
    await pool.execute("ANALYZE run_view, sim_view, step_timeline_view")
    async with pool.acquire() as connection, connection.transaction():
        # With so few rows, the planner may prefer to read all of a table.
        await connection.execute("SET LOCAL enable_seqscan = off")
        explained = await connection.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {sims.CANDIDATES}",
            *(CONFIG, [state.value for state in ACTIVE], sims.trace_json("trace 7")),
        )
    by_index = {
        node["Index Name"]: node for node in _nodes(json.loads(explained)[0]["Plan"]) if "Index Name" in node
    }
    assert {"run_view_by_trace", "sim_view_by_run"} <= by_index.keys()
    assert "trace_json = " in by_index["run_view_by_trace"]["Index Cond"]
    assert by_index["run_view_by_trace"]["Actual Rows"] == RUNS_EACH
    assert "gpu_config = " in by_index["sim_view_by_run"]["Index Cond"]
    assert by_index["sim_view_by_run"]["Actual Loops"] == RUNS_EACH
