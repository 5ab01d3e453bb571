"""Estimates by trace content, config content and model version: in memory, then in the bucket, else computed once.

One computation runs at a time; the others wait. A caller gets what is there within a bounded time. A trace that cannot
be estimated is not tried again before the next start: it may have gigabytes, and dashboards ask again and again.
"""

import asyncio
import hashlib
import sys
import tempfile
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from cascade_core.errors import NotFound, Refused
from cascade_core.ports import ObjectInfo
from cascade_core.s3.bucket import S3Bucket
from cascade_core.tasks import end
from cascade_estimate import MODEL_VERSION

from cascade_api.estimates.compute import KERNELS
from cascade_api.estimates.rows import EstimatedKernel

_logger = structlog.get_logger(__name__)

REMEMBERED = 256
"""Estimates kept in memory; one holds some hundred bytes a kernel."""
LARGEST_TRACE_BYTES = 8 * 1024**3
COMPUTE_TIMEOUT_S = 1800.0
ENGINE = f"cascade-estimate {MODEL_VERSION}"


class EstimateFailed(Refused):
    """The trace or the config cannot be estimated; the message says which file and why."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why there is no estimate. Not the exception itself, which would grow with every time that it is raised."""

    detail: str


Outcome = list[EstimatedKernel] | _Failure


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """The files that describe one GPU config on this machine."""

    gpgpusim: Path
    trace: Path

    @classmethod
    def of(cls, accelsim_dir: Path, name: str) -> "ConfigFiles":
        """Where Accel-Sim keeps the config `name`."""
        root = accelsim_dir / "gpu-simulator"
        return cls(
            root / "gpgpu-sim" / "configs" / "tested-cfgs" / name / "gpgpusim.config",
            root / "configs" / "tested-cfgs" / name / "trace.config",
        )

    def existing(self) -> list[Path]:
        """The files that are there, the main one first."""
        return [path for path in (self.gpgpusim, self.trace) if path.is_file()]

    def digest(self) -> str:
        """What tells one content from another."""
        digest = hashlib.sha256()
        for path in self.existing():
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]


class EstimateStore:
    """Makes and keeps estimates."""

    def __init__(self, uploads: S3Bucket, internal: S3Bucket, *, prefix: str) -> None:
        self._uploads = uploads
        self._internal = internal
        self._prefix = prefix.strip("/")
        self._known: OrderedDict[str, Outcome] = OrderedDict()
        self._running: dict[str, asyncio.Task[Outcome]] = {}
        self._slot = asyncio.Semaphore(1)

    async def kernels(
        self, trace_id: str, config: ConfigFiles, *, within_s: float
    ) -> list[EstimatedKernel] | None:
        """The estimate, or None while it is still computed. Raises EstimateFailed, BucketUnavailable."""
        if not config.existing():
            raise EstimateFailed(
                f"the config's files are gone: {config.gpgpusim}. Set CASCADE_ACCELSIM_DIR and restart"
            )
        root = f"{self._prefix}/{trace_id}/" if self._prefix else f"{trace_id}/"
        objects = [entry async for page in self._uploads.objects(f"{root}traces/") for entry in page]
        key = f"estimates/{_content_digest(objects)}/{config.digest()}-{MODEL_VERSION}.json"
        outcome = self._known.get(key)
        if outcome is None:
            task = self._running.get(key)
            if task is None:
                task = asyncio.create_task(self._outcome(key, root, objects, config))
                self._running[key] = task
                task.add_done_callback(lambda _: self._running.pop(key, None))
            done, _ = await asyncio.wait({task}, timeout=within_s)
            if not done:
                return None
            outcome = task.result()
        else:
            self._known.move_to_end(key)
        if isinstance(outcome, _Failure):
            raise EstimateFailed(outcome.detail)
        return outcome

    async def close(self) -> None:
        """End what is still computed."""
        await end(*self._running.values())

    async def _outcome(self, key: str, root: str, objects: list[ObjectInfo], config: ConfigFiles) -> Outcome:
        """What is known of `key` from now on, whether somebody still waits for it or not. Raises Unavailable."""
        try:
            outcome: Outcome = await self._load_or_compute(key, root, objects, config)
        except EstimateFailed as failure:
            outcome = _Failure(failure.detail)
        self._known[key] = outcome
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return outcome

    async def _load_or_compute(
        self, key: str, root: str, objects: list[ObjectInfo], config: ConfigFiles
    ) -> list[EstimatedKernel]:
        try:
            return KERNELS.validate_json(await self._internal.get(key))
        except NotFound:
            pass
        async with self._slot:
            body = await self._compute(root, objects, config)
        kernels = KERNELS.validate_json(body)
        await self._internal.put(key, body, content_type="application/json")
        return kernels

    async def _compute(self, root: str, objects: list[ObjectInfo], config: ConfigFiles) -> bytes:
        size = sum(entry.size for entry in objects)
        if size > LARGEST_TRACE_BYTES:
            raise EstimateFailed(
                f"the trace has {size / 1e9:.0f} GB; estimate it where it lies: cascade estimate DIR --config NAME"
            )
        with tempfile.TemporaryDirectory(prefix="cascade-estimate-") as scratch:
            for entry in objects:
                name = entry.key.removeprefix(f"{root}traces/")
                if name and "/" not in name and name not in (".", ".."):
                    with (Path(scratch) / name).open("wb") as target:
                        async for piece in self._uploads.stream(entry.key):
                            target.write(piece)
            return await _run(scratch, config)


async def _run(directory: str, config: ConfigFiles) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cascade_api.estimates.compute",
        directory,
        *(str(path) for path in config.existing()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
    )
    try:
        async with asyncio.timeout(COMPUTE_TIMEOUT_S):
            output, problem = await process.communicate()
    except TimeoutError:
        raise EstimateFailed(
            f"the estimate took more than {COMPUTE_TIMEOUT_S:.0f} s and was given up; "
            "estimate the trace where it lies: cascade estimate DIR --config NAME"
        ) from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it may have ended without the event loop knowing yet
                process.kill()
            await process.wait()
    if process.returncode != 0:
        raise EstimateFailed(problem.decode("utf-8", "replace").strip()[-2000:] or "the estimate failed")
    return output


def _content_digest(objects: list[ObjectInfo]) -> str:
    digest = hashlib.sha256()
    for entry in sorted(objects, key=lambda entry: entry.key):
        digest.update(
            f"{entry.key.rsplit('/', 1)[-1]}\0{entry.size}\0{entry.etag}\0".encode("utf-8", "surrogatepass")
        )
    return digest.hexdigest()[:32]
