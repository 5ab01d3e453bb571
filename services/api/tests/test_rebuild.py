"""A rebuild gives the same views, beside a gateway that goes on serving; so does one after archive and purge."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from cascade_api import archiver
from cascade_api.read_models import database
from cascade_api.read_models.rebuild import RebuildUnderWay, rebuild
from cascade_api.testing.client import Client, eventually
from cascade_api.testing.running import RunningApi
from cascade_api.testing.servers import Servers
from cascade_api.testing.simulator import Simulator
from cascade_core import subjects
from cascade_core.jetstream.claim_check import MOST_INLINE_BYTES
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.settings import NatsSettings
from cascade_core.sims.facts import SimProgressed, SimReported, SimWentSilent
from cascade_core.sims.transitions import SimState

LOG = Path(__file__).parent / "cases" / "log-two-sim-rates" / "sim.log"
LONGEST_QUERY_S = 5.0
"""In the tests about what takes longer than a query may. [s]"""
TABLES = (*database.VIEW_TABLES, "projection_checkpoint")


def tables(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every view, sorted."""

    async def read() -> dict[str, list[tuple[Any, ...]]]:
        connection = await asyncpg.connect(url)
        try:
            return {
                table: sorted(
                    (tuple(row) for row in await connection.fetch(f"SELECT * FROM {table}")), key=repr
                )
                for table in TABLES
            }
        finally:
            await connection.close()

    return asyncio.run(read())


def rebuilt(servers: Servers) -> tuple[int, list[tuple[int, int]]]:
    """Rebuild as the command line does; the number of facts and what was reported on the way."""
    reported: list[tuple[int, int]] = []

    async def run() -> int:
        async with (
            connected(NatsSettings(nats_url=servers.nats_url), name="rebuild") as client,
            database.opened(servers.database_url) as pool,
        ):
            return await rebuild(pool, JetStreamLog(client), lambda done, most: reported.append((done, most)))

    return asyncio.run(run()), reported


def is_purged(api: RunningApi, subject: str) -> bool:
    return api.call(api.gateway.log.last(subject)) is None


def settled(api: RunningApi) -> None:
    """Wait until the views hold everything that is in the log."""
    last = api.call(api.gateway.log.newest([subjects.ALL]))
    api.call(api.gateway.gate.passed(last))


def ended_sims(client: Client, run_ids: list[str]) -> list[tuple[str, str]]:
    """`(run id, sim id)` of each sim that came to an end."""
    return [
        (run_id, sim["id"])
        for run_id in run_ids
        for sim in client.body(f"/api/runs/{run_id}")["sims"]
        if sim["state"] in ("succeeded", "failed", "cancelled")
    ]


def parsed(client: Client, run_ids: list[str]) -> None:
    """Wait for the parser's last word about each sim that has ended, and for the views to hold it."""
    gateway = client.api.gateway

    def is_parsed(sim_id: str) -> bool:
        at_least = gateway.gate.position
        return client.api.call(gateway.sims.current(sim_id, at_least=at_least)).parsed_to_end

    for _, sim_id in ended_sims(client, run_ids):
        eventually(partial(is_parsed, sim_id), what=f"the end of parsing {sim_id}")
    settled(client.api)


def filled(client: Client) -> list[str]:
    """Runs in every state, with logs, kernels, files and step timing; their ids."""
    lines = LOG.read_text().split("\n")
    done = client.new_live_run(count=2)
    for sim in done["sims"]:
        client.beat(sim["id"])
        client.beat(sim["id"])
        client.send_log(sim["id"], 1, lines[40:])
        client.send_log(sim["id"], 0, lines[:40])
        client.send_log(sim["id"], 1, ["a repeat with other content"])
        client.put(f"/api/sims/{sim['id']}/files/a.txt", content=b"one")
        client.put(f"/api/sims/{sim['id']}/files/a.txt", content=b"two")
        timing = {"simulated": {"steps": [1, 2**70], "summary": {"é": "\x00"}}}
        client.post(f"/api/sims/{sim['id']}/step-timeline", json=timing)
        client.beat(sim["id"], "succeeded", exit_code=0)
    cancelled = client.new_live_run(count=3)
    client.beat(cancelled["sims"][0]["id"])
    client.send_log(cancelled["sims"][0]["id"], 0, ["cut off"])
    client.post(f"/api/runs/{cancelled['id']}/cancel")
    second = client.new_live_run()
    mixed = second["sims"][0]["id"]
    client.beat(mixed)
    client.send_log(mixed, 0, ["first start"])
    client.send_log(mixed, 0, ["second start"])
    client.beat(mixed, "succeeded")
    lost = client.new_live_run()
    client.beat(lost["sims"][0]["id"])
    now = datetime.now(UTC)
    client.store(
        SimWentSilent(run_id=lost["id"], sim_id=lost["sims"][0]["id"], occurred_at=now, heartbeat_seen_at=now)
    )
    client.new_run()
    return [run["id"] for run in (done, cancelled, second, lost)]


