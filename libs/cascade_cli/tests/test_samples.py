"""Seeding and replaying on a real log and real buckets."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
import zstandard
from cascade_cli import bundled
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_cli.embedded.process import free_ports
from cascade_cli.embedded.s3_requests import S3Access
from cascade_cli.sample_facts import RUNS, TRACES
from cascade_cli.sample_replay import Replayer
from cascade_cli.samples import SIDE_FILES, Seeder
from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.record import Appended
from cascade_core.runs.facts import PlannedSim, RunEntry, RunRequested
from cascade_core.s3 import bucket as s3
from cascade_core.s3.bucket import S3Bucket
from cascade_core.settings import BucketSettings, NatsSettings
from cascade_core.sims.facts import SimLaunchFailed, SimLaunchStarted, SimReported
from cascade_core.sims.transitions import SimState
from cascade_core.testing.alongside import alongside
from cascade_core.testing.scraping import scraped_until
from nats.aio.client import Client
from pydantic import SecretStr

H100 = TRACES[0]


@pytest.fixture
async def client(fresh_nats: EmbeddedNats) -> AsyncIterator[Client]:
    async with connected(NatsSettings(nats_url=fresh_nats.url), name="test") as client:
        await provision(client)
        yield client


@pytest.fixture
async def store(bucket: S3Access) -> AsyncIterator[S3Bucket]:
    settings = BucketSettings(
        s3_endpoint=bucket.endpoint,
        s3_bucket=bucket.bucket,
        s3_access_key=bucket.access_key,
        s3_secret_key=SecretStr(bucket.secret_key or ""),
    )
    async with s3.opened(settings) as store:
        yield store


def seeder_of(log: JetStreamLog, store: S3Bucket) -> Seeder:
    return Seeder(log, store, store, "accelsim-traces", bundled.SAMPLES)


async def stored(log: JetStreamLog) -> list[AnyFact]:
    return [record.fact for record in await log.read([subjects.ALL])]


async def test_a_second_start_adds_nothing(client: Client, store: S3Bucket) -> None:
    log = JetStreamLog(client)
    await seeder_of(log, store).seed()
    position = await log.last_position()
    await seeder_of(log, store).seed()
    assert await log.last_position() == position
    assert len(await log.subjects(subjects.ALL_RUNS)) == len(RUNS)


async def test_the_service_alone_tells_by_its_metrics_what_it_seeded_and_read(
    fresh_nats: EmbeddedNats, client: Client, bucket: S3Access
) -> None:
    (port,) = free_ports(1)
    environment = {
        "PATH": os.environ["PATH"],
        "CASCADE_NATS_URL": fresh_nats.url,
        "CASCADE_S3_ENDPOINT": bucket.endpoint,
        "CASCADE_S3_BUCKET": bucket.bucket,
        "CASCADE_S3_INTERNAL_BUCKET": bucket.bucket,
        "CASCADE_S3_ACCESS_KEY": bucket.access_key or "",
        "CASCADE_S3_SECRET_KEY": bucket.secret_key or "",
        "CASCADE_METRICS_HOST": "127.0.0.1",
        "CASCADE_METRICS_PORT": str(port),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cascade_cli.samples", env=environment
    )
    try:
        # It follows the runs once everything is seeded.
        seen = await scraped_until(
            port,
            lambda seen: (
                seen.value("cascade_facts_read_total", reader="samples") == len(RUNS)
                and seen.value("cascade_reader_lag_facts", reader="samples") == 0
            ),
        )
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert seen.value("cascade_facts_appended_total", type="run.requested") == len(RUNS)
    assert seen.value("cascade_facts_appended_total", type="kernel.finished") == 624 + 712 + 712
    assert seen.value("cascade_appends_refused_total") == 0


async def test_two_starts_at_once_leave_one_sample(client: Client, store: S3Bucket) -> None:
    log = JetStreamLog(client)
    await asyncio.gather(seeder_of(log, store).seed(), seeder_of(log, store).seed())
    counts = await log.subjects(subjects.ALL_KERNELS)
    assert sorted(counts.values()) == [624, 712, 712]


async def test_the_side_files_and_the_note_lie_in_the_buckets(client: Client, store: S3Bucket) -> None:
    await seeder_of(JetStreamLog(client), store).seed()
    root = f"accelsim-traces/{H100.trace_id}/"
    files, folders = await store.level(root)
    assert sorted(file.key.removeprefix(root) for file in files) == sorted(SIDE_FILES)
    assert folders == []  # no instruction traces
    run = RUNS[0]
    note = zstandard.ZstdDecompressor().decompress(
        await store.get(f"logs/{run.run_id}/{run.sim_id}.log.zst"), 4096
    )
    assert b"Reconstructed from published statistics" in note


@dataclass
class DyingLog(JetStreamLog):
    """A log whose server goes away in the middle of a run's facts, once."""

    client: Client
    survives: int = 300
    died: bool = field(default=False)

    def __post_init__(self) -> None:
        super().__init__(self.client)

    async def append_all(
        self,
        facts_: Sequence[tuple[AnyFact, str | None]],
        *,
        traceparents: Sequence[str | None] | None = None,
    ) -> list[Appended]:
        if len(facts_) > self.survives and not self.died:
            self.died = True
            await super().append_all(facts_[: self.survives])
            raise LogUnavailable("the server is gone")
        return await super().append_all(facts_, traceparents=traceparents)


