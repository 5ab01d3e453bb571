"""A trace from the bucket onto the local disk: resumable, checked, and never half there under its own name.

An index beside the traces remembers which object each file came from (size and ETag), so that a second run of
the same trace, or a restart, fetches nothing again and an overwritten object is noticed.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from cascade_core.errors import BucketUnavailable, NotFound
from cascade_core.ports import Bucket, ObjectInfo

from cascade_launcher.backends.protocol import LaunchError
from cascade_launcher.bucket_traces import KERNELS_LIST, missing_list
from cascade_launcher.trace_paths import relative_path

_logger = structlog.get_logger(__name__)

DOWNLOADS_AT_ONCE = 8
FILE_TRIES = 4
"""How often one file is begun before the trace counts as unreadable; a broken-off one goes on where it
stood."""
LISTING_TRIES = 3
"""How often a trace may change under the download."""
RETRY_WAIT_S = 0.5
LOCK_LOOK_EVERY_S = 0.1
INDEX_EVERY_S = 10.0
"""How much of a download a kill may cost. Often would be slow: the index of a large trace holds 100,000 files."""
_PLAIN_MD5 = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class _Stored:
    """The object that a local file was made from."""

    size: int
    etag: str


class _Changed(Exception):
    """An object is not what the listing said; list again."""


async def materialise(bucket: Bucket, *, prefix: str, directory: Path, index_path: Path) -> None:
    """Make `directory` hold every object under `prefix` (which ends in `/`).

    Raises LaunchError when the trace has no processed kernel list, keeps changing, or cannot be written;
    BucketUnavailable when the bucket does not answer: what was fetched stays, and a later call goes on.
    """
    try:
        async with _alone(index_path.with_suffix(".lock")):
            for _ in range(LISTING_TRIES):
                if await _once(bucket, prefix=prefix, directory=directory, index_path=index_path):
                    break
            else:
                raise LaunchError(
                    f"launcher prepare: the trace under {prefix} changed {LISTING_TRIES} times while it was "
                    "fetched. Wait until nothing writes to it, then launch a new run."
                )
    except NotFound as error:
        raise LaunchError(
            f"launcher prepare: the trace under {prefix} cannot be listed: {error}. "
            "Check CASCADE_S3_BUCKET, then launch a new run."
        ) from error
    except OSError as error:
        raise LaunchError(
            f"launcher prepare: the trace cannot be stored in {directory}: {error.strerror or error}. "
            "Make room or fix CASCADE_DATA_DIR, then launch a new run."
        ) from error
    if not (directory / KERNELS_LIST).is_file():
        raise missing_list(prefix + KERNELS_LIST)


@asynccontextmanager
async def _alone(lock_path: Path) -> AsyncIterator[None]:
    """Two runs of one trace (or two launchers, while one takes over) fetch it one after the other."""
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(LOCK_LOOK_EVERY_S)
        yield
    finally:
        os.close(descriptor)


async def _once(bucket: Bucket, *, prefix: str, directory: Path, index_path: Path) -> bool:
    """Fetch what is missing; whether the bucket still holds what was fetched."""
    wanted = await _listing(bucket, prefix)
    index = _read_index(index_path)
    missing = [
        (relative, info)
        for relative, info in wanted.items()
        if not _is_there(directory / relative, info, index.get(relative))
    ]
    for relative in set(index) - set(wanted):
        (directory / relative).unlink(missing_ok=True)
        del index[relative]
    if not missing:
        _write_index(index_path, index)
        return True
    _logger.info(
        "fetching trace", prefix=prefix, files=len(missing), size_bytes=sum(info.size for _, info in missing)
    )
    slots = asyncio.Semaphore(DOWNLOADS_AT_ONCE)
    loop = asyncio.get_running_loop()
    written_at = loop.time()

    async def fetch(relative: str, info: ObjectInfo) -> None:
        nonlocal written_at
        async with slots:
            await _fetch(bucket, info, directory / relative)
        index[relative] = _Stored(info.size, info.etag)
        if loop.time() >= written_at + INDEX_EVERY_S:
            _write_index(index_path, index)
            written_at = loop.time()

    try:
        async with asyncio.TaskGroup() as tasks:
            for relative, info in missing:
                tasks.create_task(fetch(relative, info))
    except BaseExceptionGroup as errors:
        first = _first(errors)
        if not isinstance(first, _Changed):
            raise first from errors
        return False
    finally:
        _write_index(index_path, index)
    return await _listing(bucket, prefix) == wanted


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _listing(bucket: Bucket, prefix: str) -> dict[str, ObjectInfo]:
    found: dict[str, ObjectInfo] = {}
    async for page in bucket.objects(prefix):
        for info in page:
            relative = relative_path(info.key, prefix)
            if relative is not None:
                found[str(relative)] = info
            elif not info.key.endswith("/"):
                _logger.warning("object left out of the local trace", key=info.key)
    # An object `a` beside an object `a/b` cannot both be files; the longer one is a file of the trace.
    directories = {str(parent) for name in found for parent in Path(name).parents}
    return {name: info for name, info in found.items() if name not in directories}


def _is_there(path: Path, info: ObjectInfo, stored: _Stored | None) -> bool:
    if stored != _Stored(info.size, info.etag):
        return False
    try:
        return path.stat().st_size == info.size
    except OSError:
        return False


async def _fetch(bucket: Bucket, info: ObjectInfo, path: Path) -> None:
    """One object into its file. The part file's name holds the ETag, so parts of two versions never mix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tag = hashlib.sha256(
        f"{info.key}\0{info.etag}\0{info.size}".encode("utf-8", "surrogatepass")
    ).hexdigest()[:16]
    part = path.parent / f".part-{tag}"
    mismatches = 0
    for attempt in range(1, FILE_TRIES + 1):
        try:
            digest, size = await _continue(bucket, info, part)
        except BucketUnavailable:
            if attempt == FILE_TRIES:
                raise
            await asyncio.sleep(RETRY_WAIT_S * attempt)
            continue
        if size == info.size and (digest == info.etag or _PLAIN_MD5.fullmatch(info.etag) is None):
            part.replace(path)
            return
        part.unlink(missing_ok=True)
        if size == info.size:
            mismatches += 1
            if mismatches > 1:
                await _accept_or_refuse(bucket, info, path, digest)
                return
    raise _Changed


