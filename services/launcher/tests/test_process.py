"""The launcher as a process of its own: killed in the middle of a run, stopped in order, told nonsense."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_cli.embedded.process import free_ports
from cascade_cli.embedded.s3_requests import S3Access
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.lease import held
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.settings import NatsSettings
from cascade_core.sims.facts import SimLaunchStarted
from cascade_core.sims.transitions import SimState
from cascade_core.testing.scraping import scraped_until
from cascade_launcher.backends import local
from cascade_launcher.fleet import FILTERS
from cascade_launcher.testing import (
    DEADLINE_S,
    Simulator,
    cancel,
    eventually,
    eventually_appended,
    facts_of,
    heartbeat,
    is_alive,
    processes_with,
    run_requested,
    until,
)

Start = Callable[[str], "asyncio.Future[asyncio.subprocess.Process]"]


PATIENT = "import sys; from cascade_launcher import main; main.GIVE_UP_WITHIN_S = 60; sys.exit(main.main())"
"""A launcher that at an orderly stop waits for the log however long it takes: two seconds may pass on a busy disk."""


class Launchers:
    """Launcher processes on one data directory, one after another."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ
        self.running: list[asyncio.subprocess.Process] = []

    async def start(self, command: str, *program: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *(program or ("-m", "cascade_launcher")),
            env=self.environ | {"CASCADE_SIM_CMD": command},
            start_new_session=True,
        )
        self.running.append(process)
        return process


@pytest.fixture
async def launchers(
    fresh_nats: EmbeddedNats, filled_bucket: S3Access, tmp_path: Path
) -> AsyncIterator[Launchers]:
    data_dir = tmp_path / "data"
    environ = {
        "PATH": os.environ["PATH"],
        "CASCADE_NATS_URL": fresh_nats.url,
        "CASCADE_S3_ENDPOINT": filled_bucket.endpoint,
        "CASCADE_S3_BUCKET": filled_bucket.bucket,
        "CASCADE_S3_ACCESS_KEY": filled_bucket.access_key or "",
        "CASCADE_S3_SECRET_KEY": filled_bucket.secret_key or "",
        "CASCADE_DATA_DIR": str(data_dir),
        "CASCADE_HEARTBEAT_TIMEOUT_S": "3600",  # these sims send none
    }
    started = Launchers(environ)
    yield started
    for process in started.running:
        if process.returncode is None:
            process.kill()
            await process.wait()
    await local.stop_all(data_dir)


@pytest.mark.timeout(600)  # each of three killed launchers is waited for until its lease has run out
@pytest.mark.parametrize("seed", range(3))
async def test_killed_in_the_middle_of_a_run_it_loses_no_sim_and_starts_none_twice(
    log: JetStreamLog, launchers: Launchers, simulator: Simulator, seed: int
) -> None:
    chance = random.Random(seed)
    run = run_requested(sims=24)
    command = simulator.command("wait")
    launcher = await launchers.start(command)
    await log.append(run)
    for _ in range(3):
        already = sum(1 for sim in run.sims if simulator.starts(sim.sim_id))
        wanted = min(24, already + chance.randint(1, 8))
        await eventually(lambda: sum(1 for sim in run.sims if simulator.starts(sim.sim_id)) >= wanted)  # noqa: B023
        launcher.kill()
        await launcher.wait()
        launcher = await launchers.start(command)
    sims = await until(log, lambda sims: all(sim.launcher_ref for sim in sims))
    for sim in sims:
        await eventually(lambda sim_id=sim.sim_id: simulator.is_up(sim_id))  # type: ignore[misc]
    assert [len(simulator.starts(sim.sim_id)) for sim in sims] == [1] * 24
    assert all(is_alive(int(sim.launcher_ref or 0)) for sim in sims)
    taken = [fact.sim_id for fact in await facts_of(log) if isinstance(fact, SimLaunchStarted)]
    assert sorted(taken) == sorted(sim.sim_id for sim in sims)
    assert {sim.state for sim in sims} == {SimState.LAUNCHING}

    await log.append(cancel(run))
    await until(log, lambda sims: {sim.state for sim in sims} == {SimState.CANCELLED})
    attempts = [sim.launch_attempt for sim in sims]
    await eventually(lambda: not any(processes_with(f"CASCADE_ATTEMPT={attempt}") for attempt in attempts))


async def test_an_orderly_stop_ends_its_sims_and_says_so(
    log: JetStreamLog, launchers: Launchers, simulator: Simulator
) -> None:
    run = run_requested(sims=3)
    launcher = await launchers.start(simulator.command("wait"), "-c", PATIENT)
    await log.append(run)
    sims = await until(log, lambda sims: len(sims) == 3 and all(sim.launcher_ref for sim in sims))
    await log.append(heartbeat(sims[0], run.run_id))
    launcher.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(launcher.wait(), DEADLINE_S) == 0
    assert not any(is_alive(int(sim.launcher_ref or 0)) for sim in sims)
    sims = await until(log, lambda sims: {sim.state for sim in sims} == {SimState.FAILED})
    assert {sim.error for sim in sims} == {"cascade was stopped while this sim ran"}