async def test_a_start_that_was_cut_off_is_finished_by_the_next(client: Client, store: S3Bucket) -> None:
    dying = DyingLog(client)
    with pytest.raises(LogUnavailable):
        await seeder_of(dying, store).seed()
    log = JetStreamLog(client)
    await seeder_of(log, store).seed()
    counts = await log.subjects(subjects.ALL_KERNELS)
    assert sorted(counts.values()) == [624, 712, 712]


def replay_of(number: int, *, config: str = "SM90_H200", trace_id: str = H100.trace_id) -> RunRequested:
    return RunRequested(
        run_id=f"run-{number}",
        occurred_at=datetime.now(UTC),
        trace_id=trace_id,
        entries=[RunEntry(gpu_config=config, count=1)],
        sims=[PlannedSim(sim_id=f"sim-{number}", gpu_config=config, replica=0)],
        kernels_total=712,
        replay=True,
    )


async def played(log: JetStreamLog, number: int) -> list[AnyFact]:
    """All facts of a replay run, once its sim has ended."""
    async with asyncio.timeout(60):
        while True:
            facts = [record.fact for record in await log.read(subjects.run_filters(f"run-{number}"))]
            ended = [f for f in facts if isinstance(f, SimReported) and f.state is not SimState.RUNNING]
            if ended or any(isinstance(fact, SimLaunchFailed) for fact in facts):
                return facts
            await asyncio.sleep(0.05)


async def test_a_run_that_asks_for_a_replay_gets_the_recorded_results(
    client: Client, store: S3Bucket
) -> None:
    log = JetStreamLog(client)
    await seeder_of(log, store).seed()
    await log.append(replay_of(1))
    async with alongside(Replayer(log).run()):
        early = await played(log, 1)
        await log.append(replay_of(2))
        late = await played(log, 2)
    assert len(early) == len(late) > 712
    async with alongside(Replayer(log).run()):
        await log.append(replay_of(3))
        await played(log, 3)
    assert len(await played(log, 1)) == len(early)  # a restart plays nothing twice


async def test_a_replay_of_what_was_never_recorded_fails_in_words(client: Client) -> None:
    log = JetStreamLog(client)
    await log.append(replay_of(1, config="SM86_RTX3070"))
    async with alongside(Replayer(log).run()):
        facts = await played(log, 1)
    (failed,) = [fact for fact in facts if isinstance(fact, SimLaunchFailed)]
    assert failed.error == f"sample {H100.trace_id} has no recorded results for SM86_RTX3070"


async def test_a_sim_that_a_launcher_has_taken_is_left_alone(client: Client, store: S3Bucket) -> None:
    log = JetStreamLog(client)
    await log.append(
        SimLaunchStarted(run_id="run-1", sim_id="sim-1", occurred_at=datetime.now(UTC), attempt="launcher's")
    )
    await log.append(replay_of(1))
    await log.append(replay_of(2, config="SM86_RTX3070"))
    async with alongside(Replayer(log).run()):
        await played(log, 2)
    facts = [record.fact for record in await log.read(subjects.run_filters("run-1"))]
    assert [type(fact) for fact in facts] == [SimLaunchStarted, RunRequested]
