"""The reactor on a real log with real local processes."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.ports import Clock
from cascade_core.s3.bucket import S3Bucket
from cascade_core.sims.facts import SimGivenUp, SimLaunched, SimLaunchStarted, SimReported, SimWentSilent
from cascade_core.sims.state import Sim
from cascade_core.sims.transitions import SimState
from cascade_core.testing.alongside import alongside
from cascade_launcher.backends import local
from cascade_launcher.backends.local import LocalBackend, LocalOptions
from cascade_launcher.backends.protocol import Launch, LaunchError, Vital
from cascade_launcher.plan import MOST_LAUNCHES
from cascade_launcher.reactor import Reactor
from cascade_launcher.term import Timing
from cascade_launcher.testing import (
    DEADLINE_S,
    PREFIX,
    Simulator,
    SteppingClock,
    cancel,
    eventually,
    eventually_appended,
    facts_of,
    heartbeat,
    is_alive,
    processes_with,
    run_requested,
    some_attempt,
    until,
)

FAST = Timing(heartbeat_timeout_s=60, check_every_s=0.1)


class RealClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


Lead = Callable[..., "asyncio.Task[None]"]


def states(*wanted: SimState) -> Callable[[Sequence[Sim]], bool]:
    return lambda sims: [sim.state for sim in sims] == list(wanted)


@pytest.fixture
async def backend_for(
    stored_trace: S3Bucket, tmp_path: Path
) -> AsyncIterator[Callable[[str | None], LocalBackend]]:
    data_dir = tmp_path / "data"

    def build(sim_cmd: str | None) -> LocalBackend:
        options = LocalOptions(
            sim_cmd=sim_cmd,
            main_url="http://127.0.0.1:8000",
            token="",
            data_dir=data_dir,
            accelsim_dir=Path("/opt/accel-sim"),
            bucket_name=stored_trace.name,
            prefix=PREFIX,
        )
        return LocalBackend(options, stored_trace, os.environ)

    yield build
    await local.stop_all(data_dir)


@asynccontextmanager
async def leading(
    log: JetStreamLog, backend: LocalBackend, timing: Timing = FAST, clock: Clock | None = None
) -> AsyncIterator[Reactor]:
    reactor = Reactor(log, backend, clock or RealClock(), timing)
    async with alongside(reactor.run()):
        yield reactor


Build = Callable[[str | None], LocalBackend]


async def test_a_run_becomes_processes_and_their_ids(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    run = run_requested(sims=3)
    async with leading(log, backend_for(simulator.command("wait"))):
        await log.append(run)
        sims = await until(log, lambda sims: len(sims) == 3 and all(sim.launcher_ref for sim in sims))
        assert {sim.state for sim in sims} == {SimState.LAUNCHING}
        for sim in sims:
            await eventually(lambda sim_id=sim.sim_id: simulator.is_up(sim_id))  # type: ignore[misc]
            (start,) = simulator.starts(sim.sim_id)
            assert str(json.loads(start)["pid"]) == sim.launcher_ref
            assert json.loads(start)["env"]["CASCADE_ATTEMPT"] == sim.launch_attempt


async def test_a_leader_ends_though_its_backend_loses_the_cancel(
    log: JetStreamLog, backend_for: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backend_for(None)
    census = backend.census
    looks, losses = 0, 2

    async def deaf() -> Mapping[str, Vital]:
        """As a client that waits for an answer which comes together with the cancel: python/cpython#86296."""
        nonlocal looks, losses
        looks += 1
        if looks == 1:
            return await census()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if losses == 0:
                    raise
                losses -= 1

    monkeypatch.setattr(backend, "census", deaf)
    async with asyncio.timeout(DEADLINE_S):
        async with leading(log, backend):
            await eventually(lambda: looks == 2)
    assert losses == 0


