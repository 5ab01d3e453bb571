"""Uploading a collected run, `run.json` last: once it is there, everything else is.

Two layouts of the same files. "run" keeps the run directory as it is. "cascade" is what an app takes up as a
trace: `traced/traces/` becomes `traces/` and `traced/metadata.json` comes on top, with the list of all files.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cascade_client.object_store import UploadError as ClientUploadError
from cascade_client.upload import METADATA_NAME, UploadedFile, upload_trace

from cascade_profiler.errors import OptionsError, UploadError
from cascade_profiler.objects import Credentials, open_run
from cascade_profiler.options import S3Destination, UploadLayout
from cascade_profiler.traced_run import PROCESSED_LIST
from cascade_profiler.traces_folder import is_raw_trace

RUN = "run.json"

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Item:
    """One file to upload: its path in the run directory and its key below the run's prefix."""

    relative: PurePosixPath
    key: str


def plan_upload(files: Sequence[PurePosixPath], layout: UploadLayout) -> tuple[Item, ...]:
    """Return what to upload in order: by key, `run.json` last. Pure.

    Nsight's captures are refused by name, whatever put them there: they hold the process environment. In the
    layout of a trace, raw kernel traces stay behind when the processed ones are there: nobody reads them any
    more.

    Raises OptionsError for a capture, and for a directory without `run.json`.
    """
    items = [Item(path, _key(path, layout)) for path in files]
    captures = [str(item.relative) for item in items if item.relative.suffix in {".nsys-rep", ".sqlite"}]
    if captures:
        raise OptionsError(
            f"{', '.join(captures)} holds a process environment and is not uploaded; delete it first"
        )
    if all(item.key != RUN for item in items):
        raise OptionsError("the directory has no run.json; give a run directory that `profile` has finished")
    if layout == "cascade" and any(item.key == f"traces/{PROCESSED_LIST}" for item in items):
        items = [item for item in items if not is_raw_trace(item.key)]
    return tuple(sorted(items, key=lambda item: (item.key == RUN, item.key)))


def upload_run(
    run_dir: Path,
    destination: S3Destination,
    run_name: str,
    environ: Mapping[str, str],
    *,
    progress: Progress = lambda _line: None,
) -> None:
    """Upload a run directory to its destination.

    A trace that was uploaded in part before goes on where it stopped. Raises UploadError if the bucket
    refuses, OptionsError if the run holds what must not leave.
    """
    paths = sorted(path for path in run_dir.rglob("*") if path.is_file())
    items = plan_upload(
        [PurePosixPath(path.relative_to(run_dir).as_posix()) for path in paths], destination.layout
    )
    with open_run(destination, run_name, environ) as store:
        store.check()
        if destination.layout == "run":
            for item in items[:-1]:
                store.put_file(item.key, run_dir / item.relative)
                progress(f"sent {item.key}")
    if destination.layout == "cascade":
        _upload_trace(run_dir, items[:-1], destination, run_name, environ, progress=progress)
    with open_run(destination, run_name, environ) as store:
        store.put_file(RUN, run_dir / RUN)
    progress(f"uploaded to {destination.uri(run_name)}")


def _upload_trace(
    run_dir: Path,
    items: Sequence[Item],
    destination: S3Destination,
    run_name: str,
    environ: Mapping[str, str],
    *,
    progress: Progress,
) -> None:
    """Upload the files as a trace: metadata.json after all others, with their sizes and the run's own
    status."""
    credentials = Credentials.from_environ(environ)
    with tempfile.TemporaryDirectory(prefix="cascade-upload-") as staging:
        tree = Path(staging)
        for item in items:
            target = tree / item.key
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to((run_dir / item.relative).resolve())
        try:
            asyncio.run(
                upload_trace(
                    tree,
                    endpoint=destination.endpoint,
                    bucket=destination.bucket,
                    prefix=destination.prefix,
                    run_name=run_name,
                    meta={},
                    status=_status(tree / METADATA_NAME),
                    access_key=credentials.access_key,
                    secret_key=credentials.secret_key,
                    session_token=credentials.session_token,
                    region=destination.region,
                    addressing_style=destination.addressing_style,
                    progress=_Lines(progress),
                )
            )
        except ClientUploadError as error:
            raise UploadError(str(error)) from error


class _Lines:
    """Says every finished file in one line."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def started(self, *, files: int, size_bytes: int) -> None:
        self._progress(f"uploading {files} files, {size_bytes} bytes")

    def advanced(self, size_bytes: int) -> None:
        """Say nothing of parts."""

    def finished(self, file: UploadedFile) -> None:
        self._progress(f"{'already there: ' if file.already_there else 'sent '}{file.path}")


def _key(path: PurePosixPath, layout: UploadLayout) -> str:
    if layout == "cascade" and (
        path.parts[:2] == ("traced", "traces") or path.parts == ("traced", METADATA_NAME)
    ):
        return PurePosixPath(*path.parts[1:]).as_posix()
    return path.as_posix()


def _status(metadata: Path) -> str:
    """Return the status that the run's metadata gives, `failed` if there is none: then nothing was traced."""
    try:
        document = json.loads(metadata.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "failed"
    return str(document.get("status", "failed")) if isinstance(document, dict) else "failed"
