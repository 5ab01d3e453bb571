"""The gateway's settings, read once from the environment in `main`."""

from pathlib import Path

from cascade_core.settings import BucketSettings, NatsSettings, TelemetrySettings, Token
from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict


class ApiSettings(NatsSettings, BucketSettings, TelemetrySettings):
    """Everything the gateway needs to know."""

    model_config = SettingsConfigDict(
        env_prefix="CASCADE_", frozen=True, extra="ignore", env_ignore_empty=True, populate_by_name=True
    )

    host: str = Field(default="0.0.0.0", description="Address that the HTTP server listens on.")  # noqa: S104 - spec
    port: int = Field(default=8000, ge=0, le=65535, description="Port of the HTTP server.")
    token: Token | None = Field(default=None, description="Bearer token that every request must carry.")
    no_auth: bool = Field(default=False, description="Serve without a token. For local development only.")
    database_url: SecretStr = Field(
        default=SecretStr("postgresql://cascade@127.0.0.1:5432/cascade"),
        description="URL of the Postgres database.",
    )
    workspace: str | None = Field(default=None, description="Name that the dashboard shows in its rail.")
    accelsim_dir: Path | None = Field(
        default=None, description="Accel-Sim's directory, where the GPU configs are found."
    )
    web_dir: Path | None = Field(
        default=None, description="Built dashboard; the bundled one where it is left out."
    )
    archive_after_s: float = Field(
        default=60.0,
        ge=0,
        description="How long an ended sim's log stays in the stream before it is archived. [s]",
    )
    openai_wait_s: float = Field(
        default=3600.0,
        gt=0,
        le=86_400,
        description="How long a scenario or completion waits for its simulation. [s]",
    )
    tokenizer_dir: Path = Field(
        default=Path("~/.cache/huggingface/hub"),
        description="Local tokenizers, in a directory a model or in the layout of Hugging Face's cache. "
        "Nothing is downloaded.",
    )

    @model_validator(mode="after")
    def _token_or_no_auth(self) -> "ApiSettings":
        if self.no_auth or (self.token is not None and self.token.get_secret_value()):
            return self
        raise ValueError(
            "CASCADE_TOKEN is not set. Set it, or set CASCADE_NO_AUTH=1 to serve without a token"
        )
