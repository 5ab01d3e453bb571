"""What the Modal backend is told besides the `MODAL_*` variables, which the SDK reads itself."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ModalSettings(BaseSettings):
    """How sims run as Modal sandboxes. Read only with `CASCADE_SIMS=modal`."""

    model_config = SettingsConfigDict(
        env_prefix="CASCADE_MODAL_", frozen=True, extra="ignore", env_ignore_empty=True
    )

    image: str = Field(
        min_length=1, description="Image in a registry that sims run; the app's own holds all they need."
    )
    image_secret: str | None = Field(default=None, description="Modal Secret with the registry's login.")
    app: str = Field(
        default="cascade-sims",
        min_length=1,
        max_length=64,
        description="Modal app that holds the sandboxes; each Cascade needs one of its own.",
    )
    traces: Literal["fetch", "mount"] = Field(
        default="fetch",
        description="`fetch`: each sandbox copies its trace from the bucket; `mount`: it reads the bucket in place.",
    )
    s3_endpoint: str | None = Field(
        default=None,
        description="S3 endpoint as Modal reaches it, where it differs from CASCADE_S3_ENDPOINT.",
    )
    s3_secret: str | None = Field(
        default=None,
        description="Modal Secret with read access to the traces: CASCADE_S3_ACCESS_KEY and CASCADE_S3_SECRET_KEY, "
        "or with `mount` AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Anonymous without.",
    )
    fetch_cmd: str = Field(
        default="python -m cascade_launcher.fetch_trace",
        description="Puts the trace on the sandbox's disk before the simulator starts.",
    )
    cpu: float = Field(default=1.0, gt=0, le=64, description="CPU cores that a sim asks for.")
    memory_mib: int = Field(default=4096, ge=128, description="Memory that a sim asks for. [MiB]")
    memory_limit_mib: int | None = Field(
        default=None, ge=128, description="Memory beyond which a sim is killed; none by default. [MiB]"
    )
    lifetime_s: int = Field(
        default=86_400, ge=60, le=86_400, description="Wall time after which Modal ends a sandbox. [s]"
    )
    region: str | None = Field(default=None, description="Region that sandboxes run in.")
