"""`python -m cascade_launcher.fetch_trace`, as a sim's own pod or sandbox runs it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from cascade_cli.embedded.s3_requests import S3Access
from cascade_core.sims import state as sim_state
from cascade_core.sims.facts import SimReported
from cascade_core.sims.transitions import SimState
from cascade_launcher import fetch_beats
from cascade_launcher.bucket_traces import trace_url
from cascade_launcher.testing import PREFIX, TRACE_ID, eventually


@dataclass
class App:
    """A gateway that takes heartbeats, and a bucket's endpoint that never answers, under one URL."""

    url: str = ""
    heartbeats: list[tuple[str, dict[str, str], object]] = field(default_factory=list)
    status: int = 200

    async def heartbeat(self, request: web.Request) -> web.Response:
        self.heartbeats.append((request.path, dict(request.headers), await request.json()))
        return web.json_response({"state": "running", "cancel": False}, status=self.status)

    async def never(self, _: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


@pytest.fixture
async def app() -> AsyncIterator[App]:
    served = App()
    routes = web.Application()
    routes.router.add_post("/api/sims/{sim_id}/heartbeat", served.heartbeat)
    routes.router.add_route("*", "/{any:.*}", served.never)
    runner = web.AppRunner(routes, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield served
    await runner.cleanup()


def environ_of(access: S3Access, trace_id: str, directory: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "CASCADE_TRACE_URL": trace_url(access.bucket, PREFIX, trace_id),
        "CASCADE_TRACE_DIR": str(directory),
        "CASCADE_S3_ENDPOINT": access.endpoint,
        "CASCADE_S3_ACCESS_KEY": access.access_key or "",
        "CASCADE_S3_SECRET_KEY": access.secret_key or "",
    }


async def fetch(access: S3Access, trace_id: str, directory: Path, **more: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cascade_launcher.fetch_trace",
        env=environ_of(access, trace_id, directory) | more,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    assert process.returncode is not None
    return process.returncode, stderr.decode()


async def test_it_puts_the_trace_where_the_simulator_looks(filled_bucket: S3Access, tmp_path: Path) -> None:
    directory = tmp_path / "s3" / TRACE_ID
    code, _ = await fetch(filled_bucket, TRACE_ID, directory)
    assert code == 0
    assert (directory / "traces/kernelslist.g").read_text() == "kernel-1.traceg\n"
    assert sorted(path.name for path in directory.iterdir()) == ["metadata.json", "traces"]


async def test_a_trace_that_is_not_there_ends_it_with_one_line(
    filled_bucket: S3Access, tmp_path: Path
) -> None:
    code, said = await fetch(filled_bucket, "100% no such trace", tmp_path / "trace")
    assert code == 1
    assert "launcher prepare: traces/kernelslist.g not found" in said
    assert "100% no such trace/traces/kernelslist.g" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("url", ["", "http://bucket/x", "s3://bucket"])
async def test_a_wrong_address_names_the_variable(filled_bucket: S3Access, tmp_path: Path, url: str) -> None:
    code, said = await fetch(filled_bucket, TRACE_ID, tmp_path / "trace", CASCADE_TRACE_URL=url)
    assert code == 2
    assert "CASCADE_TRACE_URL: " in said


async def test_a_sim_whose_trace_is_on_its_way_is_said_to_be_alive(
    filled_bucket: S3Access, tmp_path: Path, app: App
) -> None:
    environ = environ_of(filled_bucket, TRACE_ID, tmp_path / "trace") | {
        "CASCADE_S3_ENDPOINT": app.url,
        "CASCADE_SIM_ID": "sim-6b4c91e71437",
        "CASCADE_MAIN_URL": f"{app.url}/",
        "CASCADE_TOKEN": "tok",
        "CASCADE_ATTEMPT": "c0474ac7a5e1",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cascade_launcher.fetch_trace", env=environ
    )
    try:
        await eventually(lambda: bool(app.heartbeats))
    finally:
        process.kill()
        await process.wait()
    path, headers, body = app.heartbeats[0]
    assert path == "/api/sims/sim-6b4c91e71437/heartbeat"
    assert body == {"state": "running"}
    assert headers["Authorization"] == "Bearer tok"
    assert "X-Cascade-Attempt" not in headers


async def test_heartbeats_go_on_though_the_app_refuses_them(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_beats, "EVERY_S", 0.01)
    app.status = 503
    with fetch_beats.beating(main_url=app.url, sim_id="sim-1", token=""):
        await eventually(lambda: len(app.heartbeats) >= 3)
    assert "Authorization" not in app.heartbeats[0][1]


def test_heartbeats_of_the_fetch_leave_the_sim_to_its_simulator() -> None:
    sim = sim_state.Sim(
        sim_id="sim-1",
        run_id="run-1",
        gpu_config="SM90_H100",
        replica=0,
        created_at=datetime.now(UTC),
        kernels_total=1,
        state=SimState.LAUNCHING,
        launch_attempt="c0474ac7a5e1",
        launched_at=datetime.now(UTC),
    )
    beat = SimReported(occurred_at=datetime.now(UTC), run_id="run-1", sim_id="sim-1", state=SimState.RUNNING)
    fetching = sim_state.apply(sim, beat)
    assert fetching.state is SimState.RUNNING
    assert not sim_state.is_fenced(fetching, "c0474ac7a5e1.nonce")
    simulating = sim_state.apply(fetching, beat.model_copy(update={"attempt": "c0474ac7a5e1.nonce"}))
    assert simulating.attempt == "c0474ac7a5e1.nonce"
