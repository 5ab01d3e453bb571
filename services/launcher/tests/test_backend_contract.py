"""What holds for every backend, run against each: the local one for real, the others against small fakes."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import pytest
from cascade_core.runs.state import Run
from cascade_core.s3.bucket import S3Bucket
from cascade_launcher.backends import local
from cascade_launcher.backends.local import LocalBackend, LocalOptions
from cascade_launcher.backends.protocol import Backend, Ended, Gone, Launch, LaunchError, Running, Vital
from cascade_launcher.backends.remote import RemoteOptions
from cascade_launcher.testing import DEADLINE_S, PREFIX, TRACE_ID, Simulator, eventually, some_attempt

LAUNCH = Launch(
    sim_id="sim-6b4c91e71437",
    run_id="run-9f56e171af08",
    trace_id=TRACE_ID,
    gpu_config="SM90_H100",
    replica=0,
    attempt=some_attempt(),
)
OTHER = replace(LAUNCH, sim_id="sim-0123456789ab", attempt=some_attempt(), replica=1)
RUN = Run(LAUNCH.run_id, TRACE_ID, datetime(2026, 11, 7, tzinfo=UTC), entries=(), kernels_total=1)


class Platform(Protocol):
    """A backend's platform in the hands of a test."""

    def backend(self, sim_cmd: str | None = ...) -> Backend:
        """A backend as a newly started launcher makes it."""
        ...

    def starts(self, sim_id: str) -> int:
        """How often the platform started a simulator of this sim."""
        ...

    async def up(self, sim_id: str) -> None:
        """The simulator runs."""
        ...

    async def exit(self, sim_id: str, code: int) -> None:
        """The simulator prints `last words` and exits."""
        ...


class LocalPlatform:
    def __init__(self, stored_trace: S3Bucket, tmp_path: Path, simulator: Simulator) -> None:
        self.data_dir = tmp_path / "data"
        self._traces = stored_trace
        self._simulator = simulator

    def backend(self, sim_cmd: str | None = "default") -> Backend:
        command = self._simulator.command("told") if sim_cmd == "default" else sim_cmd
        options = LocalOptions(
            sim_cmd=command,
            main_url="http://127.0.0.1:8000",
            token="",
            data_dir=self.data_dir,
            accelsim_dir=Path("/opt/accel-sim"),
            bucket_name=self._traces.name,
            prefix=PREFIX,
        )
        return LocalBackend(options, self._traces, os.environ)

    def starts(self, sim_id: str) -> int:
        return len(self._simulator.starts(sim_id))

    async def up(self, sim_id: str) -> None:
        await eventually(lambda: self._simulator.is_up(sim_id))

    async def exit(self, sim_id: str, code: int) -> None:
        self._simulator.tell(sim_id, code)


async def _local(
    stack: AsyncExitStack, stored_trace: S3Bucket, tmp_path: Path, simulator: Simulator
) -> Platform:
    platform = LocalPlatform(stored_trace, tmp_path, simulator)
    stack.push_async_callback(local.stop_all, platform.data_dir)
    return platform


async def _kubernetes(
    stack: AsyncExitStack, stored_trace: S3Bucket, tmp_path: Path, simulator: Simulator
) -> Platform:
    pytest.importorskip("kubernetes_asyncio", reason="needs the extra `kubernetes`")
    from cascade_launcher.testing.kubernetes_platform import KubernetesPlatform

    return await stack.enter_async_context(
        KubernetesPlatform.opened(stored_trace, remote_options(stored_trace))
    )


async def _sail(
    stack: AsyncExitStack, stored_trace: S3Bucket, tmp_path: Path, simulator: Simulator
) -> Platform:
    pytest.importorskip("sail", reason="needs the extra `sail`")
    from cascade_launcher.testing.sail import FakeSail, SailPlatform

    service = stack.enter_context(FakeSail().installed())
    options = remote_options(stored_trace)
    return SailPlatform(service, stored_trace, options, tmp_path / "data", simulator)


async def _modal(
    stack: AsyncExitStack, stored_trace: S3Bucket, tmp_path: Path, simulator: Simulator
) -> Platform:
    pytest.importorskip("modal", reason="needs the extra `modal`")
    from cascade_launcher.testing.modal import ModalPlatform

    return await stack.enter_async_context(ModalPlatform.opened(stored_trace, remote_options(stored_trace)))


def remote_options(stored_trace: S3Bucket) -> RemoteOptions:
    return RemoteOptions(
        sim_cmd="cascade worker",
        main_url="http://app:8000",
        token="tok",
        accelsim_dir=Path("/opt/accel-sim"),
        bucket_name=stored_trace.name,
        prefix=PREFIX,
        s3_endpoint="http://minio:9000",
        s3_region="us-east-1",
    )


MAKERS = {"local": _local, "kubernetes": _kubernetes, "sail": _sail, "modal": _modal}


@pytest.fixture(params=MAKERS)
async def platform(
    request: pytest.FixtureRequest, stored_trace: S3Bucket, tmp_path: Path, simulator: Simulator
) -> AsyncIterator[Platform]:
    async with AsyncExitStack() as stack:
        yield await MAKERS[request.param](stack, stored_trace, tmp_path, simulator)