def answers(client: Client, run_ids: list[str]) -> dict[str, Any]:
    """Everything that the routes tell of some runs."""
    told: dict[str, Any] = {}
    for run_id in run_ids:
        for rest in ("", "/kernels", "/comparison", "/results", "/files", "/step-timelines", "/perfetto"):
            told[f"{run_id}{rest}"] = client.body(f"/api/runs/{run_id}{rest}")
        for sim in told[run_id]["sims"]:
            told[f"{sim['id']}/log"] = client.get(f"/api/sims/{sim['id']}/log").text
            told[f"{sim['id']}/files"] = client.body(f"/api/sims/{sim['id']}/files")
    told["runs"] = client.body("/api/runs")
    told["traces"] = client.body("/api/traces")
    return told


@pytest.fixture
def archiving(monkeypatch: pytest.MonkeyPatch, own_servers: Servers) -> Iterator[RunningApi]:
    """A gateway that archives the log of a sim as soon as it has ended."""
    monkeypatch.setattr(archiver, "ROUND_EVERY_S", 0.05)
    with RunningApi(own_servers.settings(archive_after_s=0)) as api:
        yield api


def test_a_rebuild_gives_identical_tables(own_servers: Servers, parser_on: Any) -> None:
    with RunningApi(own_servers.settings()) as api, parser_on(own_servers), Client(api) as client:
        run_ids = filled(client)
        parsed(client, run_ids)
        before, told = tables(own_servers.database_url), answers(client, run_ids)
        facts, reported = rebuilt(own_servers)
        assert facts > 30
        assert reported[-1][0] == reported[-1][1]
        assert tables(own_servers.database_url) == before
        assert answers(client, run_ids) == told
        _, sim_id = client.new_sim()  # the gateway goes on as if nothing had been
        assert client.beat(sim_id)["state"] == "running"


def test_nothing_is_missing_while_a_rebuild_runs_under_load(own_servers: Servers) -> None:
    with RunningApi(own_servers.settings()) as api, Client(api) as client:
        run_id, sim_id = client.new_sim()
        with Simulator([api], sim_id, reads=f"/api/runs/{run_id}") as simulator:
            eventually(lambda: simulator.acknowledged > 20)
            for _ in range(3):
                rebuilt(own_servers)
        assert simulator.wrong == []
        settled(api)
        assert client.log(sim_id) == simulator.log
        before = tables(own_servers.database_url)
        rebuilt(own_servers)
        assert tables(own_servers.database_url) == before


def test_only_one_rebuild_runs_at_a_time(own_servers: Servers) -> None:
    async def run() -> None:
        async with (
            connected(NatsSettings(nats_url=own_servers.nats_url), name="rebuild") as client,
            database.opened(own_servers.database_url) as pool,
            pool.acquire() as other,
        ):
            await other.execute("SELECT pg_advisory_lock($1)", 0x0CA5CAE0)
            with pytest.raises(RebuildUnderWay):
                await rebuild(pool, JetStreamLog(client), lambda *_: None)

    with RunningApi(own_servers.settings()):
        asyncio.run(run())


def test_an_empty_log_rebuilds_to_empty_views(own_servers: Servers) -> None:
    with RunningApi(own_servers.settings()):
        before = tables(own_servers.database_url)
        assert rebuilt(own_servers) == (0, [])
        assert tables(own_servers.database_url) == before


def test_archive_purge_and_rebuild_change_no_answer(
    archiving: RunningApi, own_servers: Servers, parser_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "ROUND_EVERY_S", 3600)
    with Client(archiving) as client, parser_on(own_servers):
        run_ids = filled(client)
        parsed(client, run_ids)
        told = answers(client, run_ids)
        assert any(text.startswith("GPGPU-Sim") or text for key, text in told.items() if key.endswith("/log"))
    archiving.stop()

    monkeypatch.setattr(archiver, "ROUND_EVERY_S", 0.05)
    with RunningApi(own_servers.settings(archive_after_s=0)) as api, Client(api) as client:
        ended = ended_sims(client, run_ids)
        assert len(ended) == 6
        for run_id, sim_id in ended:
            for subject in (subjects.log_of(run_id, sim_id), subjects.beats_of(run_id, sim_id)):
                eventually(partial(is_purged, api, subject), what=subject)
        assert answers(client, run_ids) == told
        settled(api)
        before = tables(own_servers.database_url)
        rebuilt(own_servers)
        assert tables(own_servers.database_url) == before
        assert answers(client, run_ids) == told