async def _accept_or_refuse(bucket: Bucket, info: ObjectInfo, path: Path, digest: str) -> None:
    """Two whole downloads whose MD5 is not the ETag: bytes changed on the way, or the ETag is no MD5.

    Stores that encrypt with their own keys use other ETags. The same bytes a third time settle it.
    """
    part = (
        path.parent / f".part-{hashlib.sha256(info.key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}-c"
    )
    part.unlink(missing_ok=True)
    again, size = await _continue(bucket, info, part)
    if again != digest or size != info.size:
        part.unlink(missing_ok=True)
        raise LaunchError(
            f"launcher prepare: {info.key} arrives with other bytes each time (ETag {info.etag}). "
            "Check the network and the bucket, then launch a new run."
        )
    _logger.warning("the object's ETag is not its MD5", key=info.key, etag=info.etag, md5=digest)
    part.replace(path)


async def _continue(bucket: Bucket, info: ObjectInfo, part: Path) -> tuple[str, int]:
    """Append what is missing to the part file; returns the whole's MD5 and size. Raises _Changed, BucketUnavailable."""
    digest, size = await asyncio.to_thread(_held, part, info.size)
    try:
        with part.open("ab") as out:
            if size < info.size:
                async for piece in bucket.stream(info.key, start=size):
                    out.write(piece)
                    digest.update(piece)
                    size += len(piece)
                    if size > info.size:
                        break
    except NotFound as error:
        await asyncio.to_thread(part.unlink, missing_ok=True)
        raise _Changed from error
    return digest.hexdigest(), size


def _held(part: Path, most: int) -> "tuple[hashlib._Hash, int]":
    """The MD5 so far and the size of a part file; one that grew beyond `most` bytes is dropped."""
    digest = hashlib.md5(usedforsecurity=False)
    size = 0
    if part.exists():
        with part.open("rb") as held:
            while piece := held.read(1 << 20):
                digest.update(piece)
                size += len(piece)
    if size > most:
        part.unlink()
        return hashlib.md5(usedforsecurity=False), 0
    return digest, size


def _read_index(path: Path) -> dict[str, _Stored]:
    try:
        raw = json.loads(path.read_bytes())
        return {name: _Stored(int(entry["size"]), str(entry["etag"])) for name, entry in raw.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # an index that cannot be read costs a second download, nothing else


def _write_index(path: Path, index: dict[str, _Stored]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(
        json.dumps({name: {"size": entry.size, "etag": entry.etag} for name, entry in sorted(index.items())})
    )
    temporary.replace(path)
