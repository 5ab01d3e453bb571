"""`cascade upload`: a trace directory into the app's bucket, and its way to ready."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import typer
from cascade_client.client import CascadeClient
from cascade_client.errors import ClientError, NotFound
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

from cascade_cli.connecting import connected, find_app, known_app
from cascade_cli.output import fail, print_json, stderr

SETTLED: Final = (TraceState.READY, TraceState.FAILED)
POLL_S: Final = 1.0
APPEARS_WITHIN_S: Final = 60.0
"""The app lists its bucket every two seconds; a trace that it has not seen by then lies in another bucket."""
UPLOADING_UNCHANGED_S: Final = 600.0
"""All is in the bucket, and even a listing of 100,000 objects takes a store only minutes."""
PROCESSED_WITHIN_S: Final = 6 * 3600.0
"""The largest traces take the post-processor hours. By then its end is no longer worth a waiting command."""


class BucketSettings(BaseSettings):
    """Where uploads go, where the environment says so."""

    model_config = SettingsConfigDict(
        env_prefix="CASCADE_S3_", frozen=True, extra="ignore", env_ignore_empty=True
    )

    endpoint: str | None = Field(default=None, description="The S3 endpoint. Default: what the app names.")
    bucket: str | None = Field(default=None, description="The bucket. Default: cascade.")
    prefix: str | None = Field(
        default=None,
        description="The key prefix that traces live under. Default: that of the app on this machine, else "
        "accelsim-traces.",
    )
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
    before = _settled(run_name)
    if before is not None and before.state is TraceState.FAILED:
        fail(
            f"the app has given up a trace {run_name} ({before.error}), and will not look at its files again",
            "choose another --run-name, or remove the trace's objects from the bucket first",
        )
    try:
        report = asyncio.run(
            _upload(directory, run_name=run_name, entries=entries, settled=before is not None)
        )
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


async def _upload(
    directory: Path, *, run_name: str, entries: dict[str, JsonValue], settled: bool
) -> UploadReport:
    settings = BucketSettings()
    endpoint, bucket, prefix = settings.endpoint, settings.bucket, settings.prefix
    access, secret = (
        settings.access_key,
        settings.secret_key.get_secret_value() if settings.secret_key else None,
    )
    if endpoint is None:
        app = find_app()
        if app.here is not None:
            endpoint, bucket = app.here.s3_endpoint, bucket or app.here.s3_bucket
            prefix = prefix or app.here.s3_prefix
            access, secret = app.here.s3_access_key, app.here.s3_secret_key
        else:
            endpoint = await asyncio.to_thread(_endpoint_of_app)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        return await upload_trace(
            directory,
            endpoint=endpoint,
            bucket=bucket or "cascade",
            prefix=prefix or "accelsim-traces",
            run_name=run_name,
            meta=entries,
            access_key=access,
            secret_key=secret,
            progress=Bar(progress),
            settled=settled,
        )


def _endpoint_of_app() -> str:
    with connected() as client:
        return client.health().s3_endpoint


def _settled(trace_id: str) -> TraceDetail | None:
    """The trace as it was before, where an app is known that is done with it."""
    app = known_app()
    if app is None:
        return None
    try:
        with CascadeClient(app.url, app.token_text()) as client:
            trace = client.trace(trace_id)
    except ClientError:
        return None  # no such trace yet; or the app is away, which an upload does not need
    return trace if trace.state in SETTLED else None


def _ready(trace_id: str) -> TraceDetail:
    """The trace once the app has settled it."""
    with connected() as client:
        return settled(trace_id, lambda: _seen(client, trace_id))


def settled(
    trace_id: str,
    look: Callable[[], TraceDetail | None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> TraceDetail:
    """Look until the app is done with the trace; ends the command where it does not get on. clock: [s]"""
    trace, changed_at = look(), clock()
    while trace is None or trace.state not in SETTLED:
        if clock() - changed_at > _patience_s(trace):
            _give_up(trace_id, trace)
        sleep(POLL_S)
        before, trace = trace, look()
        if trace is not None and (before is None or trace.updated_at != before.updated_at):
            changed_at = clock()
    return trace


def _patience_s(trace: TraceDetail | None) -> float:
    """How long the trace may stay as it is. [s]"""
    if trace is None:
        return APPEARS_WITHIN_S
    return PROCESSED_WITHIN_S if trace.state is TraceState.PROCESSING else UPLOADING_UNCHANGED_S


def _give_up(trace_id: str, trace: TraceDetail | None) -> NoReturn:
    if trace is None:
        fail(
            f"the app has not seen trace {trace_id} within {APPEARS_WITHIN_S:.0f} s of its upload",
            "check that CASCADE_S3_ENDPOINT, _BUCKET and _PREFIX are the app's own",
        )
    fail(
        f"trace {trace_id} is {trace.state} and did not change for {_patience_s(trace):.0f} s",
        f"see what ingest's log says of it; `cascade traces {trace_id}` shows when it is ready",
    )


def _seen(client: CascadeClient, trace_id: str) -> TraceDetail | None:
    try:
        return client.trace(trace_id)
    except NotFound:
        return None
