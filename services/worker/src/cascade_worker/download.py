"""Fetch a trace that is not on this machine's disk from the bucket that it was uploaded to.

Only what a simulation reads travels: the list, the files it names, and the two files of step timing. Each
file is fetched in one ranged read that goes on where an earlier one broke off, is checked against the
object's size and checksum, and takes its name only then; the list comes last, so a directory with a list is
complete.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path, PurePosixPath

from cascade_worker.errors import TraceDownloadError
from cascade_worker.settings import WorkerSettings
from cascade_worker.steps import MAPPING_NAME, TIMELINE_NAME
from cascade_worker.trace_store import ObjectFacts, StoreUnavailableError, TraceStore, open_trace_store

LIST_PATH = "traces/kernelslist.g"

_OPTIONAL = (TIMELINE_NAME, MAPPING_NAME)
_FILES_AT_ONCE = 4
_LOCK_POLL_S = 0.2
_MD5 = re.compile(r"[0-9a-f]{32}")

_log = logging.getLogger(__name__)


async def fetch_trace(settings: WorkerSettings) -> None:
    """Make sure that the trace lies in the trace directory, if there is a bucket to take it from.

    Several workers of one machine may share the directory: one fetches, the others wait. Raises
    TraceDownloadError.
    """
    if settings.kernels_list.is_file() or settings.s3_endpoint is None:
        return
    directory = settings.trace_dir.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    async with _locked(directory / ".download.lock"):
        if settings.kernels_list.is_file():
            return
        bucket, prefix = settings.trace_location()
        _log.info("fetching the trace from s3://%s/%s", bucket, prefix)
        async with open_trace_store(settings, bucket=bucket, prefix=prefix) as store:
            await _fetch_all(store, directory, give_up_after_s=settings.retry_for_s)


async def _fetch_all(store: TraceStore, directory: Path, *, give_up_after_s: float) -> None:
    fetch = _Fetcher(store, directory, give_up_after_s=give_up_after_s)
    listing = await fetch.file(LIST_PATH, into=f"{LIST_PATH}.incoming")
    if listing is None:
        raise TraceDownloadError(
            f"missing {store.uri}{LIST_PATH} in the bucket, and no {directory / LIST_PATH}"
        )
    text = listing.read_text(encoding="utf-8", errors="replace")
    paths = [f"traces/{line.strip()}" for line in text.split("\n") if line.startswith("kernel")]
    await _few_at_a_time(fetch, dict.fromkeys(paths), optional=dict.fromkeys(_OPTIONAL))
    listing.replace(directory / LIST_PATH)


async def _few_at_a_time(fetch: "_Fetcher", required: Iterable[str], *, optional: Iterable[str]) -> None:
    free = asyncio.Semaphore(_FILES_AT_ONCE)

    async def one(path: str, *, is_required: bool) -> None:
        async with free:
            if await fetch.file(path) is None and is_required:
                raise TraceDownloadError(
                    f"missing {fetch.store.uri}{path} in the bucket: the trace's list names it, upload it again"
                )

    try:
        async with asyncio.TaskGroup() as group:
            for path in required:
                group.create_task(one(path, is_required=True))
            for path in optional:
                group.create_task(one(path, is_required=False))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


class _Fetcher:
    """Fetches single files of one trace into one directory."""

    def __init__(self, store: TraceStore, directory: Path, *, give_up_after_s: float) -> None:
        self.store = store
        self._directory = directory
        self._give_up_after_s = give_up_after_s

    async def file(self, path: str, *, into: str | None = None) -> Path | None:
        """Fetch one file; its local path, or None if the bucket has no such object."""
        target = self._directory / _checked(into or path)
        # A bucket that is away is waited for; every attempt goes on where the last one stopped.
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._give_up_after_s
        pause_s = 0.5
        damaged_before = False
        while True:
            try:
                return await self._try(path, target)
            except StoreUnavailableError as error:
                if loop.time() + pause_s > give_up_at:
                    raise TraceDownloadError(f"cannot fetch {self.store.uri}{path}: {error}") from error
                _log.warning("fetching %s: %s", path, error)
            except _DamagedError as error:
                if damaged_before:
                    raise TraceDownloadError(f"{self.store.uri}{path} arrives damaged: {error}") from error
                damaged_before = True
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 15.0)

    async def _try(self, path: str, target: Path) -> Path | None:
        facts = await self.store.head(path)
        if facts is None:
            return None
        if _has_size(target, facts.size_bytes) and await _matches(target, facts):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        # Named after the object's version: the rest of another version must not be appended to this part.
        version = hashlib.sha256(facts.etag.encode()).hexdigest()[:16]
        part = target.with_name(f".{target.name}.{version}.part")
        with part.open("ab") as file:
            if file.tell() < facts.size_bytes:
                async for piece in self.store.read(path, start=file.tell(), etag=facts.etag):
                    file.write(piece)
        if not _has_size(part, facts.size_bytes):
            part.unlink()
            raise _DamagedError(f"more or less than the object's {facts.size_bytes} bytes")
        if not await _matches(part, facts):
            part.unlink()
            raise _DamagedError(f"{facts.size_bytes} bytes whose MD5 is not the object's ETag {facts.etag}")
        part.replace(target)
        return target


class _DamagedError(Exception):
    """What was fetched is not what the bucket says it holds."""


def _has_size(path: Path, size_bytes: int) -> bool:
    return path.is_file() and path.stat().st_size == size_bytes


async def _matches(path: Path, facts: ObjectFacts) -> bool:
    """Whether a file of the right size has the object's checksum, where its ETag is one."""
    if not facts.etag_is_checksum or _MD5.fullmatch(facts.etag) is None:
        return True  # sent in parts or encrypted: the ETag is no MD5 of the content, so the size has to do
    return await asyncio.to_thread(_md5, path) == facts.etag


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _checked(path: str) -> str:
    """A path from the list, if it stays inside the trace directory."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise TraceDownloadError(f"the trace's list names {path!r}, which is no path inside the trace")
    return path


@contextlib.asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    """Hold the lock file, waiting for another worker that holds it; it is free when its holder dies."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(_LOCK_POLL_S)
            else:
                break
        yield
    finally:
        os.close(descriptor)
