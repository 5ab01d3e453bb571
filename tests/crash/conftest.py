"""A whole app on embedded servers, as `cascade serve` has it, whose processes a test may kill in the middle of a run.

The simulator is the built-in worker, which replays a recorded log and waits in its middle, so that there is one. After
the kill nothing is helped along: the supervisor and the embedded stack start what died, as they do for a user.
"""

import asyncio
import gzip
import os
import shlex
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest
from cascade_accelsim.log import ParsedLog, parse_log
from cascade_cli import app_stack, bundled
from cascade_cli.embedded.process import free_ports
from cascade_cli.serve_settings import ServeSettings
from cascade_client.upload import upload_trace
from cascade_core import subjects
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.kernels.facts import KernelFinished
from cascade_core.runs.facts import RunRequested
from cascade_core.settings import NatsSettings
from cascade_core.sims.facts import SimLaunchStarted
from pydantic import SecretStr

TOKEN = "crash-tests"
TRACE = "demo"
CONFIGS = ("SM80_A100", "SM80_A30")
DELAY_S = 0.1
"""Between 200 lines of the replayed log, which has about 10,000."""
DEADLINE_S = 120.0

Json = dict[str, Any]


@dataclass
class CrashApp:
    """The running app, what a test asks of it, and the checks after a crash."""

    app: app_stack.RunningApp
    http: httpx.AsyncClient
    service_log: Path
    to_the_end: Path
    """Sims stand still in the middle of the log until this file is there."""
    run_id: str = ""
    sims: list[str] = field(default_factory=list)

    @cached_property
    def replayed(self) -> list[str]:
        """The lines of the log that every sim replays."""
        text = gzip.decompress(bundled.REPLAY_LOG.read_bytes()).decode("utf-8", "replace")
        return text.removesuffix("\n").split("\n")

    @cached_property
    def expected(self) -> ParsedLog:
        """What is in that log."""
        return parse_log(self.replayed)

    def pid_of(self, service: str) -> int:
        """The process that runs a service now."""
        found = next(one for one in self.app.supervisor._services if one.name == service)
        assert found.process is not None
        return found.process.pid

    async def kill(self, service: str) -> None:
        """End a service's process as the kernel does when memory runs out, and wait until another one runs."""
        before = self.pid_of(service)
        os.kill(before, signal.SIGKILL)
        await self.until(self._is_another(service, before))

    def _is_another(self, service: str, before: int) -> Callable[[], Awaitable[bool]]:
        async def another() -> bool:
            return self.pid_of(service) != before

        return another

    async def until(
        self, condition: Callable[[], Awaitable[bool]], *, deadline_s: float = DEADLINE_S
    ) -> None:
        """Wait for `condition`; a failure shows what the services said."""
        try:
            async with asyncio.timeout(deadline_s):
                while not await condition():  # noqa: ASYNC110 - other processes bring it about
                    await asyncio.sleep(0.05)
        except TimeoutError:
            said = await asyncio.to_thread(self.service_log.read_text, "utf-8", "replace")
            raise AssertionError(f"not in {deadline_s:.0f} s. The services said:\n{said[-8000:]}") from None

    async def get(self, path: str) -> Any:
        """The JSON of a route, asked again while the app is out of reach."""
        answer: list[Any] = []

        async def answered() -> bool:
            try:
                reply = await self.http.get(path)
            except httpx.TransportError:
                return False
            if reply.status_code in (502, 503):
                return False
            assert reply.status_code == 200, reply.text
            answer.append(reply.json())
            return True

        await self.until(answered)
        return answer[0]

    async def healthy(self) -> None:
        """Wait until the app answers."""

        async def ready() -> bool:
            try:
                return (await self.http.get("/api/ready")).status_code == 200
            except httpx.TransportError:
                return False

        await self.until(ready)

    async def upload(self, source: Path = bundled.DEMO_TRACE, *, name: str = TRACE) -> None:
        """Upload a trace as a profiler does."""
        s3 = self.app.urls.s3
        await upload_trace(
            source,
            endpoint=s3.endpoint,
            bucket=s3.bucket,
            prefix=self.app.settings.s3_prefix,
            run_name=name,
            meta={},
        )

    async def trace_is(self, state: str, *, name: str = TRACE) -> None:
        """Wait until the trace is in `state`."""

        async def reached() -> bool:
            traces: list[Json] = await self.get("/api/traces")
            return any(trace["id"] == name and trace["state"] == state for trace in traces)

        await self.until(reached)

    async def launch(self, *, count: int = 1, trace_id: str = TRACE) -> None:
        """Start a run of `count` sims on each config."""
        entries = [{"gpu_config": config, "count": count} for config in CONFIGS]
        reply = await self.http.post("/api/runs", json={"trace_id": trace_id, "entries": entries})
        assert reply.status_code == 201, reply.text
        run: Json = reply.json()
        self.run_id = run["id"]
        self.sims = [sim["id"] for sim in run["sims"]]

    async def kernels_seen(self, count: int) -> None:
        """Wait until every sim has finished `count` kernels, of the three before it stands still."""

        async def seen() -> bool:
            run = await self.get(f"/api/runs/{self.run_id}")
            assert run["state"] == "active", run
            return all(sim["kernels_done"] >= count for sim in run["sims"])

        await self.until(seen)

    async def ends_exactly(self) -> None:
        """The run, let go on, succeeds; nothing of the replayed log is lost, nothing is there twice."""
        self.to_the_end.touch()
        blocks, totals = self.expected.blocks, self.expected.progress

        async def ended() -> bool:
            # A sim may end some seconds before a parser that was killed has a successor that reads its log.
            run = await self.get(f"/api/runs/{self.run_id}")
            read = all(sim["kernels_done"] >= len(blocks) for sim in run["sims"])
            return run["state"] not in ("active", "succeeded") or (run["state"] == "succeeded" and read)

        await self.until(ended)
        run = await self.get(f"/api/runs/{self.run_id}")
        assert (run["state"], [sim["error"] for sim in run["sims"]]) == ("succeeded", [None] * len(self.sims))
        kernels: list[Json] = await self.get(f"/api/runs/{self.run_id}/kernels")
        for sim in run["sims"]:
            assert sim["kernels_done"] == len(blocks)
            assert sim["latest"]["gpu_tot_sim_cycle"] == totals.gpu_tot_sim_cycle
            mine = [kernel for kernel in kernels if kernel["sim_id"] == sim["id"]]
            assert [(one["kernel_index"], one["gpu_sim_cycle"]) for one in mine] == [
                (block.index, block.gpu_sim_cycle) for block in blocks
            ]
            reply = await self.http.get(f"/api/sims/{sim['id']}/log")
            assert reply.status_code == 200
            assert reply.text.removesuffix("\n").split("\n") == self.replayed
        await self.facts_are_there_once()

    async def facts_are_there_once(self) -> None:
        """Each run was asked for once, each sim taken once, each kernel told once, in order."""
        async with connected(NatsSettings(nats_url=self.app.urls.nats_url), name="test") as client:
            records = await JetStreamLog(client).read([*subjects.run_filters(self.run_id)])
        facts = [record.fact for record in records]
        assert sum(1 for fact in facts if isinstance(fact, RunRequested)) == 1
        taken = Counter(fact.sim_id for fact in facts if isinstance(fact, SimLaunchStarted))
        assert taken == Counter(self.sims)
        for sim in self.sims:
            told = [fact.index for fact in facts if isinstance(fact, KernelFinished) and fact.sim_id == sim]
            assert told == list(range(len(self.expected.blocks)))


