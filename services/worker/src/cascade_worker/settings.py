"""The worker's environment and command line as typed values, read once.

The first six variables are the contract between a launcher and any simulator (spec: simulator, The contract);
the rest belong to this worker alone and all have a default.
"""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from cascade_worker.errors import SettingsError

Engine: TypeAlias = Literal["accel-sim", "replay", "estimate"]
"""What makes the numbers; travels with every heartbeat as the sim's provenance."""

# The sim id names a directory that the worker empties and a part of every URL, the attempt id goes into a
# header.
_TOKEN = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,128}")


def _plain_token(value: str) -> str:
    if _TOKEN.fullmatch(value) is None:
        raise ValueError("may hold only letters, digits, '.', '_' and '-' (1 to 128), and not be '.' or '..'")
    return value


def _one_directory_name(value: str) -> str:
    if value in ("", ".", "..") or "/" in value or "\0" in value:
        raise ValueError("must be the name of one directory under tested-cfgs")
    return value


def _sendable(token: SecretStr) -> SecretStr:
    # The launcher may be another program, and what surrounds a header's value is dropped on the way.
    text = token.get_secret_value().strip()
    if not text.isprintable():
        raise ValueError("holds a line break or another character that no header can carry")
    return SecretStr(text)


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL that starts with http:// or https:// and names a host")
    return value.rstrip("/")


def _s3_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme != "s3" or not parts.hostname or not parts.path.strip("/"):
        raise ValueError("must look like s3://bucket/prefix/trace-id")
    return value


class WorkerSettings(BaseSettings):
    """Everything the worker takes from its environment."""

    model_config = SettingsConfigDict(
        env_prefix="CASCADE_",
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        hide_input_in_errors=True,  # a wrong token must not end up in a log
        populate_by_name=True,
    )

    sim_id: Annotated[str, AfterValidator(_plain_token)] = Field(description="This sim's id.")
    main_url: Annotated[str, AfterValidator(_http_url)] = Field(description="The gateway's base URL.")
    token: Annotated[SecretStr, AfterValidator(_sendable)] = Field(
        default=SecretStr(""), description="Bearer token; may be absent where the app runs without."
    )
    gpu_config: Annotated[str, AfterValidator(_one_directory_name)] = Field(
        description="The config to simulate, such as SM90_H100."
    )
    trace_dir: Path = Field(description="The trace's directory; its list is traces/kernelslist.g below.")
    accelsim_dir: Path | None = Field(
        default=None, description="Where Accel-Sim and its configs live. Not needed to replay a log."
    )
    attempt: Annotated[str, AfterValidator(_plain_token)] | None = Field(
        default=None,
        description="The launcher's id for this start, sent back so that a second start is fenced off.",
    )
    tmp_dir: Path = Field(
        default_factory=lambda: Path(tempfile.gettempdir()),
        validation_alias="TMPDIR",
        description="Holds cascade-worker/<sim id>/, the run directory.",
    )
    keep_sim_files_days: float = Field(
        default=14.0,
        gt=0,
        le=36_500,
        description="How long run directories of earlier sims are kept there. [days]",
    )

    heartbeat_interval_s: float = Field(default=5.0, gt=0, le=60, description="Pause between heartbeats. [s]")
    retry_for_s: float = Field(
        default=3600.0,
        ge=0,
        le=86400,
        description="How long a log chunk or the final heartbeat is retried before the worker gives up. [s]",
    )
    upload_retry_for_s: float = Field(
        default=300.0,
        ge=0,
        le=86400,
        description="How long one output file is retried before it is skipped. [s]",
    )
    stop_grace_s: float = Field(
        default=5.0, ge=0, le=600, description="From SIGTERM to SIGKILL for a simulator that is to stop. [s]"
    )

    trace_url: Annotated[str, AfterValidator(_s3_url)] | None = Field(
        default=None,
        description="Where the trace lies, s3://bucket/prefix/trace-id, if not under the prefix below.",
    )
    s3_endpoint: Annotated[str, AfterValidator(_http_url)] | None = Field(
        default=None, description="S3 endpoint to fetch a trace from that is not on this disk."
    )
    s3_bucket: str = Field(default="cascade", min_length=1, description="Bucket of the traces.")
    s3_prefix: str = Field(default="accelsim-traces", description="Key prefix the traces live under.")
    s3_region: str = Field(default="us-east-1", min_length=1, description="Region name used in signatures.")
    s3_access_key: SecretStr | None = Field(
        default=None, description="Access key id. Without one, requests are unsigned."
    )
    s3_secret_key: SecretStr | None = Field(default=None, description="Secret access key.")

    @property
    def kernels_list(self) -> Path:
        """The processed trace's list of commands."""
        return self.trace_dir.absolute() / "traces" / "kernelslist.g"

    @property
    def run_dir(self) -> Path:
        """The directory that the simulator runs in."""
        return self.tmp_dir.absolute() / "cascade-worker" / self.sim_id

    def trace_location(self) -> tuple[str, str]:
        """Bucket and key prefix (with a trailing slash) of the trace."""
        if self.trace_url is not None:
            parts = urlsplit(self.trace_url)
            return parts.netloc, unquote(parts.path).strip("/") + "/"
        prefix = self.s3_prefix.strip("/")
        name = self.trace_dir.absolute().name
        return self.s3_bucket, f"{prefix}/{name}/" if prefix else f"{name}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The command line of `cascade worker`."""

    replay: Path | None = None
    """A recorded Accel-Sim log (.gz accepted) to send instead of running Accel-Sim."""
    delay_s: float = 0.05
    """Pause every 200 replayed lines. [s]"""
    replay_outputs: Path | None = None
    """A directory whose files are copied into the run directory as if the simulator wrote them."""
    estimate: bool = False
    """Use the built-in analytical estimate instead of Accel-Sim."""

    @property
    def engine(self) -> Engine:
        """What will make the numbers."""
        if self.replay is not None:
            return "replay"
        return "estimate" if self.estimate else "accel-sim"

    def check(self) -> None:
        """Raise SettingsError for flags that contradict each other."""
        if self.replay is not None and self.estimate:
            raise SettingsError("--replay and --engine estimate exclude each other: choose one of them")
        if self.replay_outputs is not None and self.replay is None:
            raise SettingsError(
                "--replay-outputs needs --replay LOG: it stands in for what a replayed run wrote"
            )
        if not 0 <= self.delay_s <= 3600:
            raise SettingsError(f"--delay is {self.delay_s}: give seconds from 0 to 3600")


def load_settings() -> WorkerSettings:
    """Read the environment. Raises SettingsError with one line that names each wrong variable."""
    try:
        return WorkerSettings()
    except ValidationError as error:
        problems = "; ".join(
            f"{_variable(problem['loc'])} {_reason(problem['type'], problem['msg'])}"
            for problem in error.errors()
        )
        raise SettingsError(f"cannot start: {problems}") from error


def _variable(location: tuple[int | str, ...]) -> str:
    name = str(location[0]) if location else "environment"
    return name if name.isupper() else f"CASCADE_{name.upper()}"


def _reason(kind: str, message: str) -> str:
    if kind == "missing":
        return "is not set (the launcher sets it for every sim)"
    return message.removeprefix("Value error, ")
