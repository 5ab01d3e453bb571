"""Where a test's gateway finds its servers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cascade_api.settings import ApiSettings

TOKEN = "correct-horse-battery-staple"  # noqa: S105 - a test's own


@dataclass(frozen=True, slots=True)
class Servers:
    """The URLs of real servers and the settings of a gateway on them."""

    nats_url: str
    database_url: str
    s3_endpoint: str
    s3_access_key: str | None
    s3_secret_key: str | None
    s3_internal_bucket: str
    accelsim_dir: Path

    def settings(self, **changes: Any) -> ApiSettings:
        """Settings for these servers, with `changes`."""
        values: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": 0,
            "token": TOKEN,
            "nats_url": self.nats_url,
            "database_url": self.database_url,
            "s3_endpoint": self.s3_endpoint,
            "s3_access_key": self.s3_access_key,
            "s3_secret_key": self.s3_secret_key,
            "s3_internal_bucket": self.s3_internal_bucket,
            "accelsim_dir": self.accelsim_dir,
            "workspace": "acme-lab",
        }
        return ApiSettings(**(values | changes))