async def test_the_facts_of_a_launch_come_in_order(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    async with leading(log, backend_for(simulator.command("wait"))):
        await log.append(run_requested())
        await until(log, lambda sims: bool(sims) and sims[0].launcher_ref is not None)
    first, second = (await facts_of(log))[1:]
    assert isinstance(first, SimLaunchStarted)
    assert isinstance(second, SimLaunched)


async def test_a_sample_run_is_never_launched(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    async with leading(log, backend_for(simulator.command("wait"))):
        sample, real = run_requested(1, sample=True), run_requested(2)
        await log.append(sample)
        await log.append(real)
        await until(log, states(SimState.PENDING, SimState.LAUNCHING))
    assert simulator.starts(sample.sims[0].sim_id) == []


async def test_a_finished_simulator_is_left_to_exit_and_its_record_is_cleared(
    log: JetStreamLog, backend_for: Build, simulator: Simulator, tmp_path: Path
) -> None:
    run = run_requested()
    async with leading(log, backend_for(simulator.command("wait"))):
        await log.append(run)
        (sim,) = await until(log, lambda sims: bool(sims) and sims[0].launcher_ref is not None)
        await eventually(lambda: simulator.is_up(sim.sim_id))
        await log.append(heartbeat(sim, run.run_id))
        await log.append(heartbeat(sim, run.run_id, SimState.SUCCEEDED))
        simulator.let_exit()
        await eventually(lambda: not list((tmp_path / "data/work/sims").glob("*.pid")))
        assert not is_alive(int(sim.launcher_ref or 0))
    (sim,) = await until(log, states(SimState.SUCCEEDED))
    assert sim.error is None


async def test_cancel_ends_the_processes_of_running_and_keeps_pending_from_starting(
    log: JetStreamLog, backend_for: Build, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "KILL_AFTER_S", 0.5)
    run = run_requested(sims=12)
    async with leading(log, backend_for(simulator.command("stubborn"))):
        await log.append(run)
        await until(log, lambda sims: any(sim.launcher_ref for sim in sims))
        await log.append(cancel(run))
        sims = await until(log, states(*[SimState.CANCELLED] * 12))
        attempts = [sim.launch_attempt for sim in sims if sim.launch_attempt]
        await eventually(
            lambda: not any(processes_with(f"CASCADE_ATTEMPT={attempt}") for attempt in attempts)
        )
        await log.append(cancel(run))  # cancelling twice is harmless
    assert all(len(simulator.starts(sim.sim_id)) <= 1 for sim in sims)


async def test_a_simulator_that_dies_before_its_first_heartbeat_fails_with_its_last_words(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    async with leading(log, backend_for(simulator.command("exit", "3"))):
        await log.append(run_requested())
        (sim,) = await until(log, states(SimState.FAILED))
    assert sim.error == (
        "the simulator exited with code 3 before its first heartbeat; its last output:\n"
        "hello from the simulator\nlast words"
    )


async def test_a_simulator_that_dies_without_a_final_heartbeat_is_given_up_at_once(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    run = run_requested()
    async with leading(log, backend_for(simulator.command("wait"))):
        await log.append(run)
        (sim,) = await until(log, lambda sims: bool(sims) and sims[0].launcher_ref is not None)
        await log.append(heartbeat(sim, run.run_id), liveness=False)
        os.kill(int(sim.launcher_ref or 0), signal.SIGKILL)
        (sim,) = await until(log, states(SimState.FAILED))
    assert sim.error is not None
    assert sim.error.startswith("the simulator was ended by SIGKILL without a final heartbeat")


async def test_a_heartbeat_that_arrives_after_the_process_died_does_not_keep_the_sim_running(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    run = run_requested()
    async with leading(log, backend_for(simulator.command("wait"))):
        await log.append(run)
        (sim,) = await until(log, lambda sims: bool(sims) and sims[0].launcher_ref is not None)
        await log.append(heartbeat(sim, run.run_id))
        os.kill(int(sim.launcher_ref or 0), signal.SIGKILL)
        for _ in range(20):
            await log.append(heartbeat(sim, run.run_id), liveness=True)
        await until(log, states(SimState.FAILED))


async def append_folded(
    log: JetStreamLog, reactor: Reactor, fact: SimReported, *, liveness: bool = False
) -> None:
    """Append, and wait until the reactor has folded it: a clock that runs on before would be judged by without it."""
    appended = await log.append(fact, liveness=liveness)
    await eventually(lambda: reactor._term.fleet.position >= appended.position)


async def test_a_silent_sim_is_lost_then_given_up_and_its_process_is_gone(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    run = run_requested()
    clock, still, fast = SteppingClock(), timedelta(0), timedelta(seconds=4)
    timing = Timing(heartbeat_timeout_s=60, check_every_s=0.02)
    async with leading(log, backend_for(simulator.command("wait")), timing, clock) as reactor:
        await log.append(run)
        (sim,) = await until(log, lambda sims: bool(sims) and sims[0].launcher_ref is not None)
        await append_folded(log, reactor, heartbeat(sim, run.run_id, at=clock.at))
        clock.stops_at = clock.at + timedelta(seconds=500)  # before the lost one is given up
        clock.step = fast
        await until(log, states(SimState.LOST))
        clock.step, clock.stops_at = still, None
        await append_folded(log, reactor, heartbeat(sim, run.run_id, at=clock.at), liveness=True)
        await until(log, states(SimState.RUNNING))
        clock.step = fast
        (sim,) = await until(log, states(SimState.FAILED))
        assert sim.error == "no heartbeat for 600s"
        await eventually(lambda: not processes_with(f"CASCADE_ATTEMPT={sim.launch_attempt}"))
    told = [type(fact) for fact in (await facts_of(log))[3:]]
    assert told == [SimReported, SimWentSilent, SimReported, SimWentSilent, SimGivenUp]


async def test_without_a_command_every_sim_fails_at_launch(log: JetStreamLog, backend_for: Build) -> None:
    async with leading(log, backend_for(None)):
        await log.append(run_requested(sims=10))
        sims = await until(log, states(*[SimState.FAILED] * 10))
    assert {sim.error for sim in sims} == {"launch: CASCADE_SIM_CMD is not set"}


async def test_a_command_that_cannot_start_fails_every_sim_with_its_name(
    log: JetStreamLog, backend_for: Build
) -> None:
    async with leading(log, backend_for("/no/such/worker")):
        await log.append(run_requested(sims=2))
        sims = await until(log, states(SimState.FAILED, SimState.FAILED))
    assert all((sim.error or "").startswith("could not start '/no/such/worker'") for sim in sims)


async def test_a_trace_that_is_not_in_the_bucket_fails_the_run_at_prepare(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    async with leading(log, backend_for(simulator.command("wait"))):
        await log.append(run_requested(sims=2, trace_id="../no such trace"))
        sims = await until(log, states(SimState.FAILED, SimState.FAILED))
    assert all(
        (sim.error or "").startswith("launcher prepare: traces/kernelslist.g not found") for sim in sims
    )


async def test_a_run_that_cannot_be_prepared_is_tried_once(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    backend = backend_for(simulator.command("wait"))
    tries = 0

    async def refuse(run: object) -> None:
        nonlocal tries
        tries += 1
        raise LaunchError("launcher prepare: no")

    backend.prepare = refuse  # type: ignore[method-assign]
    async with leading(log, backend):
        await log.append(run_requested(sims=64))
        await until(log, lambda sims: {sim.state for sim in sims} == {SimState.FAILED})
    assert tries == 1


async def test_two_launchers_at_once_start_no_sim_twice(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    run = run_requested(sims=10)
    command = simulator.command("wait")
    async with leading(log, backend_for(command)), leading(log, backend_for(command)):
        await log.append(run)
        sims = await until(log, lambda sims: len(sims) == 10 and all(sim.launcher_ref for sim in sims))
        for sim in sims:
            await eventually(lambda sim_id=sim.sim_id: simulator.is_up(sim_id))  # type: ignore[misc]
    assert [len(simulator.starts(sim.sim_id)) for sim in sims] == [1] * 10
    started = [fact for fact in await facts_of(log) if isinstance(fact, SimLaunchStarted)]
    assert len(started) == 10


async def test_at_most_eight_starts_are_under_way(log: JetStreamLog, backend_for: Build) -> None:
    backend = backend_for("unused")
    now = most = 0
    all_begun = asyncio.Event()

    async def slow_start(launch: object) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == MOST_LAUNCHES:
            all_begun.set()
        await all_begun.wait()
        await asyncio.sleep(0.02)  # in which a ninth would begin
        now -= 1
        return "1"

    backend.start = slow_start  # type: ignore[method-assign]
    async with leading(log, backend):
        await log.append(run_requested(sims=30))
        await until(log, lambda sims: len(sims) == 30 and all(sim.launcher_ref for sim in sims))
    assert most == MOST_LAUNCHES


async def test_a_sim_that_a_killed_launcher_took_is_started_once_under_its_attempt(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    run = run_requested()
    sim_id, attempt = run.sims[0].sim_id, some_attempt()
    await log.append(run)
    await log.append(
        SimLaunchStarted(occurred_at=datetime.now(UTC), run_id=run.run_id, sim_id=sim_id, attempt=attempt),
        first=True,
    )
    async with leading(log, backend_for(simulator.command("wait"))):
        (sim,) = await until(log, lambda sims: sims[0].launcher_ref is not None)
        await eventually(lambda: simulator.is_up(sim_id))
    assert sim.launch_attempt == attempt
    (start,) = simulator.starts(sim_id)
    assert json.loads(start)["env"]["CASCADE_ATTEMPT"] == attempt


async def test_a_sim_that_reported_but_was_never_written_down_goes_on(
    log: JetStreamLog, backend_for: Build, simulator: Simulator, tmp_path: Path
) -> None:
    run = run_requested()
    sim_id, attempt = run.sims[0].sim_id, some_attempt()
    await log.append(run)
    await log.append(
        SimLaunchStarted(occurred_at=datetime.now(UTC), run_id=run.run_id, sim_id=sim_id, attempt=attempt),
        first=True,
    )
    launch = Launch(
        sim_id=sim_id,
        run_id=run.run_id,
        trace_id=run.trace_id,
        gpu_config="SM90_H100",
        replica=0,
        attempt=attempt,
    )
    ref = await backend_for(simulator.command("wait")).start(launch)
    await eventually(lambda: simulator.is_up(sim_id))
    (tmp_path / f"data/work/sims/{sim_id}.pid").unlink()  # as if killed between fork and record
    await log.append(heartbeat(run.sims[0], run.run_id))
    async with leading(log, backend_for(simulator.command("wait"))):
        (sim,) = await until(log, lambda sims: sims[0].launcher_ref is not None or sims[0].is_terminal)
    assert (sim.state, sim.launcher_ref) == (SimState.RUNNING, ref)
    assert len(simulator.starts(sim_id)) == 1


async def test_sims_go_on_over_a_change_of_launchers_and_what_ended_meanwhile_is_noticed(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    run = run_requested(sims=3)
    command = simulator.command("wait")
    async with leading(log, backend_for(command)):
        await log.append(run)
        sims = await until(log, lambda sims: len(sims) == 3 and all(sim.launcher_ref for sim in sims))
        for sim in sims:
            await eventually(lambda sim_id=sim.sim_id: simulator.is_up(sim_id))  # type: ignore[misc]
    os.kill(int(sims[1].launcher_ref or 0), signal.SIGKILL)
    for sim in sims:
        await log.append(heartbeat(sim, run.run_id))
    await log.append(heartbeat(sims[2], run.run_id, SimState.SUCCEEDED))
    async with leading(log, backend_for(command)):
        await until(log, states(SimState.RUNNING, SimState.FAILED, SimState.SUCCEEDED))
        # The one that had said goodbye while nobody led does not stay behind.
        await eventually(lambda: not is_alive(int(sims[2].launcher_ref or 0)))
        assert is_alive(int(sims[0].launcher_ref or 0))
    assert [len(simulator.starts(sim.sim_id)) for sim in sims] == [1, 1, 1]


async def test_an_orderly_stop_says_of_each_running_sim_that_cascade_was_stopped(
    log: JetStreamLog, backend_for: Build, simulator: Simulator
) -> None:
    run = run_requested(sims=2)
    backend = backend_for(simulator.command("wait"))
    async with leading(log, backend) as reactor:
        await log.append(run)
        sims = await until(log, lambda sims: len(sims) == 2 and all(sim.launcher_ref for sim in sims))
        await log.append(heartbeat(sims[0], run.run_id))
    await log.append(heartbeat(sims[0], run.run_id), liveness=True)  # not folded by the reactor any more
    assert sorted(await reactor.give_up_all("cascade was stopped while this sim ran")) == sorted(
        sim.sim_id for sim in sims
    )
    sims = await until(log, states(SimState.FAILED, SimState.FAILED))
    assert {sim.error for sim in sims} == {"cascade was stopped while this sim ran"}


async def test_an_outage_of_the_log_is_not_taken_for_silence(
    log: JetStreamLog, fresh_nats: EmbeddedNats, backend_for: Build, simulator: Simulator
) -> None:
    run = run_requested()
    clock = SteppingClock()
    timing = Timing(heartbeat_timeout_s=60, check_every_s=0.02)
    async with leading(log, backend_for(simulator.command("wait")), timing, clock) as reactor:
        await log.append(run)
        (sim,) = await until(log, lambda sims: bool(sims) and sims[0].launcher_ref is not None)
        await append_folded(log, reactor, heartbeat(sim, run.run_id, at=clock.at))
        await fresh_nats.stop()
        clock.step = timedelta(seconds=4)  # longer ones would be taken for a launcher that slept
        await eventually(lambda: clock.passed() > 120)  # longer than the timeout: that is what is tested
        clock.step = timedelta(0)
        await fresh_nats.start()
        await until(log, states(SimState.RUNNING))
        looks = clock.looks
        await eventually(
            lambda: clock.looks >= looks + 5
        )  # judgements of one who hears again, before any heartbeat
        await eventually_appended(log, heartbeat(sim, run.run_id, at=clock.at), liveness=True)
    assert not [fact for fact in await facts_of(log) if isinstance(fact, SimGivenUp | SimWentSilent)]
    (sim,) = await until(log, states(SimState.RUNNING))
