"""Each service's NATS login may append its own facts and no others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cascade_cli.app_stack import nats_login
from cascade_cli.embedded.stack import EmbeddedStack
from cascade_core import subjects
from cascade_core.errors import LogUnavailable
from cascade_core.facts import AnyFact
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.lease import held
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.permissions import SERVICES
from cascade_core.jetstream.provision import provision
from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.runs.facts import RunCancelRequested
from cascade_core.scenarios.facts import ScenarioFailed
from cascade_core.settings import NatsSettings
from cascade_core.sims.facts import SimGivenUp, SimProgressed, SimReported
from cascade_core.sims.transitions import SimState
from cascade_core.traces.facts import TraceDiscovered
from cascade_core.writers import WRITERS, Service

NOW = datetime(2026, 11, 8, tzinfo=UTC)
IDS = {"run_id": "run-000000000001", "sim_id": "sim-000000000001"}
ONE_FACT_EACH: dict[Service, list[AnyFact]] = {
    "ingest": [TraceDiscovered(trace_id="a", occurred_at=NOW)],
    "api": [
        RunCancelRequested(run_id=IDS["run_id"], occurred_at=NOW),
        SimReported(**IDS, occurred_at=NOW, state=SimState.RUNNING),
        LogAppended(**IDS, occurred_at=NOW, seq=0, lines=["x" * 700_000]),
    ],
    "launcher": [SimGivenUp(**IDS, occurred_at=NOW, error="gone")],
    "parser": [
        KernelFinished(**IDS, occurred_at=NOW, index=0, kernel_name="k"),
        SimProgressed(**IDS, occurred_at=NOW, through_seq=0, kernels_done=1),
    ],
    "requestsim": [ScenarioFailed(scenario_id="scn-000000000001", occurred_at=NOW, status=422, detail="no")],
}


@asynccontextmanager
async def nats_with_logins(tmp_path: Path) -> AsyncIterator[EmbeddedStack]:
    stack = EmbeddedStack(
        tmp_path,
        nats_logins=[nats_login(service) for service in SERVICES],
        external_database_url="postgresql://nowhere",
        external_s3=None,
    )
    async with stack:
        async with connected(NatsSettings(nats_url=stack.urls.nats_url), name="operator") as client:
            await provision(client)
        yield stack


def test_every_fact_has_a_writer() -> None:
    from cascade_core.facts import AnyFact as Union
    from pydantic import TypeAdapter

    schema = TypeAdapter(Union).json_schema()
    assert set(schema["discriminator"]["mapping"]) == set(WRITERS)


async def test_a_service_appends_its_own_facts_and_is_refused_those_of_others(tmp_path: Path) -> None:
    async with nats_with_logins(tmp_path) as stack:
        for service in SERVICES:
            settings = NatsSettings(nats_url=stack.nats_url_for(service))
            async with connected(settings, name=service) as client:
                await provision(client)  # changes nothing, and needs no right to make streams
                log = JetStreamLog(client)
                for writer, facts in ONE_FACT_EACH.items():
                    for fact in facts:
                        if writer == service:
                            assert (await log.append(fact)).position > 0
                        else:
                            # A refused publish is never answered, so a short wait stands for the refusal.
                            with pytest.raises((TimeoutError, LogUnavailable)):
                                async with asyncio.timeout(0.3):
                                    await log.append(fact)
                assert await log.read([subjects.ALL])


async def test_only_the_gateway_may_purge_logs(tmp_path: Path) -> None:
    async with nats_with_logins(tmp_path) as stack:
        for service in SERVICES:
            settings = NatsSettings(nats_url=stack.nats_url_for(service))
            async with connected(settings, name=service) as client:
                purge = JetStreamLog(client).purge(subjects.log_of(**IDS))
                if service == "api":
                    await purge
                else:
                    with pytest.raises((TimeoutError, LogUnavailable)):
                        async with asyncio.timeout(0.5):
                            await purge


async def test_services_that_lead_can_hold_leases(tmp_path: Path) -> None:
    async with nats_with_logins(tmp_path) as stack:
        settings = NatsSettings(nats_url=stack.nats_url_for("launcher"))
        async with connected(settings, name="launcher") as client, held(client, "launcher", "me") as lease:
            assert not lease.lost.is_set()


async def test_wrong_credentials_are_refused_with_a_clear_error(tmp_path: Path) -> None:
    async with nats_with_logins(tmp_path) as stack:
        right = stack.nats_url_for("api")
        wrong = right.replace(right.split(":")[2].split("@")[0], "not-the-password")
        with pytest.raises(LogUnavailable, match="refuses the login") as refused:
            async with connected(NatsSettings(nats_url=wrong), name="api"):
                pass
        assert "not-the-password" not in str(refused.value)
