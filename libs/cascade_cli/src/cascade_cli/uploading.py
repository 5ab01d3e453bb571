"""`cascade upload`: a trace directory into the app's bucket, and its way to ready."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import typer
from cascade_client.client import CascadeClient
from cascade_client.errors import NotFound
from cascade_client.upload import (
    JsonValue,
    UploadedFile,
    UploadError,
    UploadReport,
    parse_meta,
    upload_trace,
)
from cascade_client.wire.traces import TraceDetail, TraceState
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from cascade_cli.connecting import connected, find_app
from cascade_cli.output import fail, print_json, stderr

POLL_S: Final = 1.0
APPEARS_WITHIN_S: Final = 60.0
"""The app lists its bucket every two seconds; a trace that it has not seen by then lies in another bucket."""


class BucketSettings(BaseSettings):
    """Where uploads go, where the environment says so."""

    model_config = SettingsConfigDict(
        env_prefix="CASCADE_S3_", frozen=True, extra="ignore", env_ignore_empty=True
    )

    endpoint: str | None = Field(default=None, description="The S3 endpoint. Default: what the app names.")
    bucket: str | None = Field(default=None, description="The bucket. Default: cascade.")
    prefix: str = Field(default="accelsim-traces", description="The key prefix that traces live under.")
    access_key: str | None = Field(default=None, description="Without keys, requests are unsigned.")
    secret_key: SecretStr | None = Field(default=None, description="The secret of the access key.")


class Bar:
    """An upload's progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("uploading", total=None)

    def started(self, *, files: int, size_bytes: int) -> None:
        """The directory has been read."""
        self._progress.update(self._task, total=size_bytes, description=f"uploading {files} files")

    def advanced(self, size_bytes: int) -> None:
        """More bytes are in the bucket."""
        self._progress.advance(self._task, size_bytes)

    def finished(self, file: UploadedFile) -> None:
        """A file is complete; the bar has it already."""


def run_upload(directory: Path, *, run_name: str, meta: Sequence[str], wait: bool, as_json: bool) -> int:
    """Upload and, if asked, wait for the trace; the exit code."""
    try:
        entries = dict(map(parse_meta, meta))
    except ValueError as error:
        fail(str(error), code=2)
    try:
        report = asyncio.run(_upload(directory, run_name=run_name, entries=entries))
    except UploadError as error:
        fail(str(error))
    except KeyboardInterrupt:
        typer.echo("cascade: interrupted; run the same command again to go on", err=True)
        return 130
    trace = _ready(run_name) if wait else None
    if as_json:
        print_json(
            {
                "trace_id": run_name,
                "uri": report.uri,
                "files": len(report.files),
                "sent_bytes": report.sent_bytes,
                "state": trace.state.value if trace is not None else None,
                "error": trace.error if trace is not None else None,
            }
        )
    else:
        typer.echo(f"uploaded {len(report.files)} files to {report.uri}")
        if trace is not None:
            typer.echo(f"trace {run_name} is {trace.state}" + (f": {trace.error}" if trace.error else ""))
    return 1 if trace is not None and trace.state is TraceState.FAILED else 0


async def _upload(directory: Path, *, run_name: str, entries: dict[str, JsonValue]) -> UploadReport:
    settings = BucketSettings()
    endpoint, bucket = settings.endpoint, settings.bucket
    access, secret = (
        settings.access_key,
        settings.secret_key.get_secret_value() if settings.secret_key else None,
    )
    if endpoint is None:
        app = find_app()
        if app.here is not None:
            endpoint, bucket = app.here.s3_endpoint, bucket or app.here.s3_bucket
            access, secret = app.here.s3_access_key, app.here.s3_secret_key
        else:
            endpoint = await asyncio.to_thread(_endpoint_of_app)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        return await upload_trace(
            directory,
            endpoint=endpoint,
            bucket=bucket or "cascade",
            prefix=settings.prefix,
            run_name=run_name,
            meta=entries,
            access_key=access,
            secret_key=secret,
            progress=Bar(progress),
        )


def _endpoint_of_app() -> str:
    with connected() as client:
        return client.health().s3_endpoint


def _ready(trace_id: str) -> TraceDetail:
    """The trace once the app has settled it."""
    deadline = time.monotonic() + APPEARS_WITHIN_S
    with connected() as client:
        while True:
            trace = _seen(client, trace_id)
            if trace is not None and trace.state in (TraceState.READY, TraceState.FAILED):
                return trace
            if trace is None and time.monotonic() > deadline:
                fail(
                    f"the app has not seen trace {trace_id} within {APPEARS_WITHIN_S:.0f} s of its upload",
                    "check that CASCADE_S3_ENDPOINT, _BUCKET and _PREFIX are the app's own",
                )
            time.sleep(POLL_S)


def _seen(client: CascadeClient, trace_id: str) -> TraceDetail | None:
    try:
        return client.trace(trace_id)
    except NotFound:
        return None
