"""What becomes of pods, on a fake API server that the real client talks to."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
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
from cascade_launcher.endings import ending
from cascade_launcher.testing import PREFIX, TRACE_ID

pytest.importorskip("kubernetes_asyncio", reason="needs the extra `kubernetes`")
from cascade_launcher.backends import kubernetes
from cascade_launcher.backends.kubernetes import KubernetesBackend
from cascade_launcher.backends.kubernetes_manifest import job_name
from cascade_launcher.testing.kubernetes import FakeCluster
from cascade_launcher.testing.kubernetes_platform import KubernetesPlatform

LAUNCH = Launch(
    sim_id="sim-6b4c91e71437",
    run_id="run-9f56e171af08",
    trace_id=TRACE_ID,
    gpu_config="SM90_H100",
    replica=0,
    attempt="0123456789ab",
)
JOB = job_name(LAUNCH.sim_id)


@pytest.fixture
async def platform(stored_trace: S3Bucket) -> AsyncIterator[KubernetesPlatform]:
    options = RemoteOptions(
        sim_cmd="cascade worker",
        main_url="http://app:8000",
        token="tok",
        accelsim_dir=Path("/opt/accel-sim"),
        bucket_name=stored_trace.name,
        prefix=PREFIX,
        s3_endpoint="http://minio:9000",
        s3_region="us-east-1",
    )
    async with KubernetesPlatform.opened(stored_trace, options) as opened:
        yield opened


@pytest.fixture
def cluster(platform: KubernetesPlatform) -> FakeCluster:
    return platform.cluster


@pytest.fixture
async def backend(platform: KubernetesPlatform) -> KubernetesBackend:
    backend = platform.backend()
    await backend.start(LAUNCH)
    return backend


async def error_of(backend: KubernetesBackend, *, heard: bool = False) -> str:
    vital = await backend.alive(LAUNCH.sim_id)
    assert isinstance(vital, Ended), vital
    return ending(vital, heard=heard)


async def test_a_job_that_exists_already_is_a_success(
    backend: KubernetesBackend, cluster: FakeCluster
) -> None:
    assert await backend.start(LAUNCH) == JOB
    assert cluster.creations == [JOB]


async def test_a_pod_on_its_way_is_waited_for_with_its_reason(
    backend: KubernetesBackend, cluster: FakeCluster
) -> None:
    status = cluster.pod_of(JOB)["status"]
    status["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
         "message": "0/3 nodes are available: 3 Insufficient memory."}
    ]  # fmt: skip
    assert await backend.alive(LAUNCH.sim_id) == Waiting(
        "no node takes its pod: 0/3 nodes are available: 3 Insufficient memory."
    )
    cluster.schedule(JOB)
    assert await backend.alive(LAUNCH.sim_id) == Waiting("its pod fetches the trace")
    cluster.run(JOB)
    assert await backend.alive(LAUNCH.sim_id) == Running()


async def test_an_image_that_cannot_be_pulled_is_waited_for_a_while_and_then_an_error(
    backend: KubernetesBackend, cluster: FakeCluster
) -> None:
    cluster.wait_with(JOB, "ImagePullBackOff", 'Back-off pulling image "cascade:oops"')
    vital = await backend.alive(LAUNCH.sim_id)
    assert isinstance(vital, Waiting)
    assert "cascade:oops" in vital.reason
    cluster.pod_of(JOB)["status"]["startTime"] = datetime(2026, 1, 1, tzinfo=UTC).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )
    assert await error_of(backend) == (
        'the image cannot be pulled (ImagePullBackOff: Back-off pulling image "cascade:oops")'
    )


async def test_an_image_name_that_is_wrong_is_an_error_at_once(
    backend: KubernetesBackend, cluster: FakeCluster
) -> None:
    cluster.wait_with(JOB, "InvalidImageName", 'Failed to apply default image tag "Cascade::1"')
    assert "fix CASCADE_K8S_IMAGE (InvalidImageName" in await error_of(backend)


async def test_a_missing_secret_is_named(backend: KubernetesBackend, cluster: FakeCluster) -> None:
    cluster.wait_with(JOB, "CreateContainerConfigError", 'secret "cascade-token" not found')
    vital = await backend.alive(LAUNCH.sim_id)
    assert isinstance(vital, Waiting)
    assert 'secret "cascade-token" not found' in vital.reason


async def test_a_sim_that_ran_out_of_memory_says_how_much_it_had(
    backend: KubernetesBackend, cluster: FakeCluster
) -> None:
    cluster.exit(JOB, 137, reason="OOMKilled", output=b"simulating\n")
    assert await error_of(backend, heard=True) == (
        "OOMKilled: it used more memory than its limit of 16Gi; raise CASCADE_K8S_MEMORY_LIMIT "
        "(the simulator exited with code 137 (SIGKILL) without a final heartbeat); its last output:\nsimulating"
    )


async def test_an_evicted_pod_says_what_its_node_lacked(
    backend: KubernetesBackend, cluster: FakeCluster
) -> None:
    cluster.run(JOB)
    cluster.evict(JOB, "The node was low on resource: ephemeral-storage.")
    assert (await error_of(backend)).startswith(
        "its pod was evicted: The node was low on resource: ephemeral-storage."
    )


async def test_a_preempted_pod_is_no_second_start(backend: KubernetesBackend, cluster: FakeCluster) -> None:
    cluster.run(JOB)
    cluster.disrupt(JOB, "PreemptionByScheduler", "preempting to accommodate a higher priority pod")
    assert "preempted by a pod of higher priority" in await error_of(backend)
    await backend.start(LAUNCH)
    assert cluster.creations == [JOB]


async def test_a_deleted_pod_is_said_to_be_deleted(backend: KubernetesBackend, cluster: FakeCluster) -> None:
    cluster.run(JOB)
    cluster.delete_pod(JOB)
    assert await error_of(backend) == "the sim's pod was deleted"


async def test_a_deleted_job_is_gone(backend: KubernetesBackend, cluster: FakeCluster) -> None:
    cluster.jobs.clear()
    cluster.pods.clear()
    assert await backend.alive(LAUNCH.sim_id) == Gone()
    assert await backend.census() == {}


async def test_a_trace_that_could_not_be_fetched_shows_the_fetching_containers_words(
    backend: KubernetesBackend, cluster: FakeCluster
) -> None:
    cluster.schedule(JOB)
    cluster.exit(
        JOB, 1, container="fetch-trace", output=b"launcher prepare: traces/kernelslist.g not found\n"
    )
    error = await error_of(backend)
    assert error.startswith("its pod could not fetch the trace (")
    assert error.endswith("launcher prepare: traces/kernelslist.g not found")


async def test_output_that_looks_like_json_comes_as_it_is(
    backend: KubernetesBackend, cluster: FakeCluster
) -> None:
    cluster.exit(JOB, 1, output=b'{"error": NaN}\n')
    assert (await error_of(backend)).endswith('\n{"error": NaN}')


async def test_a_finished_job_stays_to_be_looked_at_and_leaves_the_census(
    backend: KubernetesBackend, cluster: FakeCluster
) -> None:
    cluster.exit(JOB, 0)
    await backend.stop(LAUNCH.sim_id)
    assert await backend.census() == {}
    assert cluster.jobs[JOB]["metadata"]["labels"]["cascade/over"] == "true"


async def test_a_running_job_is_deleted_and_its_pod_waited_for(
    backend: KubernetesBackend, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "LOOK_EVERY_S", 0.02)
    cluster.run(JOB)
    await backend.stop(LAUNCH.sim_id)
    assert cluster.jobs == {}
    assert cluster.pods == {}


async def test_many_jobs_are_listed_page_by_page(
    platform: KubernetesPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "PAGE", 2)
    backend = platform.backend()
    ids = [f"sim-{number:012x}" for number in range(5)]
    for sim_id in ids:
        await backend.start(
            Launch(sim_id=sim_id, run_id="run-1", trace_id="t", gpu_config="c", replica=0, attempt="a")
        )
    assert sorted(await backend.census()) == ids


@pytest.mark.parametrize(
    ("status", "said", "error", "words"),
    [
        (403, "jobs.batch is forbidden", LaunchError, "answered 403: jobs.batch is forbidden. Grant it"),
        (403, "exceeded quota: sims", BackendUnavailable, "exceeded quota"),
        (422, "Job is invalid: spec.template", LaunchError, "answered 422"),
        (429, "too many requests", BackendUnavailable, "answered 429"),
        (500, "etcd is away", BackendUnavailable, "etcd is away"),
    ],
)
async def test_a_refusal_at_the_start_is_told_apart_from_one_to_try_again(
    platform: KubernetesPlatform, status: int, said: str, error: type[Exception], words: str
) -> None:
    platform.cluster.refuse = (status, said)
    with pytest.raises(error, match=words):
        await platform.backend().start(LAUNCH)


async def test_a_cluster_that_does_not_answer_is_unavailable(stored_trace: S3Bucket) -> None:
    async with FakeCluster().api() as api:
        api.configuration.host = "http://127.0.0.1:9"
        options = RemoteOptions(
            sim_cmd="x", main_url="", token="", accelsim_dir=Path("/"), bucket_name="b", prefix="p",
            s3_endpoint="", s3_region="",
        )  # fmt: skip
        backend = KubernetesPlatform(FakeCluster(), api, stored_trace, options).backend()
        with pytest.raises(BackendUnavailable, match="does not answer"):
            await backend.census()
