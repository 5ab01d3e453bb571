"""The Job of one sim. Pure: the same sim gives the same Job, so that a repeated launch finds the first one.

A Job by itself may run a second pod: a drained node counts as a disruption, and the default replaces a pod that is
only terminating. Two simulators of one sim would then report at once. So: no retries, one pod, replacement only
after failure, and a disruption fails the Job.
"""

import hashlib
import re
import shlex

from pydantic import JsonValue

from cascade_launcher.backends.kubernetes_settings import KubernetesSettings
from cascade_launcher.backends.protocol import Launch

SIMULATOR = "simulator"
FETCH = "fetch-trace"
SIM_LABEL = "cascade/sim-id"
RUN_LABEL = "cascade/run-id"
OVER_LABEL = "cascade/over"
"""Set once the launcher is done with a Job that stays to be looked at."""
DATA_DIR = "/data"
_LONGEST_NAME = 63
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._-]+")
_OFF_THE_ENDS = re.compile(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$")

Manifest = dict[str, JsonValue]


def job_name(sim_id: str) -> str:
    """A DNS label from the sim's id alone. Ids are `sim-` and hex digits; a longer one keeps a hash of itself."""
    name = f"cascade-{sim_id}"
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(sim_id.encode()).hexdigest()[:12]
    return f"{name[: _LONGEST_NAME - 13].rstrip('-')}-{digest}"


def label_value(text: str) -> str:
    """`text` as far as a label can hold it: at most 63 letters, digits, `.`, `_`, `-`, none of these at the ends."""
    return _OFF_THE_ENDS.sub("", _OFF_THE_ENDS.sub("", _NOT_IN_LABELS.sub("-", text))[:_LONGEST_NAME])


def selector(settings: KubernetesSettings) -> str:
    """The label selector of all Jobs and pods that the launcher still cares for."""
    return f"app.kubernetes.io/instance={settings.instance},app.kubernetes.io/component=sim,!{OVER_LABEL}"


def job_manifest(
    launch: Launch,
    settings: KubernetesSettings,
    *,
    sim_cmd: str,
    contract: dict[str, str],
    bucket_environment: dict[str, str],
    token_optional: bool,
    own_token: bool = False,
) -> Manifest:
    """The Job for `launch`.

    contract: the simulator's variables; its token is replaced by a reference to the secret.
    own_token: keep the contract's token, which opens nothing but this sim.
    bucket_environment: where the trace is fetched from, for the container that fetches it and for no other.
    """
    labels: Manifest = {
        "app.kubernetes.io/name": "cascade",
        "app.kubernetes.io/component": "sim",
        "app.kubernetes.io/instance": settings.instance,
        "app.kubernetes.io/managed-by": "cascade-launcher",
        SIM_LABEL: label_value(launch.sim_id),
        RUN_LABEL: label_value(launch.run_id),
    }
    annotations: Manifest = {
        "cascade/sim-id": launch.sim_id,
        "cascade/run-id": launch.run_id,
        "cascade/trace-id": launch.trace_id,
        "cascade/gpu-config": launch.gpu_config,
        "cascade/replica": str(launch.replica),
        "cascade/attempt": launch.attempt,
        "kubectl.kubernetes.io/default-container": SIMULATOR,
        # An autoscaler must not move what cannot be moved.
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(launch.sim_id),
            "labels": dict(labels),
            "annotations": dict(annotations),
        },
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    }
                ]
            },
            "ttlSecondsAfterFinished": settings.keep_finished_s,
            "template": {
                "metadata": {"labels": dict(labels), "annotations": dict(annotations)},
                "spec": _pod_spec(
                    settings,
                    sim_cmd=sim_cmd,
                    simulator_env=_simulator_env(
                        contract, settings, token_optional=token_optional, own_token=own_token
                    ),
                    fetch_env=_fetch_env(contract, bucket_environment, settings),
                ),
            },
        },
    }