def test_a_log_that_somebody_else_archived_is_not_archived_over(archiving: RunningApi) -> None:
    with Client(archiving) as client:
        run_id, sim_id = client.new_sim()
        client.beat(sim_id)
        client.send_log(sim_id, 0, ["kept"])
        gateway = archiving.gateway
        stale = archiving.call(gateway.sims.current(sim_id, at_least=gateway.gate.position))
        archiving.call(archiver.archive(gateway, stale))  # set aside by the fold: the sim is still running
        assert client.get(f"/api/sims/{sim_id}/log").text == "kept\n"
        archiving.call(gateway.log.purge(subjects.log_of(run_id, sim_id)))
        reply = client.get(f"/api/sims/{sim_id}/log")
        assert reply.status_code == 503
        assert "is being moved" in reply.json()["detail"]


@pytest.mark.parametrize("damage", ["chunk gone", "claim gone"])
def test_a_log_that_cannot_be_archived_holds_up_no_other(
    damage: str, archiving: RunningApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "MOST_PER_ROUND", 1)
    gateway = archiving.gateway

    async def break_log(subject: str) -> None:
        if damage == "chunk gone":
            await gateway.log.purge(subject)
        else:
            for claim in await gateway.log._claims.of_subject(subject):
                await gateway.log._claims.drop(claim)

    with Client(archiving) as client:
        run_id, sim_id = client.new_sim()
        client.send_log(sim_id, 0, ["x" * 2 * MOST_INLINE_BYTES])
        settled(archiving)
        archiving.call(break_log(subjects.log_of(run_id, sim_id)))
        end(client, run_id, sim_id)
        for _ in range(2):
            other_run, other = client.new_sim()
            client.send_log(other, 0, ["kept"])
            end(client, other_run, other)
            subject = subjects.log_of(other_run, other)
            eventually(partial(is_purged, archiving, subject), what="the end of the log in the stream")
        broken = archiving.call(gateway.sims.current(sim_id, at_least=gateway.gate.position))
        assert broken.archive_key is None
        assert archiving.alive


def end(client: Client, run_id: str, sim_id: str) -> None:
    """The sim has succeeded and its log is parsed, though no parser runs."""
    ids: dict[str, Any] = {"run_id": run_id, "sim_id": sim_id, "occurred_at": datetime.now(UTC)}
    client.store(
        SimReported(**ids, state=SimState.SUCCEEDED),
        SimProgressed(**ids, through_seq=0, kernels_done=0, final=True),
    )


def test_what_takes_longer_than_a_query_is_waited_for(
    own_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "COMMAND_TIMEOUT_S", LONGEST_QUERY_S)
    slow = f"SELECT pg_sleep({LONGEST_QUERY_S + 1})"
    known = database.migrations()

    async def migrated() -> tuple[list[str], list[str]]:
        async with database.opened(own_servers.database_url) as pool:
            # One applies it and the other waits for the lock: both for longer than a query may take.
            return await asyncio.gather(database.migrate(pool), database.migrate(pool))

    monkeypatch.setattr(database, "migrations", lambda: [*known, ("9999_slow.sql", slow)])
    applied = asyncio.run(migrated())
    assert sorted(applied, key=len) == [[], [*(name for name, _ in known), "9999_slow.sql"]]


def test_a_rebuild_waits_for_long_reads_before_it_swaps(
    own_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningApi(own_servers.settings()) as api, Client(api) as client:
        run_id, _ = client.new_sim()
    monkeypatch.setattr(database, "COMMAND_TIMEOUT_S", LONGEST_QUERY_S)

    async def run() -> int:
        reader = await asyncpg.connect(own_servers.database_url)
        async with (
            connected(NatsSettings(nats_url=own_servers.nats_url), name="rebuild") as nats,
            database.opened(own_servers.database_url) as pool,
        ):
            reading = reader.transaction()
            await reading.start()
            await reader.execute("SELECT count(*) FROM sim_view")
            rebuilding = asyncio.create_task(rebuild(pool, JetStreamLog(nats), lambda *_: None))
            while not await reader.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                assert not rebuilding.done()
            await asyncio.sleep(LONGEST_QUERY_S + 1)  # for longer than a query may take
            await reading.rollback()
            await reader.close()
            return await rebuilding

    assert asyncio.run(run()) > 0
    with RunningApi(own_servers.settings()) as api, Client(api) as client:
        assert client.body(f"/api/runs/{run_id}")["state"] == "active"