@pytest.fixture
async def crash_app(tmp_path: Path) -> AsyncIterator[CrashApp]:
    """The app, up, with nothing in it."""
    tmp_path.chmod(0o755)  # noqa: ASYNC240 - Postgres may run as another user
    port, s3_port = free_ports(2)
    to_the_end = tmp_path / "to the end"
    worker = [
        sys.executable,
        str(Path(__file__).parent / "held_replay.py"),
        str(to_the_end),
        "--replay",
        str(bundled.REPLAY_LOG),
        "--delay",
        str(DELAY_S),
    ]
    stand_in = [sys.executable, str(Path(__file__).parent / "slow_postprocessor.py"), str(tmp_path / "go on")]
    settings = ServeSettings(
        token=SecretStr(TOKEN),
        data_dir=tmp_path / "data",
        accelsim_dir=bundled.CONFIGS,
        sim_cmd=shlex.join(worker),
        postprocess_cmd=shlex.join(stand_in),
        host="127.0.0.1",
        port=port,
        s3_port=s3_port,
        samples=False,
        public_url=f"http://127.0.0.1:{port}",
        nats_url=None,
        database_url=None,
        s3_endpoint=None,
    )
    service_log = tmp_path / "services.log"
    with service_log.open("ab") as output:
        async with (
            app_stack.running_app(settings, log_to=output.fileno()) as app,
            httpx.AsyncClient(
                base_url=app.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30
            ) as http,
        ):
            crash_app = CrashApp(app, http, service_log, to_the_end)
            await crash_app.healthy()
            yield crash_app
