"""The views depend on what happened, not on how it arrived: batches, repeats, late facts, crashes, rivals."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from cascade_api.read_models import database
from cascade_api.read_models.database import Database, DatabaseUnavailable
from cascade_api.read_models.projection import CheckpointMoved, Projection
from cascade_api.testing.facts import ready_trace, requested_run
from cascade_cli.embedded.testing import PostgresServer
from cascade_core.facts import AnyFact
from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.record import Recorded
from cascade_core.runs.facts import RunCancelRequested
from cascade_core.sims.facts import (
    SimFact,
    SimLaunchStarted,
    SimOutputStored,
    SimProgressed,
    SimReported,
    SimStepTimelineStored,
)
from cascade_core.sims.transitions import SimState
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from cascade_api.read_models.database import Connection, Pool

AT = datetime(2026, 11, 8, tzinfo=UTC)
RUN, SIMS = "run-000000000001", ["sim-000000000001", "sim-000000000002"]
REPLACED_BY_THE_NEXT = SimOutputStored | SimStepTimelineStored
EXAMPLES = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
Rows = dict[str, list[tuple[Any, ...]]]


def at(second: int) -> datetime:
    return AT + timedelta(seconds=second)


def story(sim_id: str) -> list[AnyFact]:
    """What happens to one sim, in order."""
    run: dict[str, Any] = {"run_id": RUN, "sim_id": sim_id}
    number = SIMS.index(sim_id)
    facts: list[AnyFact] = [SimLaunchStarted(**run, occurred_at=at(1), attempt="a")]
    facts.append(SimReported(**run, occurred_at=at(2), state=SimState.RUNNING))
    for seq in range(4):
        lines = [f"{sim_id} {seq} {line}" for line in range(8)]
        facts.append(LogAppended(**run, occurred_at=at(3 + seq), seq=seq, lines=lines))
    for index in range(3):
        stats: dict[str, float | str] = {"index": float(index), "odd": "\x00-nan\u2028"}
        facts.append(
            KernelFinished(
                **run,
                occurred_at=at(10 + index),
                index=index,
                kernel_name=f"k{index}\x00",
                gpu_sim_cycle=2**70 + index,
                stats=stats,
            )
        )
    facts.append(
        SimProgressed(**run, occurred_at=at(14), through_seq=3, kernels_done=3, partial_kernel=number or None)
    )
    facts.append(stored_file(sim_id, "a.txt", 15))
    facts.append(stored_file(sim_id, "a.txt", 16))
    facts.append(stored_file(sim_id, "b.txt", 17))
    for second in (18, 19):
        document: dict[str, Any] = {"steps": [second, 2**80], "summary": {"\x00": None}}
        facts.append(SimStepTimelineStored(**run, occurred_at=at(second), simulated=document))
    facts.append(SimReported(**run, occurred_at=at(20), state=SimState.SUCCEEDED, exit_code=0))
    facts.append(SimProgressed(**run, occurred_at=at(21), through_seq=3, kernels_done=3, final=True))
    return facts


def stored_file(sim_id: str, name: str, second: int) -> SimOutputStored:
    return SimOutputStored(
        run_id=RUN,
        sim_id=sim_id,
        occurred_at=at(second),
        name=name,
        size=second,
        content_type="text/plain",
        object_key=f"key-{second}",
    )


OPENING: list[AnyFact] = [*ready_trace("t", at=AT), requested_run(RUN, "t", sims=SIMS, at=AT)]
CLOSING: list[AnyFact] = [RunCancelRequested(run_id=RUN, occurred_at=at(30))]
WHOLE = [*OPENING, *story(SIMS[0]), *story(SIMS[1]), *CLOSING]


def recorded(facts: Sequence[AnyFact]) -> list[Recorded[AnyFact]]:
    return [Recorded(position, fact, f"id-{position}") for position, fact in enumerate(facts, 1)]


def batches(records: list[Recorded[AnyFact]], sizes: Sequence[int]) -> list[list[Recorded[AnyFact]]]:
    cut = []
    for size in (*sizes, len(records)):
        if records[:size]:
            cut.append(records[:size])
        records = records[size:]
    return cut


class Views:
    """A database of its own, emptied for each example."""

    def __init__(self, url: str) -> None:
        self._url = url

    def run(self, work: "Callable[[Pool], Awaitable[None]]") -> Rows:
        """Empty views, `work` on them, and what they hold then."""

        async def example() -> Rows:
            async with database.opened(self._url) as pool:
                await database.migrate(pool)
                await pool.execute(f"TRUNCATE {', '.join(database.VIEW_TABLES)}")
                await pool.execute("UPDATE projection_checkpoint SET position = 0")
                await work(pool)
                return {
                    table: sorted((told(row) for row in await pool.fetch(f"SELECT * FROM {table}")), key=repr)
                    for table in database.VIEW_TABLES
                }

        return asyncio.run(example())

    def of(self, facts: Sequence[AnyFact], sizes: Sequence[int] = ()) -> Rows:
        """What the views hold after these facts, in batches of these sizes."""

        async def project(pool: "Pool") -> None:
            projection = Projection(Database(pool), sims_remembered=100)
            for batch in batches(recorded(facts), sizes):
                await projection.project(batch)

        return self.run(project)


def told(row: asyncpg.Record) -> tuple[Any, ...]:
    """A row without the place in the stream, which a repeat in front of it moves."""
    return tuple(value for column, value in row.items() if column != "position")


@pytest.fixture(scope="module")
def views(postgres_server: PostgresServer) -> Views:
    return Views(postgres_server.create_database())


@pytest.fixture(scope="module")
def expected(views: Views) -> Rows:
    rows = views.of(WHOLE)
    assert len(rows["kernel_view"]) == 6
    assert len(rows["log_chunk_view"]) == 8
    assert len(rows["sim_file_view"]) == 4
    return rows


sizes = st.lists(st.integers(1, 12), max_size=12)


@EXAMPLES
@given(sizes=sizes, remembered=st.integers(0, 3))
def test_any_split_into_batches_gives_the_same_views(
    sizes: list[int], remembered: int, views: Views, expected: Rows
) -> None:
    async def project(pool: "Pool") -> None:
        projection = Projection(Database(pool), sims_remembered=remembered)
        for batch in batches(recorded(WHOLE), sizes):
            await projection.project(batch)

    assert views.run(project) == expected


@EXAMPLES
@given(data=st.data(), sizes=sizes)
def test_repeats_at_any_distance_change_nothing(
    data: st.DataObject, sizes: list[int], views: Views, expected: Rows
) -> None:
    facts = list(WHOLE)
    # A trace's observations are a state, not a history: repeating an old one after a new one is ingest's to avoid.
    # What a sim uploads is replaced by what comes after it; the gateway stores each upload once.
    repeatable = [
        fact for fact in WHOLE if fact not in OPENING[:-1] and not isinstance(fact, REPLACED_BY_THE_NEXT)
    ]
    for fact in data.draw(st.lists(st.sampled_from(repeatable), max_size=20)):
        first = facts.index(fact)
        facts.insert(data.draw(st.integers(first + 1, len(facts))), fact)
    assert views.of(facts, sizes) == expected


def in_any_order(data: st.DataObject, facts: list[AnyFact]) -> list[AnyFact]:
    """What may arrive in any order does; the sim's own reports and uploads keep theirs, with the rest between them."""
    is_report = [
        isinstance(fact, SimReported | SimLaunchStarted | SimProgressed | REPLACED_BY_THE_NEXT)
        for fact in facts
    ]
    loose = [fact for fact, report in zip(facts, is_report, strict=True) if not report]
    mixed = [fact for fact, report in zip(facts, is_report, strict=True) if report]
    for fact in data.draw(st.permutations(loose)):
        mixed.insert(data.draw(st.integers(0, len(mixed))), fact)
    return mixed


