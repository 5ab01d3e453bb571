"""Upload a trace directory to the bucket, as the profiler does: files first, `metadata.json` last.

`metadata.json` lists every file with its size, so the app can tell when the upload is complete. An upload
that broke off goes on where it stopped: an object that is already there with the same size and checksum is
not sent again.
"""

import asyncio
import hashlib
import json
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, NoReturn, Protocol, TypeAlias

from cascade_client.object_store import ObjectStore, StoredObject, UploadError, open_store

__all__ = [
    "JsonValue",
    "UploadError",
    "UploadProgress",
    "UploadReport",
    "UploadedFile",
    "parse_meta",
    "upload_trace",
]

METADATA_NAME: Final = "metadata.json"
KERNELS_FOLDER: Final = "traces/"

PART_BYTES: Final = 16 * 1024 * 1024
"""A larger file travels in parts of this size. [bytes] S3 takes at least 5 MiB a part and at most 10,000
parts."""

MAX_PARTS: Final = 10_000

_IN_FLIGHT: Final = 4
"""Files on their way at once: enough to hide latency, few enough that whole parts fit in memory."""

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """One file of the trace as it lies in the bucket."""

    path: str
    """Relative to the trace directory, with forward slashes."""
    key: str
    """The object's full key."""
    size_bytes: int
    already_there: bool
    """It was in the bucket before, with the same size and checksum."""


@dataclass(frozen=True, slots=True)
class UploadReport:
    """A complete upload."""

    files: tuple[UploadedFile, ...]
    """Every file except `metadata.json`, in the order of their paths."""
    uri: str
    """Where the trace lies, such as s3://cascade/accelsim-traces/demo/."""

    @property
    def sent_bytes(self) -> int:
        """What this call transferred, metadata.json not counted. [bytes]"""
        return sum(file.size_bytes for file in self.files if not file.already_there)


class UploadProgress(Protocol):
    """Hears how an upload goes on."""

    def started(self, *, files: int, size_bytes: int) -> None:
        """The directory has been read: so many files of so many bytes in all, metadata.json not counted."""

    def advanced(self, size_bytes: int) -> None:
        """So many more bytes are in the bucket."""

    def finished(self, file: UploadedFile) -> None:
        """A file is complete; files finish in the order of their paths."""


@dataclass(frozen=True, slots=True)
class _LocalFile:
    source: Path
    path: str
    size_bytes: int
    modified_ns: int


