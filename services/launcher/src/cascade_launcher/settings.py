"""What the launcher takes from its environment, read once in `main`."""

from pathlib import Path
from typing import Literal

from cascade_core.settings import BaseUrl, BucketSettings, NatsSettings, TelemetrySettings, Token
from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

BackendName = Literal["local", "kubernetes", "sail", "modal"]


class LauncherSettings(NatsSettings, BucketSettings, TelemetrySettings):
    """Everything the launcher and its local backend are told. Each other backend has a group of its own."""

    model_config = SettingsConfigDict(
        env_prefix="CASCADE_",
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        hide_input_in_errors=True,  # a wrong token must not end up in a log
    )

    sims: BackendName = Field(
        default="local", description="Where sims run: `local`, `kubernetes`, `sail` or `modal`."
    )
    sim_cmd: str | None = Field(
        default=None, description="The command each sim runs. Without it, every sim fails at launch."
    )
    public_url: BaseUrl = Field(
        default="http://127.0.0.1:8000",
        description="The URL sims use to reach the app. Each sim gets it as `CASCADE_MAIN_URL`.",
    )
    token: Token = Field(
        default=SecretStr(""),
        description="The bearer token every sim sends; empty where the app runs without.",
    )
    sim_tokens: bool = Field(
        default=False,
        description="Whether each sim gets a token of its own, which opens that sim's routes only.",
    )
    data_dir: Path = Field(
        default=Path("/data"), description="Where traces (`s3/`) and sims' output (`work/sims/`) lie on disk."
    )
    accelsim_dir: Path = Field(
        default=Path("/opt/accel-sim-framework"),
        description="Accel-Sim checkout that sims use, handed to them as it is.",
    )
    heartbeat_timeout_s: float = Field(
        default=60.0,
        gt=0,
        le=86_400,
        description="Seconds without a heartbeat before a sim becomes `lost`; after 10 times this it fails. [s]",
    )
    launch_timeout_s: float = Field(
        default=3600.0,
        gt=0,
        le=604_800,
        description="How long a sim may wait for the platform (a node, an image) before it fails. [s]",
    )
    keep_sim_files_days: float = Field(
        default=14.0,
        gt=0,
        le=36_500,
        description="How long what an ended local sim left on disk is kept: its output and its run directory. [days]",
    )
