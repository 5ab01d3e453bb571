"""Uploading a collected run, `run.json` last: once it is there, everything else is.

Two layouts of the same files. "run" keeps the run directory as it is. "cascade" is what an app takes up as a
trace: `traced/traces/` becomes `traces/`, and `metadata.json`, with the list of all files and their sizes, comes right
before `run.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cascade_profiler.documents import RunRecord
from cascade_profiler.errors import OptionsError, UploadError
from cascade_profiler.objects import ObjectStore, S3Store
from cascade_profiler.options import UploadLayout
from cascade_profiler.traced_run import PROCESSED_LIST
from cascade_profiler.traces_folder import is_raw_trace

RUN = "run.json"
METADATA = "metadata.json"


@dataclass(frozen=True, slots=True)
class Item:
    """One file to upload: its path in the run directory and its key below the run's prefix."""

    relative: PurePosixPath
    key: str


def plan_upload(files: Sequence[PurePosixPath], layout: UploadLayout) -> tuple[Item, ...]:
    """Return what to upload in order: by name, then the trace's metadata, then `run.json`. Pure.

    Nsight's captures are refused by name, whatever put them there: they hold the process environment. In the layout
    of a trace, raw kernel traces stay behind when the processed ones are there: nobody reads them any more.
    """
    items = [Item(path, _key(path, layout)) for path in files]
    if layout == "cascade" and any(item.key == f"traces/{PROCESSED_LIST}" for item in items):
        items = [item for item in items if not is_raw_trace(item.key)]
    captures = [str(item.relative) for item in items if item.relative.suffix in {".nsys-rep", ".sqlite"}]
    if captures:
        raise OptionsError(
            f"{', '.join(captures)} holds a process environment and is not uploaded; delete it first"
        )
    return tuple(sorted(items, key=lambda item: (item.key == RUN, item.key == METADATA, item.key)))


def trace_metadata(
    metadata: Mapping[str, object], sizes: Mapping[str, int], *, prefix: str
) -> dict[str, object]:
    """Return `metadata.json` as an app wants it: with every other file's key and size, so that completeness is plain.

    sizes: [bytes] by key below the run. prefix: the run's own, without a slash at the end. Pure.
    """
    listed = [
        {"key": f"{prefix}/{key}", "bytes": size} for key, size in sorted(sizes.items()) if key != METADATA
    ]
    return {**metadata, "files": listed}


def upload_run(
    run_dir: Path,
    record: RunRecord,
    environ: Mapping[str, str],
    *,
    progress: Callable[[str], None] = lambda _line: None,
    store: ObjectStore | None = None,
) -> None:
    """Upload a run directory to the record's destination.

    Raises UploadError if the bucket refuses, OptionsError if the run holds what must not leave.
    """
    destination = record.destination
    if destination is None:
        raise OptionsError("this run has no s3 destination")
    if store is None:
        store = S3Store(destination, record.run_name, environ)
    store.check()
    upload_directory(run_dir, destination.layout, store, prefix=_prefix(destination.prefix, record.run_name))
    progress(f"uploaded to {destination.uri(record.run_name)}")


def upload_directory(run_dir: Path, layout: UploadLayout, store: ObjectStore, *, prefix: str) -> None:
    """Upload a run directory into a store; `prefix` is the run's own in the bucket, for the list of files."""
    paths = sorted(path for path in run_dir.rglob("*") if path.is_file())
    items = plan_upload([PurePosixPath(path.relative_to(run_dir).as_posix()) for path in paths], layout)
    sizes = {item.key: (run_dir / item.relative).stat().st_size for item in items}
    for item in items:
        source = run_dir / item.relative
        if layout == "cascade" and item.key == METADATA:
            document = trace_metadata(_read_object(source), sizes, prefix=prefix)
            store.put_bytes(METADATA, json.dumps(document, indent=1).encode())
        else:
            store.put_file(item.key, source)


def _prefix(prefix: str, run_name: str) -> str:
    return "/".join(filter(None, (prefix, run_name)))


def _key(path: PurePosixPath, layout: UploadLayout) -> str:
    if layout == "cascade" and (path.parts[:2] == ("traced", "traces") or path.parts == ("traced", METADATA)):
        return PurePosixPath(*path.parts[1:]).as_posix()
    return path.as_posix()


def _read_object(path: Path) -> dict[str, object]:
    document = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict):
        raise UploadError(f"{path} is no JSON object")
    return document
