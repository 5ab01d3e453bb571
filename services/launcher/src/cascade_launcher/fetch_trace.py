"""`python -m cascade_launcher.fetch_trace`: put a trace on this disk, for a simulator that starts afterwards.

Runs in a sim's own pod or sandbox, before the simulator, so that every simulator finds its trace there whatever it is.
Reads `CASCADE_TRACE_URL`, `CASCADE_TRACE_DIR` and the S3 settings. Where it is told of the sim, it says meanwhile that
the sim is alive; a pod is not told, since Kubernetes itself shows that its simulator has not begun.
"""

import asyncio
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cascade_core import telemetry
from cascade_core.errors import CascadeError
from cascade_core.s3 import bucket
from cascade_core.settings import BaseUrl, BucketSettings, TelemetrySettings, Token, load
from pydantic import Field, SecretStr, field_validator

from cascade_launcher.fetch_beats import beating
from cascade_launcher.retry import persistently
from cascade_launcher.trace_files import materialise
from cascade_launcher.trace_paths import index_name

TRIES = 12
"""About four minutes of a bucket that does not answer."""


class FetchSettings(BucketSettings, TelemetrySettings):
    """What to fetch, and whereto."""

    trace_url: str = Field(description="Where the trace lies, `s3://bucket/prefix/trace-id`.")
    trace_dir: Path = Field(description="The trace's directory.")
    sim_id: str | None = Field(
        default=None, description="The sim to send heartbeats for during the fetch; none without."
    )
    main_url: BaseUrl | None = Field(default=None, description="Where heartbeats go; none are sent without.")
    token: Token = Field(default=SecretStr(""), description="The bearer token that heartbeats carry.")

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
        with _heartbeats(settings):
            asyncio.run(fetch(settings))
    except CascadeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _heartbeats(settings: FetchSettings) -> AbstractContextManager[None]:
    if settings.sim_id is None or settings.main_url is None:
        return nullcontext()
    return beating(
        main_url=settings.main_url, sim_id=settings.sim_id, token=settings.token.get_secret_value()
    )


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
                index_path=directory.parent / f".{index_name(directory.name)}.index.json",
            ),
            tries=TRIES,
            what="launcher prepare",
        )


if __name__ == "__main__":
    sys.exit(main())
