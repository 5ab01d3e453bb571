"""`cascade demo`: the main job on real parts, with the bundled trace, watched as it happens."""

import asyncio
import secrets
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import typer
from cascade_client.async_client import AsyncCascadeClient
from cascade_client.errors import ClientError, NotFound, Unreachable
from cascade_client.object_store import UploadError
from cascade_client.progress import RunProgress
from cascade_client.retry import RetryPolicy
from cascade_client.upload import upload_trace
from cascade_client.wire.runs import RunEntry
from cascade_client.wire.traces import TraceState
from cascade_core import telemetry
from cascade_core.settings import TelemetrySettings, Token, load
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from rich.table import Table

from cascade_cli import app_stack, bundled
from cascade_cli.embedded.errors import EmbeddedServerError
from cascade_cli.isolated import isolated_settings
from cascade_cli.output import console, duration, fail, print_json, stderr
from cascade_cli.serve_settings import ServeSettings, worker_command
from cascade_cli.supervisor import ServiceFailed
from cascade_cli.watching import bars_on

RUN_NAME = "demo"
READY_TIMEOUT_S = 60.0
RUN_TIMEOUT_S = 300.0
POLL_S = 0.2
CONFIGS = {
    "replay": (("SM80_A100", 2), ("SM80_A30", 2)),
    "estimate": (("SM80_A100", 2), ("SM80_A100_40GB", 1), ("SM80_A30", 1)),
}
NOTES = {
    "replay": "These numbers are replayed from a recorded Accel-Sim log of BabelStream on an RTX 3070. They do not "
    "describe the uploaded trace, and the configs cannot be compared from them.",
    "estimate": "These numbers are estimated by Cascade's analytical model from the bundled trace; no simulator ran.",
}


class DemoSettings(BaseSettings):
    """All that the demo takes from the environment: what else is there belongs to another app."""

    model_config = SettingsConfigDict(
        env_prefix="CASCADE_", frozen=True, extra="ignore", env_ignore_empty=True
    )

    token: Token | None = Field(default=None, description="The demo's bearer token. Default: a new one.")


@dataclass(slots=True)
class Stages:
    """How long each part of the demo took. [s]"""

    seconds: dict[str, float] = field(default_factory=dict)

    @asynccontextmanager
    async def timed(self, name: str) -> AsyncIterator[None]:
        """Time the block as `name`."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - started, 3)


def run_demo(*, as_json: bool, engine: str, data_dir: Path | None, stay: bool | None) -> int:
    """Run the demo; returns the exit code: 0 only if every sim succeeded."""
    if engine not in CONFIGS:
        fail(f"there is no engine {engine!r}", "choose estimate or replay")
    stays = sys.stdout.isatty() and not as_json if stay is None else stay
    with tempfile.TemporaryDirectory(prefix="cascade-demo-") as scratch:
        directory = (data_dir or Path(scratch)).absolute()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fail(f"{directory} cannot be used ({error.strerror})", "choose another folder with --data-dir")
        log_path = directory / "demo.log"
        try:
            return asyncio.run(_demo(directory, log_path, engine=engine, as_json=as_json, stays=stays))
        except (EmbeddedServerError, ServiceFailed, UploadError, ClientError) as error:
            fail(str(error), f"the services' output is in {log_path}" if data_dir else "")
        except TimeoutError as error:
            fail(str(error) or "the demo took too long", "run it with --data-dir and read demo.log there")


def _settings(directory: Path, engine: str) -> ServeSettings:
    given = load(DemoSettings).token
    options = ("--replay", str(bundled.REPLAY_LOG)) if engine == "replay" else ("--engine", "estimate")
    return isolated_settings(
        directory,
        token=given.get_secret_value() if given else secrets.token_urlsafe(16),
        sim_cmd=worker_command(*options),
    )


async def _demo(directory: Path, log_path: Path, *, engine: str, as_json: bool, stays: bool) -> int:
    settings = _settings(directory, engine)
    stages = Stages()
    with log_path.open("ab") as log:
        telemetry.configure(TelemetrySettings(log_level="ERROR"), service="demo")
        started = time.monotonic()
        async with app_stack.running_app(settings, log_to=log.fileno()) as app:
            token = settings.token.get_secret_value() if settings.token else ""
            await healthy(app.url)
            async with AsyncCascadeClient(app.url, token) as client:
                stages.seconds["start"] = round(time.monotonic() - started, 3)
                async with stages.timed("upload"):
                    await _upload(app)
                async with stages.timed("ready"):
                    await _trace_ready(client)
                async with stages.timed("simulate"):
                    run_id = await _simulate(client, engine, quiet=as_json)
                async with stages.timed("results"):
                    summary = await _summary(client, run_id, engine)
                summary["seconds"] = stages.seconds
                summary["url"] = f"{app.url}/runs/{run_id}#token={quote(token, safe='')}"
                if as_json:
                    print_json(summary)
                else:
                    _show(summary)
                if stays:
                    await _until_interrupted()
    return 0 if summary["state"] == "succeeded" else 1


async def healthy(url: str) -> None:
    """Wait until the app at `url` and every server behind it answer. Raises TimeoutError."""

    async def probe() -> bool:
        try:
            return (await client.ready()).ok
        except Unreachable:
            return False

    async with AsyncCascadeClient(url, retry=RetryPolicy(attempts=1)) as client:
        await _until(probe, READY_TIMEOUT_S, "the app did not become healthy in time")


async def _upload(app: app_stack.RunningApp) -> None:
    s3 = app.urls.s3
    # Unsigned, like a profiler that knows nothing but the endpoint.
    await upload_trace(
        bundled.DEMO_TRACE,
        endpoint=s3.endpoint,
        bucket=s3.bucket,
        prefix=app.settings.s3_prefix,
        run_name=RUN_NAME,
        meta={},
    )


async def _trace_ready(client: AsyncCascadeClient) -> None:
    async def probe() -> bool:
        try:
            trace = await client.trace(RUN_NAME)
        except NotFound:
            return False
        if trace.state is TraceState.FAILED:
            fail(f"the demo trace failed: {trace.error}")
        return trace.state is TraceState.READY

    await _until(probe, READY_TIMEOUT_S, "the demo trace did not become ready in time")


async def _simulate(client: AsyncCascadeClient, engine: str, *, quiet: bool) -> str:
    """Launch the demo's run and follow it to its end; its id."""
    run = await client.launch(
        RUN_NAME, [RunEntry(gpu_config=name, count=count) for name, count in CONFIGS[engine]]
    )
    known = RunProgress()
    try:
        with bars_on(stderr, disable=quiet) as bars:
            async with asyncio.timeout(RUN_TIMEOUT_S), aclosing(client.events(run.id)) as events:
                async for event in events:
                    known.take(event)
                    bars.show(known.sims.values())
    except TimeoutError:
        raise TimeoutError("the run did not end in time") from None
    return run.id