async def becomes(backend: Backend, sim_id: str, kind: type[Vital] | tuple[type[Vital], ...]) -> Vital:
    """The sim's vital, once it is of this kind."""
    loop = asyncio.get_running_loop()
    end = loop.time() + DEADLINE_S
    while True:
        vital = await backend.alive(sim_id)
        if isinstance(vital, kind):
            return vital
        assert loop.time() < end, vital
        await asyncio.sleep(0.02)


async def test_a_started_sim_lives(platform: Platform) -> None:
    backend = platform.backend()
    await backend.prepare(RUN)
    assert await backend.start(LAUNCH)
    await platform.up(LAUNCH.sim_id)
    assert await backend.alive(LAUNCH.sim_id) == Running()
    assert await backend.census() == {LAUNCH.sim_id: Running()}


async def test_a_sim_that_was_never_started_is_unknown(platform: Platform) -> None:
    backend = platform.backend()
    assert await backend.alive(LAUNCH.sim_id) == Gone()
    assert await backend.census() == {}


async def test_starting_again_finds_the_first_start(platform: Platform) -> None:
    backend = platform.backend()
    ref = await backend.start(LAUNCH)
    await platform.up(LAUNCH.sim_id)
    assert await backend.start(LAUNCH) == ref
    assert platform.starts(LAUNCH.sim_id) == 1


async def test_two_starts_at_once_start_one_simulator(platform: Platform) -> None:
    one, other = platform.backend(), platform.backend()
    refs = await asyncio.gather(one.start(LAUNCH), other.start(LAUNCH))
    await platform.up(LAUNCH.sim_id)
    assert refs[0] == refs[1]
    assert platform.starts(LAUNCH.sim_id) == 1


async def test_the_next_launcher_finds_what_runs(platform: Platform) -> None:
    ref = await platform.backend().start(LAUNCH)
    await platform.up(LAUNCH.sim_id)
    following = platform.backend()
    assert set(await following.census()) == {LAUNCH.sim_id}
    assert await following.start(LAUNCH) == ref
    assert platform.starts(LAUNCH.sim_id) == 1


async def test_a_sim_that_ended_unseen_is_not_started_again(platform: Platform) -> None:
    await platform.backend().start(LAUNCH)
    await platform.up(LAUNCH.sim_id)
    await platform.exit(LAUNCH.sim_id, 3)
    following = platform.backend()
    await becomes(following, LAUNCH.sim_id, (Ended, Gone))
    await following.start(LAUNCH)
    assert isinstance(await following.alive(LAUNCH.sim_id), Ended)
    assert platform.starts(LAUNCH.sim_id) == 1


async def test_an_ended_simulator_shows_its_exit_code_and_last_words(platform: Platform) -> None:
    backend = platform.backend()
    await backend.start(LAUNCH)
    await platform.up(LAUNCH.sim_id)
    await platform.exit(LAUNCH.sim_id, 3)
    over = await becomes(backend, LAUNCH.sim_id, Ended)
    assert isinstance(over, Ended)
    assert over.exit_code == 3
    assert "last words" in over.output


async def test_a_stopped_sim_is_gone_and_its_neighbour_lives(platform: Platform) -> None:
    backend = platform.backend()
    await backend.start(LAUNCH)
    await backend.start(OTHER)
    await platform.up(LAUNCH.sim_id)
    await platform.up(OTHER.sim_id)
    await backend.stop(LAUNCH.sim_id)
    assert isinstance(await backend.alive(LAUNCH.sim_id), Gone | Ended)  # some platforms remember the dead
    assert await backend.census() == {OTHER.sim_id: Running()}


async def test_stopping_twice_or_what_is_unknown_is_harmless(platform: Platform) -> None:
    backend = platform.backend()
    await backend.stop(LAUNCH.sim_id)
    await backend.start(LAUNCH)
    await platform.up(LAUNCH.sim_id)
    for _ in range(2):
        await backend.stop(LAUNCH.sim_id)
    assert await backend.census() == {}


async def test_a_later_launcher_can_stop_a_sim(platform: Platform) -> None:
    await platform.backend().start(LAUNCH)
    await platform.up(LAUNCH.sim_id)
    following = platform.backend()
    await following.stop(LAUNCH.sim_id)
    assert await following.census() == {}


async def test_a_finished_sim_leaves_the_census_once_it_is_stopped(platform: Platform) -> None:
    backend = platform.backend()
    await backend.start(LAUNCH)
    await platform.up(LAUNCH.sim_id)
    await platform.exit(LAUNCH.sim_id, 0)
    await becomes(backend, LAUNCH.sim_id, (Ended, Gone))
    await backend.stop(LAUNCH.sim_id, patience_s=5)
    assert await backend.census() == {}


async def test_preparing_and_finishing_a_run_twice_is_harmless(platform: Platform) -> None:
    backend = platform.backend()
    await backend.prepare(RUN)
    await backend.prepare(RUN)
    await backend.finish(RUN.run_id)
    await backend.finish(RUN.run_id)


async def test_without_a_command_nothing_is_prepared(platform: Platform) -> None:
    with pytest.raises(LaunchError, match=r"^launch: CASCADE_SIM_CMD is not set$"):
        await platform.backend(None).prepare(RUN)


async def test_a_trace_without_a_kernel_list_is_refused_by_name(platform: Platform) -> None:
    with pytest.raises(LaunchError, match=r"^launcher prepare: traces/kernelslist\.g not found"):
        await platform.backend().prepare(replace(RUN, trace_id="no such trace"))
