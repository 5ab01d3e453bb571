"""The reactor over a backend on other machines: Kubernetes, on the fake API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.ports import Clock
from cascade_core.runs.facts import PlannedSim
from cascade_core.s3.bucket import S3Bucket
from cascade_core.sims.facts import SimGivenUp, SimWentSilent
from cascade_core.sims.transitions import SimState
from cascade_core.testing.alongside import alongside
from cascade_launcher.backends.remote import RemoteOptions
from cascade_launcher.reactor import Reactor
from cascade_launcher.term import Timing
from cascade_launcher.testing import (
    PREFIX,
    SteppingClock,
    cancel,
    eventually,
    facts_of,
    heartbeat,
    run_requested,
    until,
)

pytest.importorskip("kubernetes_asyncio", reason="needs the extra `kubernetes`")
from cascade_launcher.backends import kubernetes
from cascade_launcher.backends.kubernetes_manifest import job_name
from cascade_launcher.testing.kubernetes_platform import KubernetesPlatform

FAST = Timing(check_every_s=0.05)


async def seen_as_waiting(
    platform: KubernetesPlatform, reactor: Reactor, sim: PlannedSim, run_id: str
) -> None:
    """Wait until the reactor knows that the sim's pod waits: a clock that runs on before would take it for silent."""

    def is_launched() -> bool:
        known = reactor._term.fleet.sim(sim.sim_id, run_id)
        return known is not None and known.launcher_ref is not None

    await eventually(is_launched)
    seen = platform.cluster.listings
    await eventually(lambda: platform.cluster.listings >= seen + 6)  # two whole looks, and the one under way


class RealClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


@pytest.fixture
async def platform(
    stored_trace: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubernetesPlatform]:
    monkeypatch.setattr(kubernetes, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(kubernetes.KubernetesBackend, "poll_every_s", 0.05)
    options = RemoteOptions(
        sim_cmd="cascade worker",
        main_url="http://app:8000",
        token="tok",
        accelsim_dir=Path("/opt/accel-sim"),
        bucket_name=stored_trace.name,
        prefix=PREFIX,
        s3_endpoint="http://minio:9000",
        s3_region="us-east-1",
    )
    async with KubernetesPlatform.opened(stored_trace, options) as opened:
        yield opened


@asynccontextmanager
async def leading(
    log: JetStreamLog, platform: KubernetesPlatform, timing: Timing = FAST, clock: Clock | None = None
) -> AsyncIterator[Reactor]:
    reactor = Reactor(log, platform.backend(), clock or RealClock(), timing)
    async with alongside(reactor.run()):
        yield reactor


async def test_a_run_becomes_jobs_and_a_cancel_deletes_them(
    log: JetStreamLog, platform: KubernetesPlatform
) -> None:
    run = run_requested(sims=3)
    async with leading(log, platform):
        await log.append(run)
        sims = await until(log, lambda sims: len(sims) == 3 and all(sim.launcher_ref for sim in sims))
        assert sorted(platform.cluster.jobs) == sorted(str(sim.launcher_ref) for sim in sims)
        await log.append(cancel(run))
        await eventually(lambda: platform.cluster.jobs == {} and platform.cluster.pods == {})


async def test_a_pod_that_waits_for_a_node_is_not_lost_and_one_that_never_starts_fails_with_the_reason(
    log: JetStreamLog, platform: KubernetesPlatform
) -> None:
    clock = SteppingClock()
    timing = Timing(heartbeat_timeout_s=60, launch_timeout_s=200, check_every_s=0.02)
    async with leading(log, platform, timing, clock) as reactor:
        run = run_requested()
        job = job_name(run.sims[0].sim_id)
        await log.append(run)
        await until(log, lambda sims: bool(sims) and sims[0].launcher_ref is not None)
        platform.cluster.wait_with(job, "ImagePullBackOff", "no such image")
        await seen_as_waiting(platform, reactor, run.sims[0], run.run_id)
        clock.step = timedelta(seconds=1)
        (sim,) = await until(log, lambda sims: bool(sims) and sims[0].state is SimState.FAILED)
        await eventually(lambda: platform.cluster.jobs == {})
    assert sim.error == (
        "the simulator did not start in 200s: the image cannot be pulled (ImagePullBackOff: no such image)"
    )
    assert not [fact for fact in await facts_of(log) if isinstance(fact, SimWentSilent)]


async def test_a_pod_that_starts_after_a_long_wait_has_its_time_for_the_first_heartbeat(
    log: JetStreamLog, platform: KubernetesPlatform
) -> None:
    clock = SteppingClock()
    async with leading(log, platform, Timing(check_every_s=0.02), clock) as reactor:
        run = run_requested()
        job = job_name(run.sims[0].sim_id)
        await log.append(run)
        await until(log, lambda sims: bool(sims) and sims[0].launcher_ref is not None)
        platform.cluster.wait_with(job, "ImagePullBackOff", "try again")
        await seen_as_waiting(platform, reactor, run.sims[0], run.run_id)
        clock.step = timedelta(seconds=1)
        await eventually(lambda: clock.passed() > 150)  # more than twice what a silent sim has
        clock.step = timedelta(0)
        platform.cluster.run(job)
        seen = platform.cluster.listings
        await eventually(lambda: platform.cluster.listings >= seen + 4)  # two whole looks at the platform
        looks = clock.looks
        await eventually(lambda: clock.looks >= looks + 5)  # and judgements after them
        await log.append(heartbeat(run.sims[0], run.run_id))
        await until(log, lambda sims: sims[0].state is SimState.RUNNING)
    assert not [fact for fact in await facts_of(log) if isinstance(fact, SimWentSilent | SimGivenUp)]


async def test_a_killed_pod_shows_why_with_its_last_words(
    log: JetStreamLog, platform: KubernetesPlatform
) -> None:
    async with leading(log, platform):
        run = run_requested()
        job = job_name(run.sims[0].sim_id)
        await log.append(run)
        await eventually(lambda: job in platform.cluster.jobs)
        platform.cluster.run(job)
        await log.append(heartbeat(run.sims[0], run.run_id))
        await until(log, lambda sims: sims[0].state is SimState.RUNNING)
        platform.cluster.exit(job, 137, reason="OOMKilled", output=b"kernel 3 of 9\n")
        (sim,) = await until(log, lambda sims: sims[0].state is SimState.FAILED)
    assert (sim.error or "").startswith("OOMKilled: it used more memory than its limit of 16Gi")
    assert (sim.error or "").endswith("kernel 3 of 9")


async def test_jobs_run_on_when_the_launcher_stops_and_are_taken_over(
    log: JetStreamLog, platform: KubernetesPlatform
) -> None:
    run = run_requested(sims=2)
    async with leading(log, platform):
        await log.append(run)
        await until(log, lambda sims: len(sims) == 2 and all(sim.launcher_ref for sim in sims))
        for sim in run.sims:
            platform.cluster.run(job_name(sim.sim_id))
    assert len(platform.cluster.jobs) == 2
    platform.cluster.exit(job_name(run.sims[0].sim_id), 1)
    async with leading(log, platform):
        await until(log, lambda sims: sims[0].state is SimState.FAILED)
        sims = await until(log, lambda sims: sims[1].state is SimState.LAUNCHING)
    assert len(platform.cluster.creations) == 2
    assert sims[1].error is None
