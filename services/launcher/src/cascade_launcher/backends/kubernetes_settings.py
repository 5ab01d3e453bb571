"""What the Kubernetes backend is told, and the defaults that suit a small cluster."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")


def _quantity(value: str) -> str:
    if _QUANTITY.fullmatch(value) is None:
        raise ValueError("must be a Kubernetes quantity such as 500m, 4 or 8Gi")
    return value


Quantity = Annotated[str, AfterValidator(_quantity)]


def _own_namespace() -> str:
    try:
        return _NAMESPACE_FILE.read_text().strip() or "default"
    except OSError:
        return "default"


class Toleration(BaseModel):
    """One toleration, as in a pod's spec."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class KubernetesSettings(BaseSettings):
    """How sims run as Jobs. Read only with `CASCADE_SIMS=kubernetes`."""

    model_config = SettingsConfigDict(
        env_prefix="CASCADE_K8S_", frozen=True, extra="ignore", env_ignore_empty=True
    )

    image: str = Field(min_length=1, description="Image that sims run; the app's own holds all they need.")
    namespace: str = Field(
        default_factory=_own_namespace,
        description="Namespace of the Jobs; by default the launcher's own.",
    )
    instance: str = Field(
        default="cascade",
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        description="Tells the Jobs of this Cascade from those of another one in the same namespace.",
    )
    service_account: str | None = Field(
        default=None, description="Service account of the pods; they get no token of it."
    )
    image_pull_policy: str = Field(
        default="IfNotPresent",
        pattern="^(Always|IfNotPresent|Never)$",
        description="When the image is pulled.",
    )
    image_pull_secret: str | None = Field(default=None, description="Secret with the registry's login.")
    token_secret: str = Field(
        default="cascade-token", description="Secret that holds the bearer token under `token`."
    )
    s3_secret: str | None = Field(
        default=None,
        description="Secret with read access to the traces under `access-key` and `secret-key`; anonymous without.",
    )
    s3_endpoint: str | None = Field(
        default=None, description="S3 endpoint as pods reach it, where it differs from CASCADE_S3_ENDPOINT."
    )
    fetch_cmd: str = Field(
        default="python -m cascade_launcher.fetch_trace",
        description="Puts the trace on the pod's disk before the simulator starts, split into arguments.",
    )
    trace_claim: str | None = Field(
        default=None,
        description="PersistentVolumeClaim that pods share for traces; without one, each pod fetches its own.",
    )
    cpu_request: Quantity = Field(default="1", description="CPUs that a sim asks for.")
    cpu_limit: Quantity | None = Field(
        default=None, description="CPUs that a sim may use; unlimited by default."
    )
    memory_request: Quantity = Field(default="4Gi", description="Memory that a sim asks for.")
    memory_limit: Quantity = Field(default="16Gi", description="Memory beyond which a sim is killed.")
    disk_request: Quantity = Field(default="10Gi", description="Scratch disk that a sim asks for.")
    disk_limit: Quantity = Field(
        default="100Gi", description="Scratch disk, trace included, beyond which a pod is evicted."
    )
    node_selector: dict[str, str] = Field(
        default={}, description="Labels of nodes that sims may run on, as JSON."
    )
    tolerations: list[Toleration] = Field(default=[], description="Taints that sims tolerate, as JSON.")
    priority_class: str | None = Field(default=None, description="Priority class of the pods.")
    run_as_user: int | None = Field(
        default=None, ge=1, description="User id of the pods; the image's by default."
    )
    run_as_group: int | None = Field(
        default=None, ge=1, description="Group id that may write the scratch disk."
    )
    keep_finished_s: int = Field(
        default=3600, ge=0, le=2_592_000, description="How long a finished Job stays to be looked at. [s]"
    )
    grace_s: int = Field(
        default=30, ge=10, le=3600, description="From SIGTERM to SIGKILL when a sim is stopped. [s]"
    )
    start_trouble_s: int = Field(
        default=300,
        ge=0,
        le=86_400,
        description="How long an image or a secret may be missing before the sim fails. [s]",
    )