async def test_a_stop_without_the_log_still_ends_the_sims_and_the_next_launcher_says_why(
    log: JetStreamLog, fresh_nats: EmbeddedNats, launchers: Launchers, simulator: Simulator
) -> None:
    launcher = await launchers.start(simulator.command("wait"))
    await log.append(run_requested())
    (sim,) = await until(log, lambda sims: bool(sims) and sims[0].launcher_ref is not None)
    await eventually(lambda: simulator.is_up(sim.sim_id))
    await fresh_nats.stop()
    launcher.send_signal(signal.SIGTERM)
    await asyncio.wait_for(launcher.wait(), DEADLINE_S)
    assert not is_alive(int(sim.launcher_ref or 0))
    await fresh_nats.start()
    await launchers.start(simulator.command("wait"))
    (sim,) = await until(log, lambda sims: bool(sims) and sims[0].state is SimState.FAILED)
    assert sim.error == "cascade was stopped while this sim ran"
    assert len(simulator.starts(sim.sim_id)) == 1


async def test_a_second_launcher_takes_over_from_a_killed_one(
    log: JetStreamLog, launchers: Launchers, simulator: Simulator
) -> None:
    command = simulator.command("wait")
    first = await launchers.start(command)
    await log.append(run_requested(1))
    await until(log, lambda sims: bool(sims) and sims[0].launcher_ref is not None)
    await launchers.start(command)
    first.kill()
    await first.wait()
    await log.append(run_requested(2))
    sims = await until(log, lambda sims: len(sims) == 2 and all(sim.launcher_ref for sim in sims))
    await eventually(lambda: all(simulator.is_up(sim.sim_id) for sim in sims))
    assert [len(simulator.starts(sim.sim_id)) for sim in sims] == [1, 1]


async def test_its_metrics_tell_what_it_reads_launches_and_fails_to_launch(
    log: JetStreamLog, launchers: Launchers, simulator: Simulator
) -> None:
    (port,) = free_ports(1)
    launchers.environ |= {"CASCADE_METRICS_PORT": str(port), "CASCADE_METRICS_HOST": "127.0.0.1"}
    await launchers.start(simulator.command("wait"))
    await scraped_until(port, lambda seen: seen.value("cascade_launches_failed_total") == 0)
    await log.append(run_requested(1, sims=3))
    await log.append(run_requested(2, sims=2, trace_id="not there"))
    await until(log, lambda sims: len(sims) == 5 and all(sim.launcher_ref or sim.error for sim in sims))
    written = {"sim.launch-started": 3, "sim.launched": 3, "sim.launch-failed": 2}
    seen = await scraped_until(
        port,
        lambda seen: (
            seen.value("cascade_launches_in_flight") == 0
            and seen.value("cascade_reader_lag_facts", reader="launcher") == 0
            and {fact: seen.value("cascade_facts_appended_total", type=fact) for fact in written} == written
        ),
    )
    assert seen.value("cascade_launches_failed_total") == 2
    assert seen.value("cascade_appends_refused_total") == 0
    assert seen.value("cascade_reader_restarts_total", reader="launcher") == 0
    newest = await log.newest(FILTERS)
    assert seen.value("cascade_reader_position", reader="launcher") == newest
    # Its own facts, and the runs unless it met them while it caught up, which is no following.
    assert seen.value("cascade_facts_read_total", reader="launcher") in (8, 9, 10)
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes"} <= seen.names


async def test_a_wrong_setting_ends_the_process_with_the_variables_name(launchers: Launchers) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cascade_launcher.main",
        env=launchers.environ | {"CASCADE_SIMS": "cloud"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    assert process.returncode == 2
    assert b"CASCADE_SIMS: " in stderr


async def test_it_goes_on_after_the_log_server_was_killed(
    log: JetStreamLog, fresh_nats: EmbeddedNats, launchers: Launchers, simulator: Simulator
) -> None:
    await launchers.start(simulator.command("wait"))
    await log.append(run_requested(1))
    await until(log, lambda sims: bool(sims) and sims[0].launcher_ref is not None)
    (server,) = fresh_nats.processes
    os.kill(server.pid, signal.SIGKILL)
    await fresh_nats.stop()
    await fresh_nats.start()
    await eventually_appended(log, run_requested(2))
    sims = await until(log, lambda sims: len(sims) == 2 and all(sim.launcher_ref for sim in sims))
    await eventually(lambda: all(simulator.is_up(sim.sim_id) for sim in sims))
    assert [len(simulator.starts(sim.sim_id)) for sim in sims] == [1, 1]


async def test_somebody_can_lead_after_the_log_server_lost_its_memory(
    log: JetStreamLog, fresh_nats: EmbeddedNats
) -> None:
    (server,) = fresh_nats.processes
    os.kill(server.pid, signal.SIGKILL)
    await fresh_nats.stop()
    await fresh_nats.start()
    async with (
        connected(NatsSettings(nats_url=fresh_nats.url), name="test") as client,
        held(client, "x", "me"),
    ):
        pass


@pytest.mark.parametrize(
    ("sims", "names"),
    [
        ("kubernetes", (b"CASCADE_K8S_IMAGE", b"cascade-launcher[kubernetes]")),
        ("modal", (b"CASCADE_MODAL_IMAGE", b"cascade-launcher[modal]")),
    ],
)
async def test_a_backend_that_lacks_something_says_what(
    log: JetStreamLog, launchers: Launchers, sims: str, names: tuple[bytes, bytes]
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cascade_launcher",
        env=launchers.environ | {"CASCADE_SIMS": sims},
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    assert process.returncode != 0
    assert any(name in stderr for name in names), stderr
    assert b"Traceback" not in stderr
