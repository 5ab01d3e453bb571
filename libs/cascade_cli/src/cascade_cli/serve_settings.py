"""What `cascade serve` reads from the environment. Flags replace single values."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import asyncpg
from cascade_core.settings import BaseUrl, BucketSettings, NatsSettings, TelemetrySettings, Token, load
from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from cascade_cli import bundled

DEFAULT_ACCELSIM_DIR = Path("/opt/accel-sim-framework")
ACCELSIM_BINARY = Path("gpu-simulator") / "bin" / "release" / "accel-sim.out"
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - addresses that include the loopback


def worker_command(*options: str) -> str:
    """A `CASCADE_SIM_CMD` that runs the built-in simulator client of this installation, wherever that lies."""
    return shlex.join((sys.executable, "-m", "cascade_worker", *options))


def _postgres_url(url: SecretStr) -> SecretStr:
    # No more than the scheme: a Postgres URL may name several hosts, or none.
    if urlsplit(url.get_secret_value()).scheme not in ("postgresql", "postgres"):
        raise ValueError("it is no URL such as postgresql://user@127.0.0.1:5432/cascade")
    return url


DATABASE_PROBLEMS: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError)
"""What connecting to the database that a URL names may raise: the driver reads the URL only then."""


class ServeSettings(BaseSettings):
    """The whole app on one machine."""

    model_config = SettingsConfigDict(
        env_prefix="CASCADE_", frozen=True, extra="ignore", env_ignore_empty=True, populate_by_name=True
    )

    token: Token | None = Field(
        default=None,
        description="The shared bearer token. The UI and every sim send it. "
        "The app refuses to start without it unless CASCADE_NO_AUTH is set.",
    )
    sim_tokens: bool = Field(
        default=False,
        description="Whether each sim gets a token of its own, which opens that sim's routes only. "
        "The shared token keeps working.",
    )
    no_auth: bool = Field(
        default=False,
        description="Local development only: any request is accepted. Never set it where others reach.",
    )
    data_dir: Path = Field(
        default=Path("data"), description="Where the embedded servers, local traces and scratch files live."
    )
    accelsim_dir: Path | None = Field(
        default=None,
        description="Accel-Sim checkout whose GPU configs are offered. Default: /opt/accel-sim-framework where it "
        "exists, else the bundled configs.",
    )
    sim_cmd: str | None = Field(
        default=None,
        description="The command each sim runs. Default: `cascade worker` where Accel-Sim's binary is found, "
        "else the analytical estimate, `cascade worker --engine estimate`.",
    )
    postprocess_cmd: str | None = Field(
        default=None,
        description="Accel-Sim's trace post-processor. Default: the one under CASCADE_ACCELSIM_DIR.",
    )
    heartbeat_timeout_s: float = Field(
        default=60,
        gt=0,
        le=86_400,
        description="Seconds without a heartbeat before a sim becomes lost; failed after 10 times.",
    )
    openai_wait_s: float = Field(
        default=3600,
        gt=0,
        le=86_400,
        description="Seconds that /v1 and /api/scenarios wait for step timing before 504.",
    )
    run_s3: bool = Field(
        default=True,
        description="Whether the embedded S3 endpoint is started. Where it is not, CASCADE_S3_ENDPOINT must name one.",
    )
    workspace: str | None = Field(default=None, description="The workspace's name, shown in the UI's rail.")
    samples: bool = Field(default=True, description="Whether the bundled samples are seeded on start.")
    public_url: BaseUrl | None = Field(
        default=None,
        description="The URL sims use to reach the app. Default: http://127.0.0.1 and the port, or the "
        "host that it listens on alone.",
    )
    s3_bucket: str = Field(
        default="cascade",
        pattern=r"^[a-z0-9][a-z0-9.-]{1,52}[a-z0-9]$",  # 63 at most, with what the internal one adds to it
        description="The bucket the profiler uploads to.",
    )
    s3_prefix: str = Field(default="accelsim-traces", description="The key prefix traces live under.")
    s3_public_url: BaseUrl | None = Field(
        default=None, description="The S3 endpoint the profiler uploads to."
    )
    s3_anonymous: bool = Field(
        default=True, description="Whether the embedded S3 endpoint takes unsigned uploads into the bucket."
    )
    nats_url: str | None = Field(
        default=None, description="External NATS with JetStream instead of the embedded one."
    )
    database_url: Annotated[SecretStr, AfterValidator(_postgres_url)] | None = Field(
        default=None, description="External Postgres instead of the embedded one."
    )
    s3_endpoint: BaseUrl | None = Field(default=None, description="External S3 instead of the embedded one.")
    s3_access_key: str | None = Field(default=None, description="Access key of the external S3.")
    s3_secret_key: SecretStr | None = Field(default=None, description="Secret key of the external S3.")
    host: str = Field(default="0.0.0.0", description="Address that the app listens on.")  # noqa: S104 - spec
    port: int = Field(default=8000, ge=0, le=65535, description="Port of the app.")
    s3_port: int = Field(default=9000, ge=0, le=65535, description="Port of the embedded S3 endpoint.")
    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65532,
        description="Port on 127.0.0.1 for ingest's Prometheus metrics; launcher, parser and requestsim take the next "
        "three. None by default; the API shows its own at /api/metrics.",
    )
    sims: str = Field(
        default="local",
        pattern="^(local|kubernetes|sail|modal)$",
        description="Where sims run: local, kubernetes, sail or modal.",
    )

    @model_validator(mode="after")
    def _token_or_no_auth(self) -> "ServeSettings":
        if self.no_auth or (self.token is not None and self.token.get_secret_value()):
            return self
        raise ValueError(
            "CASCADE_TOKEN is not set. Set it, or set CASCADE_NO_AUTH=1 to serve without a token"
        )

    def local_url(self) -> str:
        """Where the app answers on this machine."""
        host = self.host if self.host not in _EVERYWHERE else "127.0.0.1"
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def resolved_accelsim_dir(self) -> Path:
        """The Accel-Sim directory that is used."""
        if self.accelsim_dir is not None:
            return self.accelsim_dir
        return DEFAULT_ACCELSIM_DIR if DEFAULT_ACCELSIM_DIR.is_dir() else bundled.CONFIGS

    def resolved_sim_cmd(self) -> str:
        """The simulator command that is used."""
        if self.sim_cmd is not None:
            return self.sim_cmd
        if (self.resolved_accelsim_dir() / ACCELSIM_BINARY).is_file():
            return worker_command()
        return worker_command("--engine", "estimate")


def loaded() -> ServeSettings:
    """The settings of the environment, or the end of the process with a line for each wrong variable."""
    settings = load(ServeSettings)
    # Parts of the app read these again, on top of what it gives them.
    for group in (NatsSettings, BucketSettings, TelemetrySettings):
        load(group)
    return settings


def loaded_by_operator() -> ServeSettings:
    """The same for a command that serves no request, and so needs no token."""
    os.environ.setdefault("CASCADE_NO_AUTH", "1")
    return loaded()
