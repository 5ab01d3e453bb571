"""The Sail backend against a stand-in for the SDK's compiled core."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cascade_core.runs.state import Run
from cascade_core.s3.bucket import S3Bucket
from cascade_launcher.backends.protocol import (
    BackendUnavailable,
    Ended,
    Gone,
    Launch,
    LaunchError,
    Running,
    Waiting,
)
from cascade_launcher.backends.remote import RemoteOptions
from cascade_launcher.testing import PREFIX, TRACE_ID, Simulator, eventually, processes_with, some_attempt

sail = pytest.importorskip("sail", reason="needs the extra `sail`")
from cascade_launcher.backends.sail import SailBackend, SailSettings  # noqa: E402
from cascade_launcher.testing.sail import MAIN, FakeSail, SailPlatform  # noqa: E402

RUN = Run("run-9f56e171af08", TRACE_ID, datetime(2026, 11, 7, tzinfo=UTC), entries=(), kernels_total=1)


ATTEMPTS = some_attempt()[:8]


def launch(number: int = 1) -> Launch:
    return Launch(
        sim_id=f"sim-{number:012x}",
        run_id=RUN.run_id,
        trace_id=TRACE_ID,
        gpu_config="SM90_H100",
        replica=number,
        attempt=f"{ATTEMPTS}{number:04x}",
    )


@pytest.fixture
def service() -> Iterator[FakeSail]:
    with FakeSail().installed() as fake:
        yield fake


def options(stored_trace: S3Bucket, sim_cmd: str) -> RemoteOptions:
    return RemoteOptions(
        sim_cmd=sim_cmd,
        main_url="https://app",
        token="tok",
        accelsim_dir=Path("/opt/accel-sim"),
        bucket_name=stored_trace.name,
        prefix=PREFIX,
        s3_endpoint="http://127.0.0.1:9000",
        s3_region="us-east-1",
    )


@pytest.fixture
def platform(service: FakeSail, stored_trace: S3Bucket, tmp_path: Path, simulator: Simulator) -> SailPlatform:
    return SailPlatform(service, stored_trace, options(stored_trace, "unused"), tmp_path / "data", simulator)


async def test_one_checkpoint_serves_all_sims_of_a_run_and_the_launcher_after_a_restart(
    platform: SailPlatform, service: FakeSail, tmp_path: Path
) -> None:
    backend = platform.backend()
    await backend.prepare(RUN)
    await asyncio.gather(*(backend.start(launch(number)) for number in range(4)))
    following = platform.backend()
    await following.prepare(RUN)
    await following.start(launch(9))
    assert service.checkpoints_taken == ["cascade-run-9f56e171af08"]
    assert (tmp_path / "data/s3").exists()  # the trace was on the disk that the checkpoint saved


async def test_a_fork_bears_the_sims_name_and_its_id_is_the_ref(
    platform: SailPlatform, service: FakeSail
) -> None:
    backend = platform.backend()
    await backend.prepare(RUN)
    ref = await backend.start(launch())
    assert service.boxes[ref]["name"] == "cascade-sim-000000000001"


async def test_a_launcher_killed_between_fork_and_command_leaves_nothing_unstarted(
    platform: SailPlatform, service: FakeSail
) -> None:
    backend = platform.backend()
    await backend.prepare(RUN)
    await sail.Sailbox.from_checkpoint.aio(
        next(iter(service.checkpoints)), name="cascade-sim-000000000001", restore_memory=False
    )
    ref = await platform.backend().start(launch())
    await platform.up(launch().sim_id)
    assert [row["name"] for row in service.boxes.values()].count("cascade-sim-000000000001") == 1
    assert ref in service.boxes


async def test_a_terminated_fork_is_not_replaced_by_a_second_one(
    platform: SailPlatform, service: FakeSail
) -> None:
    backend = platform.backend()
    await backend.prepare(RUN)
    ref = await backend.start(launch())
    await sail.Sailbox.from_id(ref).terminate.aio()
    assert await platform.backend().start(launch()) == ref
    assert await backend.alive(launch().sim_id) == Gone()


async def test_the_command_goes_through_a_shell_and_its_output_is_kept(
    service: FakeSail, stored_trace: S3Bucket, tmp_path: Path
) -> None:
    command = "echo \"on $CASCADE_GPU_CONFIG\" && echo 'it''s' >&2; exit 7 # a comment"
    backend = SailBackend(
        SailSettings(main_id=MAIN), options(stored_trace, command), stored_trace, data_dir=tmp_path / "data"
    )
    await backend.prepare(RUN)
    await backend.start(launch())
    end = tmp_path / "data/work/sims/sim-000000000001.end"
    await eventually(end.exists)
    assert await backend.alive(launch().sim_id) == Ended(7, None, ("on SM90_H100", "its", ""))
    assert (tmp_path / "data/work/sims/sim-000000000001.out").read_text() == "on SM90_H100\nits\n"


async def test_an_end_without_a_number_is_still_an_end(platform: SailPlatform, tmp_path: Path) -> None:
    backend = platform.backend()
    await backend.prepare(RUN)
    await backend.start(launch())
    await platform.up(launch().sim_id)
    (tmp_path / "data/work/sims/sim-000000000001.end").write_bytes(b"")
    assert await backend.alive(launch().sim_id) == Ended(None, None, ("",))
    assert await backend.census() == {launch().sim_id: Ended(None, None, ("",))}


async def test_a_full_disk_leaves_no_half_written_end(
    service: FakeSail, stored_trace: S3Bucket, tmp_path: Path
) -> None:
    backend = SailBackend(
        SailSettings(main_id=MAIN), options(stored_trace, "exit 7"), stored_trace, data_dir=tmp_path / "data"
    )
    await backend.prepare(RUN)
    end = tmp_path / "data/work/sims/sim-000000000001.end"
    end.parent.mkdir(parents=True)
    end.with_suffix(".end.tmp").symlink_to("/dev/full")
    await backend.start(launch())
    (shell,) = service.execs.values()
    await eventually(lambda: shell.poll() is not None)
    await eventually(lambda: processes_with(f"CASCADE_ATTEMPT={launch().attempt}") == [])
    assert not end.is_symlink()
    assert await backend.alive(launch().sim_id) == Running()


async def test_a_fork_that_no_listing_shows_yet_is_looked_for_again(
    platform: SailPlatform, service: FakeSail
) -> None:
    backend = platform.backend()
    await backend.prepare(RUN)
    service.listing_lags = True
    with pytest.raises(BackendUnavailable, match="not listed yet"):
        await backend.start(launch())
    service.listing_lags = False
    service.unlisted.clear()
    await backend.start(launch())
    await platform.up(launch().sim_id)
    assert [row["name"] for row in service.boxes.values()].count("cascade-sim-000000000001") == 1


async def test_finishing_a_run_deletes_its_checkpoint(platform: SailPlatform, service: FakeSail) -> None:
    backend = platform.backend()
    await backend.prepare(RUN)
    await backend.finish(RUN.run_id)
    assert service.checkpoints == {}


async def test_an_expired_checkpoint_is_taken_again(platform: SailPlatform, service: FakeSail) -> None:
    backend = platform.backend()
    await backend.prepare(RUN)
    service.checkpoints.clear()
    with pytest.raises(BackendUnavailable, match="another one is taken"):
        await backend.start(launch())
    await backend.start(launch())
    assert len(service.checkpoints_taken) == 2


async def test_sandboxes_of_other_apps_and_the_app_itself_are_left_out(
    platform: SailPlatform, service: FakeSail
) -> None:
    backend = platform.backend()
    await backend.prepare(RUN)
    await backend.start(launch())
    service.boxes["sb-foreign"] = service.boxes["sb-1"] | {
        "sailbox_id": "sb-foreign", "app_id": "app-2", "name": "cascade-sim-ffffffffffff",
    }  # fmt: skip
    assert set(await backend.census()) == {launch().sim_id}


async def test_a_sandbox_that_failed_shows_sails_reason(platform: SailPlatform, service: FakeSail) -> None:
    backend = platform.backend()
    await backend.prepare(RUN)
    ref = await backend.start(launch())
    service.boxes[ref]["status"] = "creating"
    assert await backend.alive(launch().sim_id) == Waiting("its sandbox is being created")
    service.boxes[ref] |= {"status": "failed", "error_message": "no capacity in us-west"}
    assert await backend.alive(launch().sim_id) == Ended(None, "its sandbox failed: no capacity in us-west")


async def test_outside_of_a_sandbox_prepare_says_what_to_do(
    service: FakeSail, stored_trace: S3Bucket, tmp_path: Path
) -> None:
    backend = SailBackend(
        SailSettings(), options(stored_trace, "x"), stored_trace, data_dir=tmp_path / "data"
    )
    with pytest.raises(LaunchError, match=r"^launcher prepare: .*cascade deploy"):
        await backend.prepare(RUN)


async def test_a_missing_key_is_named_at_prepare(platform: SailPlatform, service: FakeSail) -> None:
    service.refuse = sail.PermissionDeniedError("invalid API key")
    with pytest.raises(LaunchError, match=r"^launcher prepare: .*SAIL_API_KEY"):
        await platform.backend().prepare(RUN)


async def test_a_transport_failure_may_pass(platform: SailPlatform, service: FakeSail) -> None:
    service.refuse = sail.TransportError("connection reset")
    with pytest.raises(BackendUnavailable):
        await platform.backend().census()
