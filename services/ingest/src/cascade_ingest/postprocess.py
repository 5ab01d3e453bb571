"""Runs Accel-Sim's trace post-processor on a local copy of a trace and puts its results next to the raw files.

`kernelslist.g` goes up last: a crash on the way leaves a trace that is still `processing`, and the whole step is
done again.
"""

import asyncio
import contextlib
import ctypes
import hashlib
import os
import shlex
import shutil
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from cascade_core.errors import CascadeError
from cascade_core.ports import Bucket
from cascade_core.tasks import undisturbed

from cascade_ingest.tree import PROCESSED_LIST, TRACES, Tree

TAIL_LINES = 5
"""spec: traces, the last 5 lines of the log go into the error."""
DOWNLOADS_AT_ONCE = 4
UPLOADS_AT_ONCE = 4
READ_BYTES = 1 << 20
TERMINATE_GRACE_S = 5.0
_LONGEST_FILE_NAME_BYTES = 255
_LONGEST_NAME = 200
_TAIL_BYTES = 64 * 1024
_PR_SET_PDEATHSIG = 1
_Item = TypeVar("_Item")
_READABLE = " ()[]{}@=+,:;!#&^"  # `~` marks a hash, `%` an escape


class PostprocessError(CascadeError):
    """Post-processing failed for a reason that trying again does not cure. The message is the trace's error."""


@dataclass(frozen=True, slots=True)
class Postprocessor:
    """The command and the disk that it works on."""

    command: str
    """Split by shlex and run without a shell as `<command> <trace>/traces -j <cpus>`."""
    work: Path

    def log_path(self, trace_id: str) -> Path:
        """Where the post-processor's output goes."""
        return self.work / "postprocess" / f"{safe_name(trace_id)}.log"

    async def run(self, bucket: Bucket, trace_id: str, root: str, tree: Tree) -> None:
        """Make `traces/kernelslist.g` from the raw files. Raises PostprocessError, BucketUnavailable."""
        words = self._words()  # before anything is downloaded in vain
        scratch = self.work / "scratch"
        # A name of its own each time: what a killed ingest left running must not write into this copy.
        directory = scratch / f"{safe_name(trace_id)}@{uuid.uuid4().hex[:8]}"
        for left_behind in _left_behind(scratch, trace_id):
            await _remove(left_behind)
        traces = directory / "traces"
        traces.mkdir(parents=True)
        try:
            await _download(bucket, root, tree, directory)
            before = {path: _stamp(path) for path in _files_in(traces)}
            await self._execute(words, trace_id, traces)
            if not (traces / "kernelslist.g").is_file():
                raise PostprocessError(
                    "post-processing succeeded but left no traces/kernelslist.g. "
                    f"See {self.log_path(trace_id)} for what it said"
                )
            await _upload(bucket, root, traces, before)
        finally:
            await undisturbed(_remove(directory))

    async def _execute(self, words: list[str], trace_id: str, traces: Path) -> None:
        log = self.log_path(trace_id)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    str(traces),
                    "-j",
                    str(os.cpu_count() or 1),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=partial(die_with, os.getpid()),
                    env={key: value for key, value in os.environ.items() if not key.startswith("CASCADE_")},
                )
            except OSError as error:
                raise PostprocessError(f"post-processor could not start: {error}") from error
            try:
                code = await process.wait()
            except asyncio.CancelledError:
                # Whoever ends this asks again within the grace.
                await undisturbed(_end_group(process))
                raise
        if code != 0:
            raise PostprocessError(f"post-processing exited {code}\n{_tail(log)}")

    def _words(self) -> list[str]:
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise PostprocessError(
                f"post-processor not found: CASCADE_POSTPROCESS_CMD cannot be read ({error}): {self.command}"
            ) from error
        if not words or shutil.which(words[0]) is None:
            raise PostprocessError(
                f"post-processor not found: {words[0] if words else '(empty command)'}. Set CASCADE_POSTPROCESS_CMD, "
                "or upload a trace that already holds traces/kernelslist.g"
            )
        return words


def _left_behind(scratch: Path, trace_id: str) -> list[Path]:
    """Copies of this trace that an earlier attempt could not clear away."""
    name = safe_name(trace_id)
    return [path for path in scratch.glob("*") if path.name.rpartition("@")[0] == name]


def die_with(parent: int) -> None:
    """Tie this process, a child that has not begun its program yet, to its parent: none outlives a killed ingest."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # killed before the line above, which tells of no death that was earlier
            os.kill(os.getpid(), signal.SIGKILL)


def safe_name(trace_id: str) -> str:
    """A file name for any trace id: readable for ordinary ids, never a way out, never two ids with one name."""
    name = quote(trace_id, safe=_READABLE)
    if trace_id.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _LONGEST_NAME:
        name = (
            name[: _LONGEST_NAME - 65]
            + "~"
            + hashlib.sha256(trace_id.encode("utf-8", "surrogatepass")).hexdigest()
        )
    return name


async def _end_group(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TERMINATE_GRACE_S):
            await process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # in any case: its own children may have stayed
    await process.wait()


async def _remove(directory: Path) -> None:
    await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").rstrip("\n").split("\n")
    return "\n".join(lines[-TAIL_LINES:])


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _files_in(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if path.is_file() and not path.is_symlink()]


async def _download(bucket: Bucket, root: str, tree: Tree, directory: Path) -> None:
    async def one(path: str) -> None:
        with (directory / path).open("wb") as target:
            async for piece in bucket.stream(root + path):
                await asyncio.to_thread(target.write, piece)

    names = tree.trace_names()
    for name in names:
        if "\0" in name or len(name.encode()) > _LONGEST_FILE_NAME_BYTES:
            raise PostprocessError(
                f"{TRACES}{name[:80]!r} cannot be put on a disk: a file name has at most "
                f"{_LONGEST_FILE_NAME_BYTES} bytes and no NUL. Upload the trace without this file"
            )
    await _at_once(DOWNLOADS_AT_ONCE, one, [TRACES + name for name in names])


async def _upload(bucket: Bucket, root: str, traces: Path, before: dict[Path, tuple[int, int]]) -> None:
    changed = [path for path in _files_in(traces) if before.get(path) != _stamp(path)]

    async def one(path: Path) -> None:
        await bucket.put_stream(f"{root}{TRACES}{path.name}", _pieces(path))

    await _at_once(UPLOADS_AT_ONCE, one, [path for path in changed if path.name != Path(PROCESSED_LIST).name])
    await one(traces / Path(PROCESSED_LIST).name)


async def _at_once(most: int, work: Callable[[_Item], Awaitable[None]], items: list[_Item]) -> None:
    """Do `work` for each item, `most` at a time. The first error ends all and is raised as it is."""
    gate = asyncio.Semaphore(most)

    async def gated(item: _Item) -> None:
        async with gate:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(gated(item))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as source:
        while piece := await asyncio.to_thread(source.read, READ_BYTES):
            yield piece
