"""The services of compose.yaml as processes of their own on separately started servers, from upload to result."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from cascade_cli import bundled
from cascade_cli.embedded.process import free_ports
from cascade_cli.provisioning.testing.compose_file import Compose, read_env
from cascade_cli.provisioning.testing.wiring import ScopedS3, Wiring, nats_server, started, until
from cascade_client.object_store import UploadError, open_store
from cascade_client.upload import upload_trace

SERVICES = ("api", "ingest", "launcher", "parser", "requestsim", "samples")
TRACE = "wiring"


@dataclass
class Servers:
    """What runs before the services do."""

    wiring: Wiring
    secrets: dict[str, str]
    token: str


@pytest.fixture
async def servers(
    compose: Compose, env_file: Path, postgres_url: str, tmp_path: Path
) -> AsyncIterator[Servers]:
    """NATS on deploy/nats/nats.conf, S3 with the users of deploy/minio, Postgres: each started apart, all empty."""
    env = read_env(env_file)
    roles = ("api", "ingest", "launcher", "requestsim", "profiler", "samples")
    secrets = {role: env[f"CASCADE_S3_{role.upper()}_SECRET"] for role in roles}
    nats_port, api_port = free_ports(2)
    nats = nats_server(
        tmp_path / "nats",
        "nats.conf",
        compose.environment("nats"),
        port=nats_port,
    )
    s3 = ScopedS3(tmp_path / "s3", secrets, root_secret=env["MINIO_ROOT_PASSWORD"])
    await started(nats)
    await s3.start()
    wiring = Wiring(
        directory=tmp_path,
        nats_url=f"nats://127.0.0.1:{nats_port}",
        s3_endpoint=s3.access.endpoint,
        database_url=postgres_url,
        api_port=api_port,
    )
    yield Servers(wiring, secrets, env["CASCADE_TOKEN"])
    await s3.stop()
    await nats.stop(grace_s=5)


def _start(stack: ExitStack, servers: Servers, compose: Compose) -> None:
    for service in SERVICES:
        replicas = int(compose.services[service]["deploy"].get("replicas", 1))
        for number in range(replicas):
            stack.enter_context(
                servers.wiring.running(
                    f"{service}-{number}", compose.services[service]["command"], compose.environment(service)
                )
            )


async def _upload(servers: Servers, role: str, directory: Path = bundled.DEMO_TRACE) -> None:
    await upload_trace(
        directory,
        endpoint=servers.wiring.s3_endpoint,
        bucket="cascade",
        prefix="accelsim-traces",
        run_name=TRACE,
        meta={},
        access_key=role,
        secret_key=servers.secrets[role],
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_trace_goes_from_upload_to_a_finished_run(servers: Servers, compose: Compose) -> None:
    prepared = servers.wiring.run("provision", ["provision"], compose.environment("provision"))
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    assert "bucket cascade: there" in prepared.stdout
    again = servers.wiring.run("provision", ["provision"], compose.environment("provision"))
    assert again.returncode == 0, again.stdout + again.stderr

    with ExitStack() as stack:
        _start(stack, servers, compose)
        headers = {"Authorization": f"Bearer {servers.token}"}
        client = await stack_client(servers, headers)
        try:
            await _finished_run(servers, client)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{servers.wiring.said()}") from error
        finally:
            await client.aclose()


async def stack_client(servers: Servers, headers: dict[str, str]) -> httpx.AsyncClient:
    """A client of the api."""
    return httpx.AsyncClient(base_url=servers.wiring.api_url, headers=headers, timeout=30)


async def _finished_run(servers: Servers, client: httpx.AsyncClient) -> None:
    async def ready() -> bool:
        try:
            return (await client.get("/api/ready")).status_code == 200
        except httpx.TransportError:
            return False

    async def trace_ready() -> bool:
        reply = await client.get(f"/api/traces/{TRACE}")
        return reply.status_code == 200 and reply.json()["state"] == "ready"

    async def run_over() -> bool:
        answer = await client.get(f"/api/runs/{run['id']}")
        assert answer.status_code == 200, answer.text
        run.update(answer.json())
        return bool(run["state"] != "active")

    async def parsed() -> bool:
        # The parser may read the end of a log after its sim has said that it ended.
        kernels = (await client.get(f"/api/runs/{run['id']}/kernels")).json()
        return {kernel["sim_id"] for kernel in kernels} == {sim["id"] for sim in run["sims"]}

    async def sampled() -> bool:
        traces = (await client.get("/api/traces")).json()
        return len([trace for trace in traces if trace["state"] == "ready"]) > 1

    await until(ready, 90, "a ready api")
    await _upload(servers, "profiler")
    await until(trace_ready, 60, "a ready trace")
    reply = await client.post(
        "/api/runs", json={"trace_id": TRACE, "entries": [{"gpu_config": "SM80_A100", "count": 2}]}
    )
    assert reply.status_code == 201, reply.text
    run: dict[str, Any] = reply.json()
    await until(run_over, 120, "the end of the run")
    assert run["state"] == "succeeded", run
    await until(parsed, 60, "the kernels of each sim")
    # The api reads the trace itself for this.
    estimate = await client.get(f"/api/runs/{run['id']}/estimate")
    assert estimate.status_code == 200, estimate.text
    await until(sampled, 60, "the bundled samples")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_service_with_the_wrong_nats_password_is_refused(servers: Servers, compose: Compose) -> None:
    def started_wrongly(service: str) -> "subprocess.CompletedProcess[str]":
        environment = compose.environment(service) | {"CASCADE_NATS_PASSWORD": "kwrong"}
        return servers.wiring.run(service, compose.services[service]["command"], environment)

    # The api and the samples are patient for a minute, and then end in the same way.
    refused = [service for service in SERVICES if service not in ("api", "samples")]
    for done in await asyncio.gather(*(asyncio.to_thread(started_wrongly, name) for name in refused)):
        assert done.returncode == 1
        assert "refuses the login" in done.stderr
        assert "Check CASCADE_NATS_USER and CASCADE_NATS_PASSWORD" in done.stderr.replace("\n", " ")
        assert "kwrong" not in done.stderr + done.stdout


@pytest.mark.timeout(300)
async def test_a_profilers_keys_upload_and_nothing_else(servers: Servers, compose: Compose) -> None:
    prepared = servers.wiring.run("provision", ["provision"], compose.environment("provision"))
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    await _upload(servers, "profiler")
    async with open_store(
        endpoint=servers.wiring.s3_endpoint,
        bucket="cascade-internal",
        access_key="profiler",
        secret_key=servers.secrets["profiler"],
    ) as internal:
        with pytest.raises(UploadError, match="AccessDenied"):
            await internal.put("log", b"", content_type="text/plain")
    with pytest.raises(UploadError, match="AccessDenied"):
        await _upload(servers, "launcher")
