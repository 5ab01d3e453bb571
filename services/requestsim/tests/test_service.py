"""The service on a real log and a real bucket: every question is answered once, whoever dies on the way."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_cli.embedded.process import free_ports
from cascade_cli.embedded.s3_requests import S3Access
from cascade_core import subjects
from cascade_core.errors import Unavailable
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.lease import try_acquire
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.s3 import bucket as s3
from cascade_core.s3.bucket import S3Bucket
from cascade_core.scenarios.facts import ScenarioCompleted, ScenarioFailed, ScenarioRequested
from cascade_core.settings import BucketSettings, NatsSettings
from cascade_core.sims.facts import SimStepTimelineStored
from cascade_core.testing.alongside import alongside
from cascade_core.testing.scraping import scraped_until
from cascade_requestsim.base_store import BaseStore
from cascade_requestsim.reactor import ScenarioReactor
from nats.aio.client import Client
from pydantic import JsonValue, SecretStr

Documents = dict[str, dict[str, Any]]
TRACE = "trace of * and > and a.dot"
PATIENCE_S = 60.0


@dataclass
class World:
    """Servers with one finished sim on them."""

    client: Client
    log: JetStreamLog
    bucket: S3Bucket
    environment: dict[str, str]

    async def ask(
        self,
        number: int,
        *,
        sim_id: str = "sim-1",
        trace_id: str = TRACE,
        age_s: float = 0.0,
        **body: JsonValue,
    ) -> str:
        """Store a question; its id. Without a body, an estimate of the profiled shape."""
        scenario = f"scn-{number}"
        asked = ScenarioRequested(
            scenario_id=scenario,
            occurred_at=datetime.now(UTC) - timedelta(seconds=age_s),
            kind="scenario" if body else "estimate",
            trace_id=trace_id,
            run_id="run-1",
            sim_id=sim_id,
            gpu_config="SM90_H100",
            body={"trace_id": trace_id, **body} if body else {"prompt_tokens": 6, "output_tokens": 32},
        )
        await self.log.append(asked)
        return scenario

    async def answers(self, scenario: str) -> list[ScenarioCompleted | ScenarioFailed]:
        """Every answer that is stored now."""
        records = await self.log.read([subjects.scenario_filter(scenario)])
        return [r.fact for r in records if isinstance(r.fact, ScenarioCompleted | ScenarioFailed)]

    async def answer(self, scenario: str) -> ScenarioCompleted | ScenarioFailed:
        """The one answer, waited for."""
        found: list[ScenarioCompleted | ScenarioFailed] = await eventually(lambda: self.answers(scenario))
        assert len(found) == 1
        return found[0]

    async def send_timeline(self, timeline: dict[str, Any], *, sim_id: str = "sim-1") -> None:
        await self.log.append(
            SimStepTimelineStored(
                run_id="run-1", sim_id=sim_id, occurred_at=datetime.now(UTC), simulated=timeline
            )
        )


async def eventually(attempt: Callable[[], Awaitable[Any]]) -> Any:
    # By the clock and not by a cancel, which the NATS client may lose before Python 3.12.
    give_up_at = time.monotonic() + PATIENCE_S
    while not (found := await attempt()):
        assert time.monotonic() < give_up_at, f"not in {PATIENCE_S:.0f} s"
        await asyncio.sleep(0.05)
    return found


@pytest.fixture
async def world(
    fresh_nats: EmbeddedNats, bucket: S3Access, sample_documents: Callable[[str], Documents]
) -> AsyncIterator[World]:
    settings = BucketSettings(
        s3_endpoint=bucket.endpoint,
        s3_bucket=bucket.bucket,
        s3_access_key=bucket.access_key,
        s3_secret_key=SecretStr(bucket.secret_key or ""),
    )
    environment = {
        "PATH": os.environ["PATH"],
        "CASCADE_NATS_URL": fresh_nats.url,
        "CASCADE_S3_ENDPOINT": bucket.endpoint,
        "CASCADE_S3_BUCKET": bucket.bucket,
        "CASCADE_S3_ACCESS_KEY": bucket.access_key or "",
        "CASCADE_S3_SECRET_KEY": bucket.secret_key or "",
    }
    async with (
        connected(NatsSettings(nats_url=fresh_nats.url), name="test") as client,
        s3.opened(settings) as store,
    ):
        await provision(client)
        world = World(client, JetStreamLog(client), store, environment)
        documents = sample_documents("SM90_H100")
        await world.send_timeline(documents["timeline"])
        for name in ("run", "workload"):
            await store.put(f"accelsim-traces/{TRACE}/{name}.json", orjson.dumps(documents[name]))
        yield world


@asynccontextmanager
async def running(
    world: World, holder: str = "one", max_age_s: float = 600.0
) -> AsyncIterator[ScenarioReactor]:
    """An instance in this process, cancelled at the end."""
    with ThreadPoolExecutor(2) as executor:
        reactor = ScenarioReactor(
            world.log,
            world.client,
            BaseStore(world.log, world.bucket, prefix="accelsim-traces", executor=executor),
            executor=executor,
            holder=holder,
            threads=2,
            max_age_s=max_age_s,
        )
        async with alongside(reactor.run()):
            yield reactor


async def test_a_question_is_answered_and_so_is_one_that_was_asked_before_the_start(world: World) -> None:
    early = await world.ask(1)
    async with running(world):
        late = await world.ask(2, num_requests=8, prompt_tokens=512, output_tokens=128)
        first, second = await world.answer(early), await world.answer(late)
    assert isinstance(first, ScenarioCompleted)
    assert isinstance(second, ScenarioCompleted)
    assert first.result["profile_match"] is True
    assert second.result["steps_total"] == 128


async def test_the_largest_answer_goes_by_claim_and_comes_back_whole(world: World) -> None:
    async with running(world):
        asked = await world.ask(1, num_requests=4096, prompt_tokens=122, output_tokens=122)
        found = await world.answer(asked)
    assert isinstance(found, ScenarioCompleted)
    requests = found.result["requests"]
    assert isinstance(requests, list)
    assert len(requests) == 4096
    assert len(orjson.dumps(found.result)) > 1_000_000


async def counted(answers: int, *reactors: ScenarioReactor) -> bool:
    """Whether these instances have stored so many answers together, and no more."""
    found = sum(reactor.answered for reactor in reactors)
    assert found <= answers
    return found == answers


async def test_an_answer_of_another_instance_is_nobodys_own(world: World) -> None:
    async with running(world, "one") as one:
        scenario = await world.ask(1)
        await world.answer(scenario)
        await eventually(lambda: counted(1, one))
        asked = await world.log.last(subjects.scenario_fact(scenario, "requested"))
        assert asked is not None
        await one._answer(asked)  # as one does whose lease ran out while it computed
        assert one.answered == 1
    assert len(await world.answers(scenario)) == 1


async def test_many_instances_answer_every_question_once(world: World) -> None:
    async with running(world, "one") as one, running(world, "two") as two, running(world, "three") as three:
        asked = [await world.ask(number) for number in range(40)]
        for scenario in asked:
            assert isinstance(await world.answer(scenario), ScenarioCompleted)
        # An answer can be read before whoever stored it hears that it is stored.
        await eventually(lambda: counted(40, one, two, three))
    for scenario in asked:
        assert len(await world.answers(scenario)) == 1


class LosingLog(JetStreamLog):
    """Its next answer meets a cancel and takes it away, as `asyncio.wait_for` may before Python 3.12."""

    asked = False
    losing = False

    async def subjects(self, subject_filter: str) -> Mapping[str, int]:
        found = await super().subjects(subject_filter)
        if self.losing:
            self.losing, self.asked = False, True
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return found


async def test_a_stop_whose_cancel_gets_lost_on_the_way_ends_all_the_same(world: World) -> None:
    log = LosingLog(world.client)
    world.log = log
    async with asyncio.timeout(PATIENCE_S), running(world):
        await world.answer(await world.ask(1))
        log.losing = True
        await world.ask(2)
        while not log.asked:  # noqa: ASYNC110 - no event is told of it
            await asyncio.sleep(0.01)


async def test_a_question_whose_holder_died_is_answered_once_the_lease_runs_out(world: World) -> None:
    asked = await world.ask(1)
    assert await try_acquire(world.client, f"scenario.{asked}", "a dead instance") is not None
    async with running(world):
        assert isinstance(await world.answer(asked), ScenarioCompleted)


async def test_a_restart_does_not_answer_again(world: World) -> None:
    asked = await world.ask(1)
    async with running(world):
        await world.answer(asked)
    async with running(world, "two") as again:
        other = await world.ask(2)
        await world.answer(other)
        await eventually(lambda: counted(1, again))
    assert len(await world.answers(asked)) == 1


async def test_what_nobody_waits_for_any_more_is_failed_with_its_base_named(world: World) -> None:
    asked = await world.ask(1, age_s=61)
    async with running(world, max_age_s=60):
        found = await world.answer(asked)
    assert isinstance(found, ScenarioFailed)
    assert found.status == 504
    assert "run-1" in found.detail
    assert "sim-1" in found.detail


async def test_a_refusal_of_the_model_is_the_answer_with_its_status(world: World) -> None:
    async with running(world):
        asked = await world.ask(1, num_requests=1, prompt_tokens=3000, output_tokens=1)
        found = await world.answer(asked)
    assert isinstance(found, ScenarioFailed)
    assert found.status == 422
    assert "above the model limit of 2048" in found.detail


async def test_missing_documents_are_named(world: World) -> None:
    async with running(world):
        no_timeline = await world.answer(await world.ask(1, sim_id="sim-other"))
        no_files = await world.answer(await world.ask(2, trace_id="another trace"))
    assert isinstance(no_timeline, ScenarioFailed)
    assert isinstance(no_files, ScenarioFailed)
    assert no_timeline.status == no_files.status == 422
    assert "no step timeline" in no_timeline.detail
    assert "run.json" in no_files.detail


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"a": NaN}', b"\xff", b"[" * 100_000])
async def test_a_damaged_document_is_refused_and_the_service_goes_on(world: World, body: bytes) -> None:
    await world.bucket.put("accelsim-traces/damaged/run.json", body)
    async with running(world):
        found = await world.answer(await world.ask(1, trace_id="damaged"))
        assert isinstance(found, ScenarioFailed)
        assert found.status == 422
        assert "run.json of trace damaged" in found.detail
        assert isinstance(await world.answer(await world.ask(2)), ScenarioCompleted)


async def test_step_timing_that_is_sent_again_makes_a_new_profile(
    world: World, sample_documents: Callable[[str], Documents]
) -> None:
    timeline = sample_documents("SM90_H100")["timeline"]
    async with running(world):
        before = await world.answer(await world.ask(1))
        for step in timeline["steps"]:
            step["baseline_wall_ns"] += 1_000_000
        await world.send_timeline(timeline)
        after = await world.answer(await world.ask(2))
    assert isinstance(before, ScenarioCompleted)
    assert isinstance(after, ScenarioCompleted)
    timings = [found.result["timing"] for found in (before, after)]
    early, late = (timing["ttft_ms"] for timing in timings if isinstance(timing, dict))
    assert isinstance(early, float)
    assert late == pytest.approx(early + 1.0)


async def test_a_bucket_that_is_away_delays_the_answer_and_does_not_fail_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = world.bucket.get
    calls = 0

    async def flaky(key: str, *, start: int = 0, end: int | None = None) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Unavailable("S3 did not answer get_object")
        return await whole(key, start=start, end=end)

    monkeypatch.setattr(world.bucket, "get", flaky)
    async with running(world):
        assert isinstance(await world.answer(await world.ask(1)), ScenarioCompleted)
    assert calls > 1


async def test_a_bug_on_one_scenario_is_its_answer_and_does_not_stop_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cascade_requestsim import answering

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(answering, "run_scenario", broken)
    async with running(world):
        found = await world.answer(await world.ask(1, num_requests=1, prompt_tokens=6, output_tokens=2))
        assert isinstance(found, ScenarioFailed)
        assert found.status == 500
        assert "ZeroDivisionError" in found.detail
        assert isinstance(await world.answer(await world.ask(2)), ScenarioCompleted)


async def started(world: World, more: Mapping[str, str] = {}) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cascade_requestsim.main", env={**world.environment, **more}
    )


async def test_its_metrics_tell_how_long_scenarios_take_and_what_it_reads(world: World) -> None:
    (port,) = free_ports(1)
    process = await started(world, {"CASCADE_METRICS_PORT": str(port), "CASCADE_METRICS_HOST": "127.0.0.1"})
    try:
        computed = await world.answer(await world.ask(1, num_requests=2, prompt_tokens=6, output_tokens=4))
        refused = await world.answer(await world.ask(2, num_requests=1, prompt_tokens=3000, output_tokens=1))
        assert isinstance(computed, ScenarioCompleted)
        assert isinstance(refused, ScenarioFailed)
        seen = await scraped_until(
            port,
            lambda seen: (
                seen.value("cascade_facts_appended_total", type="scenario.completed") == 1
                and seen.value("cascade_facts_appended_total", type="scenario.failed") == 1
                and seen.value("cascade_reader_lag_facts", reader="requestsim") == 0
            ),
        )
    finally:
        process.terminate()
        await process.wait()
    # The one that was refused has taken its time as well.
    assert seen.value("cascade_scenario_seconds_count") == 2
    assert seen.value("cascade_scenario_seconds_bucket", le="+Inf") == 2
    assert 0 < (seen.value("cascade_scenario_seconds_sum") or 0) < PATIENCE_S
    assert seen.value("cascade_appends_refused_total") == 0
    assert seen.value("cascade_reader_restarts_total", reader="requestsim") == 0
    assert (seen.value("cascade_reader_position", reader="requestsim") or 0) > 0
    assert (seen.value("cascade_facts_read_total", reader="requestsim") or 0) >= 1
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes"} <= seen.names


async def test_the_process_killed_at_work_leaves_no_question_unanswered_or_answered_twice(
    world: World,
) -> None:
    process = await started(world)
    try:
        await world.answer(await world.ask(0))
        asked = [
            await world.ask(number, num_requests=2000, prompt_tokens=100, output_tokens=100)
            for number in range(1, 7)
        ]
        await world.answer(asked[0])
        process.kill()
        await process.wait()
        process = await started(world)
        for scenario in asked:
            assert isinstance(await world.answer(scenario), ScenarioCompleted)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
