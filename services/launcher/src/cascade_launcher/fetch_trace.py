"""`python -m cascade_launcher.fetch_trace`: put a trace on this disk, for a simulator that starts afterwards.

Runs in a sim's own pod or sandbox, before the simulator, so that every simulator finds its trace there whatever it is.
Reads `CASCADE_TRACE_URL`, `CASCADE_TRACE_DIR` and the S3 settings.
"""

import asyncio
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cascade_core import telemetry
from cascade_core.errors import CascadeError
from cascade_core.s3 import bucket
from cascade_core.settings import BucketSettings, TelemetrySettings, load
from pydantic import Field, field_validator

from cascade_launcher.retry import persistently
from cascade_launcher.trace_files import materialise

TRIES = 12
"""About four minutes of a bucket that does not answer."""


class FetchSettings(BucketSettings, TelemetrySettings):
    """What to fetch, and whereto."""

    trace_url: str = Field(description="Where the trace lies, `s3://bucket/prefix/trace-id`.")
    trace_dir: Path = Field(description="The trace's directory.")

    @field_validator("trace_url")
    @classmethod
    def _is_a_place_in_a_bucket(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme != "s3" or not parts.netloc or not parts.path.strip("/"):
            raise ValueError("must look like s3://bucket/prefix/trace-id")
        return value


def main() -> int:
    """Fetch; returns the exit code, 0 once the trace lies in its directory."""
    settings = load(FetchSettings)
    telemetry.configure(settings, service="fetch-trace")
    try:
        asyncio.run(fetch(settings))
    except CascadeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def fetch(settings: FetchSettings) -> None:
    """Raises LaunchError."""
    parts = urlsplit(settings.trace_url)
    directory = settings.trace_dir.absolute()
    async with bucket.opened(settings, bucket=parts.netloc) as traces:
        await persistently(
            lambda: materialise(
                traces,
                prefix=unquote(parts.path).strip("/") + "/",
                directory=directory,
                index_path=directory.parent / f".{directory.name[:200]}.index.json",
            ),
            tries=TRIES,
            what="launcher prepare",
        )


if __name__ == "__main__":
    sys.exit(main())
