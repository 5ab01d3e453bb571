"""What a Job and its pods say about a sim. Pure: takes the API's own objects, and the time to judge waits by.

Sources: the Kubernetes API's Job, PodStatus and ContainerStatus types, and the kubelet's reasons for a container that
waits (kubernetes/kubernetes pkg/kubelet/images/types.go and pkg/kubelet/kuberuntime).
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cascade_launcher.backends.kubernetes_manifest import FETCH, SIMULATOR
from cascade_launcher.backends.protocol import Ended, Running, Vital, Waiting

if TYPE_CHECKING:
    from kubernetes_asyncio.client import V1ContainerStatus, V1Job, V1JobCondition, V1Pod

# Reasons that no waiting cures.
_HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
# Reasons that the kubelet retries for ever: a registry may come back, a secret may be created.
_TROUBLE = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
_WORDS = {
    "InvalidImageName": "the image's name is invalid; fix CASCADE_K8S_IMAGE",
    "ErrImageNeverPull": "the image is not on the node, and CASCADE_K8S_IMAGE_PULL_POLICY forbids pulling it",
    "ErrImagePull": "the image cannot be pulled",
    "ImagePullBackOff": "the image cannot be pulled",
    "RegistryUnavailable": "the image's registry does not answer",
    "SignatureValidationFailed": "the image's signature is not accepted",
    "CreateContainerConfigError": "the container cannot be set up; is a secret missing?",
    "CreateContainerError": "the container cannot be created",
    "RunContainerError": "the container cannot be started; is the first word of CASCADE_SIM_CMD a program?",
}
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by a pod of higher priority",
    "DeletionByTaintManager": "removed from a node with a taint",
    "EvictionByEvictionAPI": "evicted, as when a node is drained",
    "DeletionByPodGC": "removed after its node was gone",
    "TerminationByKubelet": "ended by its node, which ran short of a resource or shut down",
}


def vital_of(
    job: "V1Job", pods: "Sequence[V1Pod]", *, now: datetime, trouble_for: timedelta, memory_limit: str
) -> Vital:
    """How the sim of `job` fares, without its output.

    trouble_for: how long a pod may be kept from starting by something that may still come right.
    """
    pod = max(pods, key=lambda one: one.metadata.creation_timestamp, default=None)
    failed = _condition(job, "Failed")
    if pod is None:
        return _without_pod(job, failed)
    phase = pod.status.phase
    if phase in ("Failed", "Succeeded"):
        return _ended(pod, failed, memory_limit)
    if phase == "Running":
        # Restarts are off, so a simulator that ended while the pod is wound up is over.
        status = _status_of(pod, SIMULATOR)
        if status is not None and status.state is not None and status.state.terminated is not None:
            return _ended(pod, failed, memory_limit)
        return Running()
    return _pending(pod, now=now, trouble_for=trouble_for)


def failed_container(pod: "V1Pod") -> str:
    """The container whose output tells why the pod ended."""
    fetch = _status_of(pod, FETCH)
    terminated = fetch.state.terminated if fetch is not None and fetch.state is not None else None
    return FETCH if terminated is not None and terminated.exit_code != 0 else SIMULATOR


def _without_pod(job: "V1Job", failed: "V1JobCondition | None") -> Vital:
    if failed is not None:
        if failed.reason == "BackoffLimitExceeded":
            # The only pod failed and is gone: somebody or something deleted it.
            return Ended(None, "the sim's pod was deleted")
        return Ended(None, f"the Job failed ({failed.reason}): {failed.message}")
    if _condition(job, "Complete") is not None:
        return Ended(0)
    if job.spec is not None and job.spec.suspend:
        return Waiting("the Job is suspended")
    return Waiting("no pod was created yet; a quota or an admission policy may forbid it")


def _pending(pod: "V1Pod", *, now: datetime, trouble_for: timedelta) -> Vital:
    for name in (FETCH, SIMULATOR):
        status = _status_of(pod, name)
        waiting = status.state.waiting if status is not None and status.state is not None else None
        if waiting is None or waiting.reason not in _HOPELESS | _TROUBLE:
            continue
        said = _WORDS.get(waiting.reason, "the container cannot be started")
        message = f": {waiting.message}" if waiting.message else ""
        reason = f"{said} ({waiting.reason}{message})"
        since = pod.status.start_time or pod.metadata.creation_timestamp
        if waiting.reason in _HOPELESS or now - since >= trouble_for:
            return Ended(None, reason)
        return Waiting(reason)
    fetch = _status_of(pod, FETCH)
    if fetch is not None and fetch.state is not None and fetch.state.running is not None:
        return Waiting("its pod fetches the trace")
    for condition in pod.status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return Waiting(f"no node takes its pod: {condition.message}")
    return Waiting("its pod is being started")


def _ended(pod: "V1Pod", failed: "V1JobCondition | None", memory_limit: str) -> Ended:
    container = failed_container(pod)
    status = _status_of(pod, container)
    terminated = status.state.terminated if status is not None and status.state is not None else None
    exit_code = terminated.exit_code if terminated is not None else None
    ended = Ended(exit_code)
    disruption = next(
        (
            one
            for one in pod.status.conditions or []
            if one.type == "DisruptionTarget" and one.status == "True"
        ),
        None,
    )
    if terminated is not None and terminated.reason == "OOMKilled":
        reason = (
            f"OOMKilled: it used more memory than its limit of {memory_limit}; raise CASCADE_K8S_MEMORY_LIMIT"
        )
        return replace(ended, reason=reason)
    if pod.status.reason == "Evicted":
        return replace(ended, reason=f"its pod was evicted: {pod.status.message}")
    if disruption is not None:
        how = _DISRUPTIONS.get(disruption.reason, "disrupted")
        return replace(ended, reason=f"its pod was {how} ({disruption.reason}: {disruption.message})")
    if pod.status.reason:  # such as a node's refusal or shutdown
        return replace(ended, reason=f"its pod failed: {pod.status.reason}: {pod.status.message}")
    if container == FETCH:
        return replace(ended, reason="its pod could not fetch the trace")
    if terminated is None:
        said = failed.message if failed is not None else "the API tells no reason"
        return replace(ended, reason=f"its pod failed before the simulator ran: {said}")
    if terminated.reason in ("ContainerCannotRun", "StartError"):
        return replace(ended, reason=f"could not start CASCADE_SIM_CMD: {terminated.message}")
    if pod.metadata.deletion_timestamp is not None:
        return replace(ended, reason="the sim's pod was deleted")
    return ended


def _status_of(pod: "V1Pod", container: str) -> "V1ContainerStatus | None":
    statuses = [*(pod.status.init_container_statuses or []), *(pod.status.container_statuses or [])]
    return next((status for status in statuses if status.name == container), None)


def _condition(job: "V1Job", type_: str) -> "V1JobCondition | None":
    conditions = (job.status.conditions if job.status is not None else None) or []
    return next((one for one in conditions if one.type == type_ and one.status == "True"), None)