async def _summary(client: AsyncCascadeClient, run_id: str, engine: str) -> dict[str, Any]:
    report = await client.report(run_id)
    run = await client.run(run_id)
    configs: dict[str, dict[str, Any]] = {}
    times = {config.gpu_config: config for config in report.configs}
    for name in dict.fromkeys(sim.gpu_config for sim in run.sims):
        sims = [sim for sim in run.sims if sim.gpu_config == name]
        configs[name] = {
            "states": [sim.state.value for sim in sims],
            "gpu_tot_sim_cycle": [sim.latest.gpu_tot_sim_cycle for sim in sims],
            "total_sim_ns": times[name].median_ns,
            "lowest_ns": times[name].lowest_ns,
            "highest_ns": times[name].highest_ns,
        }
    if engine == "estimate":
        await _add_intervals(client, run_id, configs)
    return {
        "run_id": run.id,
        "trace_id": run.trace_id,
        "state": run.state.value,
        "sim_counts": report.sim_counts,
        "sims": {sim.id: sim.state.value for sim in run.sims},
        "engine": engine,
        "note": NOTES[engine],
        "configs": configs,
    }


async def _add_intervals(client: AsyncCascadeClient, run_id: str, configs: dict[str, dict[str, Any]]) -> None:
    """What the estimate says of its own error: the sums of the kernels' lower and upper ends."""
    for found in (await client.estimate(run_id)).configs:
        if found.state == "ready" and found.gpu_config in configs:
            configs[found.gpu_config] |= {
                "interval_low_ns": found.total_low_ns,
                "interval_high_ns": found.total_high_ns,
            }


def _show(summary: dict[str, Any]) -> None:
    table = Table(title=f"{summary['run_id']} · {summary['state']} · {summary['engine']}")
    estimated = summary["engine"] == "estimate"
    time_heading = "estimated time" if estimated else "replayed time, median"
    bounds = ("interval from", "to") if estimated else ("lowest", "highest")
    for heading in ("config", "sims", time_heading, *bounds, "cycles"):
        table.add_column(heading, justify="left" if heading == "config" else "right")
    for name, entry in summary["configs"].items():
        cycles = [value for value in entry["gpu_tot_sim_cycle"] if value is not None]
        table.add_row(
            name,
            str(len(entry["states"])),
            duration(entry["total_sim_ns"]),
            duration(entry.get("interval_low_ns") if estimated else entry["lowest_ns"]),
            duration(entry.get("interval_high_ns") if estimated else entry["highest_ns"]),
            f"{statistics.median(cycles):,.0f}" if cycles else "–",
        )
    console.print(table)
    console.print(summary["note"], style="yellow")
    stages = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in summary["seconds"].items())
    console.print(f"Took: {stages}")
    console.print(f"Dashboard: {summary['url']}", soft_wrap=True)


async def _until_interrupted() -> None:
    typer.echo("Serving until Ctrl+C.", err=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


async def _until(probe: Any, timeout_s: float, problem: str) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while not await probe():  # noqa: ASYNC110 - polls another process
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise TimeoutError(problem) from None
