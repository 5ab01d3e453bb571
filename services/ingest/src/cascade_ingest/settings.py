"""Ingest's settings, read once from the environment in `main`."""

from pathlib import Path

from cascade_core.settings import BucketSettings, NatsSettings, TelemetrySettings
from pydantic import Field
from pydantic_settings import SettingsConfigDict

POSTPROCESSOR = Path("util/tracer_nvbit/tracer_tool/traces-processing/post-traces-processing")


class IngestSettings(NatsSettings, BucketSettings, TelemetrySettings):
    """Everything ingest needs to know."""

    model_config = SettingsConfigDict(
        env_prefix="CASCADE_", frozen=True, extra="ignore", env_ignore_empty=True, populate_by_name=True
    )

    data_dir: Path = Field(
        default=Path("/data"), description="Where scratch files and post-processing logs go."
    )
    accelsim_dir: Path = Field(
        default=Path("/opt/accel-sim-framework"),
        description="Accel-Sim checkout that holds the post-processor.",
    )
    postprocess_cmd: str | None = Field(
        default=None,
        description="Accel-Sim's trace post-processor. Default: the one under CASCADE_ACCELSIM_DIR.",
    )
    scan_interval_s: float = Field(
        default=2.0, gt=0, le=3600, description="Time between two scans of the bucket. [s]"
    )
    s3_events_subject: str = Field(
        default="minio.events",
        description="NATS subject of bucket notifications; they only hasten the next scan.",
    )

    @property
    def postprocess_command(self) -> str:
        """The command that is used."""
        return self.postprocess_cmd or str(self.accelsim_dir / POSTPROCESSOR)
