"""The Modal backend against a fake control plane that the real client talks to."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cascade_core.runs.state import Run
from cascade_core.s3.bucket import S3Bucket
from cascade_launcher.backends.protocol import BackendUnavailable, Ended, Launch, LaunchError, Running
from cascade_launcher.backends.remote import RemoteOptions
from cascade_launcher.testing import PREFIX, TRACE_ID

pytest.importorskip("modal", reason="needs the extra `modal`")
from cascade_launcher.testing.modal import FakeModal, ModalPlatform, Result
from grpclib import Status

LAUNCH = Launch(
    sim_id="sim-6b4c91e71437",
    run_id="run-9f56e171af08",
    trace_id=TRACE_ID,
    gpu_config="SM90_H100",
    replica=0,
    attempt="0123456789ab",
)
RUN = Run(LAUNCH.run_id, TRACE_ID, datetime(2026, 11, 7, tzinfo=UTC), entries=(), kernels_total=1)
NAME = "cascade-sim-6b4c91e71437"


@pytest.fixture
async def platform(stored_trace: S3Bucket) -> AsyncIterator[ModalPlatform]:
    options = RemoteOptions(
        sim_cmd="cascade worker --x 'a b'",
        main_url="https://app",
        token="the-token-itself",
        accelsim_dir=Path("/opt/accel-sim"),
        bucket_name=stored_trace.name,
        prefix=PREFIX,
        s3_endpoint="https://s3.example",
        s3_region="us-east-1",
    )
    async with ModalPlatform.opened(stored_trace, options) as opened:
        opened.workspace.secrets["traces-reader"] = {
            "CASCADE_S3_ACCESS_KEY": "k",
            "CASCADE_S3_SECRET_KEY": "s",
        }
        yield opened


@pytest.fixture
def workspace(platform: ModalPlatform) -> FakeModal:
    return platform.workspace


async def test_a_sandbox_fetches_its_trace_and_becomes_the_simulator(
    platform: ModalPlatform, workspace: FakeModal
) -> None:
    ref = await platform.backend(s3_secret="traces-reader").start(LAUNCH)
    sandbox = workspace.sandboxes[ref]
    assert sandbox.name == NAME
    assert sandbox.tags == {"sim-id": LAUNCH.sim_id, "run-id": LAUNCH.run_id}
    assert sandbox.command[:2] == ["/bin/sh", "-c"]
    assert sandbox.command[2] == (
        "python -m cascade_launcher.fetch_trace 2>&1 || exit; "
        "unset CASCADE_S3_ACCESS_KEY CASCADE_S3_SECRET_KEY CASCADE_S3_ENDPOINT; "
        "exec cascade worker --x 'a b' 2>&1"
    )
    assert sandbox.environment["CASCADE_TOKEN"] == "the-token-itself"
    assert sandbox.environment["CASCADE_ATTEMPT"] == LAUNCH.attempt
    assert sandbox.environment["CASCADE_TRACE_DIR"].startswith("/data/s3/")
    assert sandbox.environment["CASCADE_S3_ACCESS_KEY"] == "k"
    assert "the-token-itself" not in " ".join(sandbox.command)


async def test_the_bucket_can_be_mounted_instead(platform: ModalPlatform, workspace: FakeModal) -> None:
    backend = platform.backend(traces="mount", s3_secret="traces-reader")
    sandbox = workspace.sandboxes[await backend.start(LAUNCH)]
    (mount,) = sandbox.definition.cloud_bucket_mounts
    assert mount.read_only
    assert mount.mount_path == f"/data/s3/{mount.bucket_name}"
    assert sandbox.environment["CASCADE_TRACE_DIR"] == f"{mount.mount_path}/{PREFIX}/{TRACE_ID}"
    assert sandbox.command[2] == "exec cascade worker --x 'a b' 2>&1"


async def test_what_the_sim_may_use_and_how_long_it_may_live_reaches_modal(
    platform: ModalPlatform, workspace: FakeModal
) -> None:
    backend = platform.backend(cpu=2, memory_mib=8192, memory_limit_mib=16384, lifetime_s=7200)
    definition = workspace.sandboxes[await backend.start(LAUNCH)].definition
    assert definition.timeout_secs == 7200
    assert definition.resources.milli_cpu == 2000
    assert definition.resources.memory_mb == 8192
    assert definition.resources.memory_mb_max == 16384
    assert any("registry.example/cascade:1" in line for line in workspace.images[-1])


async def test_a_simulator_that_failed_shows_its_code_and_words(
    platform: ModalPlatform, workspace: FakeModal
) -> None:
    backend = platform.backend()
    await backend.start(LAUNCH)
    await platform.exit(LAUNCH.sim_id, 2)
    assert await backend.alive(LAUNCH.sim_id) == Ended(
        2, None, ("hello from the simulator", "last words", "")
    )


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (Result.GENERIC_STATUS_TIMEOUT, 124, "its sandbox reached its lifetime of 86400 s"),
        (Result.GENERIC_STATUS_TERMINATED, 137, "its sandbox was terminated, or ran out of memory"),
    ],
)
async def test_an_end_by_modal_itself_is_said_to_be_one(
    platform: ModalPlatform, workspace: FakeModal, status: int, code: int, words: str
) -> None:
    backend = platform.backend()
    ref = await backend.start(LAUNCH)
    workspace.sandboxes[ref].result.status = status
    vital = await backend.alive(LAUNCH.sim_id)
    assert isinstance(vital, Ended)
    assert vital.exit_code == code
    assert (vital.reason or "").startswith(words)


async def test_many_sandboxes_are_listed_page_by_page_and_their_tags_asked_once(
    platform: ModalPlatform, workspace: FakeModal
) -> None:
    backend = platform.backend()
    sims = {f"sim-{number:012x}" for number in range(5)}
    for sim_id in sims:
        await backend.start(replace(LAUNCH, sim_id=sim_id))
    following = platform.backend()
    assert await following.census() == dict.fromkeys(sims, Running())
    for sandbox in workspace.sandboxes.values():
        sandbox.tags = {}
    assert set(await following.census()) == sims


async def test_a_missing_secret_is_named(platform: ModalPlatform) -> None:
    with pytest.raises(LaunchError, match="no-such-secret"):
        await platform.backend(s3_secret="no-such-secret").start(LAUNCH)


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (Status.UNAUTHENTICATED, LaunchError, "MODAL_TOKEN_ID"),
        (Status.PERMISSION_DENIED, LaunchError, "Modal says"),
        (Status.RESOURCE_EXHAUSTED, BackendUnavailable, "does not answer"),
    ],
)
async def test_a_refusal_is_told_apart_from_one_that_may_pass(
    platform: ModalPlatform, workspace: FakeModal, status: Status, error: type[Exception], words: str
) -> None:
    backend = platform.backend()
    workspace.refuse = status
    with pytest.raises(error, match=words):
        await backend.prepare(RUN)
