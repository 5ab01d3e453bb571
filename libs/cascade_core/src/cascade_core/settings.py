"""Settings groups that several services share. Each service composes its own settings class from them.

Read once, in a service's `main`. A wrong setting ends the process with one line that names the variable.
"""

import sys
from typing import Annotated, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

_CONFIG = SettingsConfigDict(env_prefix="CASCADE_", frozen=True, extra="ignore", env_ignore_empty=True)


def _sendable(token: SecretStr) -> SecretStr:
    text = token.get_secret_value()
    if text != text.strip() or not text.isprintable():
        raise ValueError(
            "it begins or ends with a blank or a line end, or holds a character that no header can carry. Remove it"
        )
    return token


Token: TypeAlias = Annotated[SecretStr, AfterValidator(_sendable)]
"""A bearer token that a client can send: what surrounds a header's value is dropped on the way."""


def _base_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("it is no URL such as http://127.0.0.1:8000")
    return url.rstrip("/")


BaseUrl: TypeAlias = Annotated[str, AfterValidator(_base_url)]
"""A URL that paths are put behind: without a slash at its end, since many clients just join the two."""


class NatsSettings(BaseSettings):
    """Where the event log lives."""

    model_config = _CONFIG

    nats_url: str = Field(
        default="nats://127.0.0.1:4222", description="URL of the NATS server with JetStream."
    )
    nats_user: str | None = Field(default=None, description="NATS user, where the URL holds none.")
    nats_password: SecretStr | None = Field(default=None, description="NATS password.")
    nats_replicas: int = Field(
        default=1, ge=1, le=5, description="Replicas of the stream; 3 on a cluster of three servers."
    )

    @model_validator(mode="before")
    @classmethod
    def _one_login(cls, values: dict[str, object]) -> dict[str, object]:
        # The client would prefer the user to the URL's: a login of another server, from the shell, to the one it names.
        if "@" not in str(values.get("nats_url", "")):
            return values
        return {name: value for name, value in values.items() if name not in ("nats_user", "nats_password")}


class BucketSettings(BaseSettings):
    """Where traces, output files and archived logs live."""

    model_config = _CONFIG

    s3_endpoint: BaseUrl = Field(
        default="http://127.0.0.1:9000", description="S3 endpoint as the services reach it."
    )
    s3_public_url: BaseUrl | None = Field(
        default=None, description="S3 endpoint as profilers reach it, where it differs."
    )
    s3_bucket: str = Field(default="cascade", description="Bucket that uploads go to.")
    s3_internal_bucket: str = Field(
        default="cascade-internal",
        description="Bucket for output files and archived logs, never open to uploads.",
    )
    s3_prefix: str = Field(
        default="accelsim-traces", description="Key prefix under which each trace is a directory."
    )
    s3_access_key: str | None = Field(default=None, description="Access key; anonymous where it is left out.")
    s3_secret_key: SecretStr | None = Field(default=None, description="Secret key.")
    s3_region: str = Field(default="us-east-1", description="Region that requests are signed for.")


class TelemetrySettings(BaseSettings):
    """Logs, traces and metrics."""

    model_config = _CONFIG

    log_format: str = Field(default="console", pattern="^(console|json)$", description="`console` or `json`.")
    log_level: str = Field(
        default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="Lowest level that is written."
    )
    otlp_endpoint: str | None = Field(
        default=None,
        description="OTLP/HTTP endpoint that spans are sent to; none are sent where it is left out.",
    )
    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port for Prometheus metrics of a service without HTTP; none by default.",
    )
    metrics_host: str = Field(
        default="0.0.0.0",  # noqa: S104 - a scraper runs elsewhere
        description="Address that the metrics are shown on.",
    )


S = TypeVar("S", bound=BaseSettings)


def load(settings: type[S]) -> S:
    """The settings from the environment, or the end of the process with a line for each wrong variable."""
    try:
        return settings()
    except ValidationError as error:
        for problem in error.errors():
            said = problem["msg"].removeprefix("Value error, ")
            prefix = settings.model_config.get("env_prefix", "")
            name = prefix + "_".join(str(part) for part in problem["loc"]).upper()
            # A rule over several variables names them itself.
            line = (
                f"{name}: {said}. Set it in the environment and start again."
                if problem["loc"]
                else f"{said}."
            )
            print(line, file=sys.stderr)
        raise SystemExit(2) from error