def _pod_spec(
    settings: KubernetesSettings, *, sim_cmd: str, simulator_env: list[JsonValue], fetch_env: list[JsonValue]
) -> Manifest:
    traces = "traces" if settings.trace_claim else "data"
    scratch: list[JsonValue] = [
        {"name": "data", "mountPath": DATA_DIR},
        {"name": "data", "mountPath": "/tmp", "subPath": "tmp"},  # noqa: S108 -- the pod's own
    ]
    shared: list[JsonValue] = (
        [{"name": traces, "mountPath": f"{DATA_DIR}/s3"}] if settings.trace_claim else []
    )
    read_only: list[JsonValue] = (
        [{"name": traces, "mountPath": f"{DATA_DIR}/s3", "readOnly": True}] if settings.trace_claim else []
    )
    volumes: list[JsonValue] = [{"name": "data", "emptyDir": {"sizeLimit": settings.disk_limit}}]
    if settings.trace_claim:
        volumes.append({"name": "traces", "persistentVolumeClaim": {"claimName": settings.trace_claim}})
    spec: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": settings.grace_s,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _pod_security(settings),
        "initContainers": [
            {
                **_container(settings, FETCH, settings.fetch_cmd, fetch_env),
                "resources": {
                    "requests": {"cpu": "100m", "memory": "256Mi"},
                    "limits": {"memory": "1Gi"},
                },
                "volumeMounts": [*scratch, *shared],
            }
        ],
        "containers": [
            {
                **_container(settings, SIMULATOR, sim_cmd, simulator_env),
                "resources": {"requests": _requests(settings), "limits": _limits(settings)},
                "volumeMounts": [*scratch, *read_only],
            }
        ],
        "volumes": volumes,
    }
    optional: dict[str, JsonValue] = {
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [toleration.model_dump(exclude_none=True) for toleration in settings.tolerations],
        "imagePullSecrets": [{"name": settings.image_pull_secret}] if settings.image_pull_secret else None,
    }
    return spec | {name: value for name, value in optional.items() if value}


def _container(settings: KubernetesSettings, name: str, command: str, env: list[JsonValue]) -> Manifest:
    return {
        "name": name,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        # Without a shell, so that the simulator itself gets the signals.
        "command": [_literal(argument) for argument in shlex.split(command)],
        "env": env,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _pod_security(settings: KubernetesSettings) -> Manifest:
    security: Manifest = {"seccompProfile": {"type": "RuntimeDefault"}}
    if settings.run_as_user is not None:
        security |= {"runAsUser": settings.run_as_user, "runAsNonRoot": True}
    if settings.run_as_group is not None:
        security |= {"runAsGroup": settings.run_as_group, "fsGroup": settings.run_as_group}
    return security


def _requests(settings: KubernetesSettings) -> Manifest:
    return {
        "cpu": settings.cpu_request,
        "memory": settings.memory_request,
        "ephemeral-storage": settings.disk_request,
    }


def _limits(settings: KubernetesSettings) -> Manifest:
    limits: Manifest = {"memory": settings.memory_limit, "ephemeral-storage": settings.disk_limit}
    return limits | {"cpu": settings.cpu_limit} if settings.cpu_limit else limits


def _simulator_env(
    contract: dict[str, str], settings: KubernetesSettings, *, token_optional: bool, own_token: bool
) -> list[JsonValue]:
    env: list[JsonValue] = [
        {"name": name, "value": _literal(value)}
        for name, value in contract.items()
        if own_token or name != "CASCADE_TOKEN"
    ]
    if not own_token:
        env.append(_secret("CASCADE_TOKEN", settings.token_secret, "token", optional=token_optional))
    return env


def _fetch_env(
    contract: dict[str, str], bucket_environment: dict[str, str], settings: KubernetesSettings
) -> list[JsonValue]:
    plain = bucket_environment | {"CASCADE_TRACE_DIR": contract["CASCADE_TRACE_DIR"]}
    env: list[JsonValue] = [{"name": name, "value": _literal(value)} for name, value in plain.items()]
    if settings.s3_secret is not None:
        env.append(_secret("CASCADE_S3_ACCESS_KEY", settings.s3_secret, "access-key", optional=False))
        env.append(_secret("CASCADE_S3_SECRET_KEY", settings.s3_secret, "secret-key", optional=False))
    return env


def _literal(value: str) -> str:
    # Kubernetes replaces `$(NAME)` in values and arguments; a doubled dollar sign stands for itself.
    return value.replace("$", "$$")


def _secret(variable: str, secret: str, key: str, *, optional: bool) -> JsonValue:
    reference: dict[str, JsonValue] = {"name": secret, "key": key}
    if optional:
        reference["optional"] = True
    return {"name": variable, "valueFrom": {"secretKeyRef": reference}}