def parse_meta(text: str) -> tuple[str, JsonValue]:
    """One KEY=VALUE. Raises ValueError with a sentence for the user."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"{text!r} is not KEY=VALUE, such as trace_gpu_arch=sm_80")
    if key in ("files", "status"):
        raise ValueError(f"{key!r} is written by the upload itself; for the status use --status")
    if value.startswith(("[", "{")):
        try:
            parsed: JsonValue = _parsed(value)
        except ValueError as error:
            raise ValueError(f"the value of {key} looks like JSON but is not: {error}") from error
        return key, parsed
    return key, value


async def upload_trace(
    directory: Path,
    *,
    endpoint: str,
    bucket: str,
    prefix: str,
    run_name: str,
    meta: Mapping[str, JsonValue],
    status: str = "ok",
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    region: str = "us-east-1",
    addressing_style: str = "path",
    progress: UploadProgress | None = None,
    settled: bool = False,
) -> UploadReport:
    """Upload `directory` as the trace `run_name` below `prefix` and return what was sent.

    meta: entries of metadata.json; they replace what a metadata.json in the directory says. Dotfiles are left
    out, as the app does not see them. Without keys, requests are unsigned.
    settled: the app is done with this trace. It takes late timing files and metadata, but never other kernels, so
    those are refused. Raises UploadError, before anything is sent where the directory itself is wrong.
    """
    _check_run_name(run_name)
    files = await asyncio.to_thread(_read_directory, directory)
    root = "".join(f"{part}/" for part in (prefix.strip("/"), run_name) if part)
    metadata = await asyncio.to_thread(_read_metadata, directory)
    body = _metadata_body({**metadata, "run_name": run_name, **meta, "status": status}, files, root=root)
    if progress is not None:
        progress.started(files=len(files), size_bytes=sum(file.size_bytes for file in files))

    async with open_store(
        endpoint=endpoint,
        bucket=bucket,
        access_key=access_key,
        secret_key=secret_key,
        session_token=session_token,
        region=region,
        addressing_style=addressing_style,
    ) as store:
        there = await store.list_objects(root)
        unchanged = {file.path for file in files if await _is_there(file, there.get(root + file.path))}
        if settled:
            _refuse_other_kernels(run_name, [file.path for file in files if file.path not in unchanged])
        if len(unchanged) < len(files) and root + METADATA_NAME in there:
            # An older list of files must not call the mixture of old and new complete.
            await store.delete(root + METADATA_NAME)
        uploaded = await _upload_files(store, files, root=root, unchanged=unchanged, progress=progress)
        await store.put(root + METADATA_NAME, body, content_type="application/json")
    return UploadReport(files=tuple(uploaded), uri=f"s3://{bucket}/{root}")


def _metadata_body(entries: Mapping[str, JsonValue], files: Sequence[_LocalFile], *, root: str) -> bytes:
    """The metadata.json of a complete upload. Raises UploadError for what strict JSON in UTF-8 cannot say."""
    listed: list[JsonValue] = [{"key": root + file.path, "bytes": file.size_bytes} for file in files]
    try:
        text = json.dumps({**entries, "files": listed}, indent=2, ensure_ascii=False, allow_nan=False)
        return f"{text}\n".encode()
    except ValueError as error:
        raise UploadError(
            f"the metadata cannot be written as JSON ({error}): correct metadata.json or the given entries"
        ) from error


def _refuse_other_kernels(run_name: str, changed: Sequence[str]) -> None:
    kernels = [path for path in changed if path.startswith(KERNELS_FOLDER)]
    if kernels:
        raise UploadError(
            f"the app has taken up a trace {run_name} already, and {len(kernels)} of these files differ from its own, "
            f"such as {kernels[0]}: choose another run name, or remove the trace's objects first"
        )


async def _upload_files(
    store: ObjectStore,
    files: list[_LocalFile],
    *,
    root: str,
    unchanged: Set[str],
    progress: UploadProgress | None,
) -> list[UploadedFile]:
    """Send what is not there yet, a few files at a time, and report them in order."""
    uploaded: list[UploadedFile] = []
    running: deque[asyncio.Task[UploadedFile]] = deque()

    async def finish_oldest() -> None:
        file = await running[0]
        running.popleft()
        uploaded.append(file)
        if progress is not None:
            progress.finished(file)

    try:
        for file in files:
            if len(running) == _IN_FLIGHT:
                await finish_oldest()
            uploading = _upload_file(
                store, file, key=root + file.path, unchanged=file.path in unchanged, progress=progress
            )
            running.append(asyncio.create_task(uploading))
        while running:
            await finish_oldest()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return uploaded


async def _upload_file(
    store: ObjectStore, file: _LocalFile, *, key: str, unchanged: bool, progress: UploadProgress | None
) -> UploadedFile:
    if unchanged:
        if progress is not None:
            progress.advanced(file.size_bytes)
    else:
        with _reading(file.source):
            await store.put_file(
                key,
                file.source,
                size_bytes=file.size_bytes,
                part_bytes=_part_bytes(file),
                advanced=None if progress is None else progress.advanced,
            )
    with _reading(file.source):
        now = file.source.stat()
    if (now.st_size, now.st_mtime_ns) != (file.size_bytes, file.modified_ns):
        raise UploadError(
            f"{file.path} changed while it was uploaded ({file.size_bytes} bytes before, {now.st_size} now): "
            "wait until nothing writes to the directory and run the upload again"
        )
    return UploadedFile(file.path, key, file.size_bytes, unchanged)


async def _is_there(file: _LocalFile, there: StoredObject | None) -> bool:
    """Whether the bucket holds the file with the same size and checksum."""
    if there is None or there.size_bytes != file.size_bytes:
        return False
    with _reading(file.source):
        return there.etag in await asyncio.to_thread(_etags, file.source, _part_bytes(file))


def _part_bytes(file: _LocalFile) -> int:
    return max(PART_BYTES, -(-file.size_bytes // MAX_PARTS))


def _check_run_name(run_name: str) -> None:
    if not run_name or "/" in run_name or "\0" in run_name or run_name.startswith("."):
        raise UploadError(
            f"the run name is {run_name!r}: give one directory name that does not begin with a dot, such as my-run"
        )


def _read_directory(directory: Path) -> list[_LocalFile]:
    """Every file below `directory`, in the order of its path, without dotfiles and metadata.json."""
    if not directory.is_dir():
        raise UploadError(
            f"{directory} is no directory: give the trace's directory, the one that holds traces/"
        )
    files = []
    with _reading(directory):
        for source in _walk(directory):
            path = PurePosixPath(*source.relative_to(directory).parts).as_posix()
            if path != METADATA_NAME:
                status = source.stat()
                files.append(_LocalFile(source, path, status.st_size, status.st_mtime_ns))
    if not files:
        raise UploadError(f"{directory} holds no files to upload")
    return sorted(files, key=lambda file: file.path)


def _walk(directory: Path) -> Iterator[Path]:
    for parent, directories, names in os.walk(directory, onerror=_raise):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in names:
            source = Path(parent, name)
            if name.startswith("."):
                continue
            if not source.is_file():
                raise UploadError(f"{source} is no regular file: remove it or put the file itself there")
            try:
                name.encode()
            except UnicodeEncodeError:
                raise UploadError(
                    f"the name of {os.fsencode(source)!r} is not UTF-8: rename the file"
                ) from None
            yield source


def _raise(error: OSError) -> NoReturn:
    raise error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raises UploadError for a file or folder that is gone or not ours to read."""
    try:
        yield
    except OSError as error:
        raise UploadError(
            f"{error.filename or path} cannot be read ({error.strerror or error}): make it readable, "
            "and run the upload again"
        ) from error


def _parsed(text: str | bytes) -> JsonValue:
    """Strict JSON. Raises ValueError, also for NaN and Infinity, which Python would take."""
    parsed: JsonValue = json.loads(text, parse_constant=_refuse_constant)
    return parsed


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}")


def _read_metadata(directory: Path) -> dict[str, JsonValue]:
    """What a metadata.json in the directory already says."""
    path = directory / METADATA_NAME
    if not path.is_file():
        return {}
    try:
        with _reading(path):
            content = _parsed(path.read_bytes())
    except ValueError as error:
        raise UploadError(f"{path} is not JSON ({error}): correct or remove it") from error
    if not isinstance(content, dict):
        raise UploadError(f"{path} holds no JSON object: correct or remove it")
    return content


def _etags(source: Path, part_bytes: int) -> frozenset[str]:
    """The ETags that the file's content may have: its MD5, or the one of an upload in our parts."""
    whole = hashlib.md5(usedforsecurity=False)
    parts: list[bytes] = []
    with source.open("rb") as file:
        while part := file.read(part_bytes):
            whole.update(part)
            parts.append(hashlib.md5(part, usedforsecurity=False).digest())
    combined = hashlib.md5(b"".join(parts), usedforsecurity=False).hexdigest()
    return frozenset({whole.hexdigest(), f"{combined}-{len(parts)}"})