@EXAMPLES
@given(data=st.data(), sizes=sizes)
def test_late_and_reordered_facts_give_the_same_views(
    data: st.DataObject, sizes: list[int], views: Views, expected: Rows
) -> None:
    one, two = (in_any_order(data, story(sim_id)) for sim_id in SIMS)
    mixed: list[AnyFact] = []
    while one or two:
        first = data.draw(st.booleans()) if one and two else bool(one)
        mixed.append(one.pop(0) if first else two.pop(0))
    assert views.of([*OPENING, *mixed, *CLOSING], sizes) == expected


class Failing:
    """A database whose connection breaks before or after the work, as often as it is told."""

    def __init__(self, pool: "Pool", failures: list[str]) -> None:
        self._database = Database(pool)
        self._failures = failures

    @asynccontextmanager
    async def connection(self) -> "AsyncIterator[Connection]":
        when = self._failures.pop() if self._failures else "never"
        async with self._database.connection() as connection:
            if when == "before":
                raise DatabaseUnavailable("the test says so")
            yield connection
            if when == "after":
                raise DatabaseUnavailable("the test says so")


@EXAMPLES
@given(sizes=sizes, failures=st.lists(st.sampled_from(["before", "after", "never"]), max_size=16))
def test_a_crash_in_any_batch_loses_and_repeats_nothing(
    sizes: list[int], failures: list[str], views: Views, expected: Rows
) -> None:
    async def project(pool: "Pool") -> None:
        records = recorded(WHOLE)
        while True:
            projection = Projection(Failing(pool, failures), sims_remembered=100)
            try:
                position = await projection.start()
                for batch in batches(records[position:], sizes):
                    await projection.project(batch)
            except DatabaseUnavailable:
                continue
            return

    assert views.run(project) == expected


async def led(pool: "Pool", sizes: list[int]) -> int:
    """Project everything as one of several leaders; how often another one was ahead."""
    records = recorded(WHOLE)
    overtaken = 0
    while True:
        projection = Projection(Database(pool), sims_remembered=100)
        position = await projection.start()
        try:
            for batch in batches(records[position:], sizes):
                await projection.project(batch)
        except CheckpointMoved:
            overtaken += 1
        else:
            return overtaken


@EXAMPLES
@given(one=sizes, two=sizes)
def test_two_leaders_at_once_apply_no_fact_twice(
    one: list[int], two: list[int], views: Views, expected: Rows
) -> None:
    async def project(pool: "Pool") -> None:
        await asyncio.gather(led(pool, one), led(pool, two))

    assert views.run(project) == expected


def test_the_last_upload_in_the_log_is_the_file_whatever_the_clocks_say(views: Views) -> None:
    ahead, behind = stored_file(SIMS[0], "a.txt", 16), stored_file(SIMS[0], "a.txt", 15)
    timings = [
        SimStepTimelineStored(
            run_id=RUN,
            sim_id=SIMS[0],
            occurred_at=at(second),
            simulated={"steps": [], "summary": {"n": second}},
        )
        for second in (16, 15)
    ]
    for sizes in ([], [len(OPENING) + 1]):  # in one batch, and in two
        for first, second in ((ahead, behind), timings):
            rows = views.of([*OPENING, first, second], sizes)
            assert rows == views.of([*OPENING, second])


def test_the_story_has_every_kind_of_fact_about_a_sim() -> None:
    told_of = {type(fact) for fact in WHOLE if isinstance(fact, SimFact)}
    assert {LogAppended, KernelFinished, SimReported, SimProgressed, SimOutputStored} <= told_of
