"""The `samples` service: puts the bundled samples into a workspace, then replays their results for runs that ask.

It writes facts of several services' kinds, so it uses the operator's login. Each start looks first at what is there;
event ids are fixed, so two starts at once, or a killed one, leave one sample behind.
"""

import asyncio
import gzip
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import structlog
import zstandard
from cascade_core import lifecycle, subjects, telemetry
from cascade_core.errors import Unavailable
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.metrics import serve_metrics
from cascade_core.ports import Bucket
from cascade_core.s3 import bucket as s3
from cascade_core.settings import BucketSettings, NatsSettings, TelemetrySettings, load
from cascade_core.sims.facts import SimReported
from cascade_core.sims.transitions import SimState
from pydantic import Field, JsonValue, TypeAdapter

from cascade_cli import bundled
from cascade_cli.sample_facts import (
    RUNS,
    TRACES,
    Durations,
    MappedKernel,
    Results,
    SampleRun,
    SampleTrace,
    StoredFile,
    discovered,
    log_lines,
    run_facts,
    trace_facts,
)
from cascade_cli.sample_replay import Replayer

_logger = structlog.get_logger(__name__)

SIDE_FILES = (
    "metadata.json",
    "run.json",
    "workload.json",
    "kernel_mapping.json",
    "real_timing.json",
    "corrected_timeline.json",
    "README.md",
)
OUTPUT_FILES = {"sim_kernels.csv": "text/csv", "sim_durations.json.gz": "application/gzip"}
RETRY_S = 1.0
HEALTH_WAIT_S = 60.0
HEALTH_POLL_S = 0.25

_MAPPING: TypeAdapter[list[MappedKernel]] = TypeAdapter(list[MappedKernel])


class SamplesSettings(NatsSettings, BucketSettings, TelemetrySettings):
    """Everything the samples service needs to know."""

    samples_after_url: str | None = Field(
        default=None,
        description="Health URL that is waited for before anything is seeded, so that a start is not slowed down.",
    )
    samples_dir: Path = Field(default=bundled.SAMPLES, description="Where the bundled samples are.")


@dataclass(frozen=True, slots=True)
class Seeder:
    """Puts samples into one log and its buckets."""

    log: JetStreamLog
    bucket: Bucket
    internal_bucket: Bucket
    prefix: str
    directory: Path

    async def seed(self) -> None:
        """Seed what is missing. Raises Unavailable; call again then."""
        for trace in TRACES:
            await self._seed_trace(trace)
        for run in RUNS:
            await self._seed_run(run)

    async def _seed_trace(self, trace: SampleTrace) -> None:
        fact, event_id = discovered(trace)
        if await self.log.newest([subjects.subject_of(fact)]) == 0:
            await self.log.append(fact, event_id=event_id)
        files = await asyncio.to_thread(_side_files, self.directory / trace.directory)
        await self._store_side_files(trace, files)
        size = sum(len(body) for body in files.values())
        metadata = json.loads(files["metadata.json"])
        told = trace_facts(trace, metadata, json.loads(files["real_timing.json"]), size)
        if await self.log.newest([subjects.subject_of(told[-1][0])]) == 0:
            await self.log.append_all(told)
            _logger.info("sample trace seeded", trace_id=trace.trace_id)

    async def _store_side_files(self, trace: SampleTrace, files: Mapping[str, bytes]) -> None:
        root = f"{self.prefix}/{trace.trace_id}/" if self.prefix else f"{trace.trace_id}/"
        stored, _ = await self.bucket.level(root)
        sizes = {entry.key: entry.size for entry in stored}
        for name, body in files.items():
            if sizes.get(root + name) != len(body):
                await self.bucket.put(root + name, body)

    async def _seed_run(self, run: SampleRun) -> None:
        ended = await self.log.last(subjects.sim_fact(run.run_id, run.sim_id, "reported"))
        if (
            ended is not None
            and isinstance(ended.fact, SimReported)
            and ended.fact.state is SimState.SUCCEEDED
        ):
            return
        files = [
            await self._store_output(run, name, content_type) for name, content_type in OUTPUT_FILES.items()
        ]
        results = await asyncio.to_thread(read_results, self.directory, run)
        archived = await self._store_log(run, log_lines(run, results))
        await self.log.append_all(run_facts(run, results, files, archived))
        _logger.info("sample run seeded", run_id=run.run_id)

    async def _store_output(self, run: SampleRun, name: str, content_type: str) -> StoredFile:
        body = await asyncio.to_thread((self.directory / run.directory / name).read_bytes)
        key = f"files/{run.sim_id}/{name}/sample"
        await self.internal_bucket.put(key, body, content_type=content_type)
        return StoredFile(name, len(body), content_type, key)

    async def _store_log(self, run: SampleRun, lines: list[str]) -> StoredFile:
        text = "".join(line + "\n" for line in lines).encode()
        name, key = f"{run.sim_id}.log.zst", f"logs/{run.run_id}/{run.sim_id}.log.zst"
        await self.internal_bucket.put(
            key, zstandard.ZstdCompressor().compress(text), content_type="application/zstd"
        )
        return StoredFile(name, len(text), "application/zstd", key)


def read_results(directory: Path, run: SampleRun) -> Results:
    """What was recorded of `run`, read from the bundled files."""
    recorded, trace = directory / run.directory, directory / run.trace.directory
    metadata = json.loads((trace / "metadata.json").read_bytes())
    return Results(
        mapping=_MAPPING.validate_json((trace / "kernel_mapping.json").read_bytes()),
        durations=Durations.model_validate_json(_unpacked(recorded / "sim_durations.json")),
        simulated=cast("dict[str, JsonValue]", json.loads(_unpacked(recorded / "simulated_timeline.json"))),
        compare=cast("dict[str, JsonValue]", json.loads(_unpacked(recorded / "compare.json"))),
        provenance=str(metadata["provenance"]),
    )


def _side_files(directory: Path) -> dict[str, bytes]:
    return {name: _unpacked(directory / name) for name in SIDE_FILES}


def _unpacked(path: Path) -> bytes:
    """The file, or what its gzipped form holds."""
    packed = path.with_name(path.name + ".gz")
    return path.read_bytes() if path.is_file() else gzip.decompress(packed.read_bytes())


async def serve(settings: SamplesSettings, stop: asyncio.Event) -> None:
    """Seed once the app is up, then replay until `stop` is set."""
    serve_metrics(settings.metrics_port, settings.metrics_host)
    await _healthy(settings.samples_after_url)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connected(settings, name="cascade-samples"))
        await provision(client, replicas=settings.nats_replicas)
        bucket = await stack.enter_async_context(s3.opened(settings))
        internal = await stack.enter_async_context(s3.opened(settings, bucket=settings.s3_internal_bucket))
        log = JetStreamLog(client)
        seeder = Seeder(log, bucket, internal, settings.s3_prefix.strip("/"), settings.samples_dir)
        await lifecycle.until_stopped(stop, _work(seeder, Replayer(log)))


async def _work(seeder: Seeder, replayer: Replayer) -> None:
    while True:
        try:
            await seeder.seed()
        except Unavailable as error:
            _logger.warning("seeding is tried again", error=str(error))
            await asyncio.sleep(RETRY_S)
        else:
            break
    await replayer.run()


async def _healthy(url: str | None) -> None:
    """Wait, for a bounded time, until `url` answers. Seeding needs only the servers, so it goes on without."""
    if url is None:
        return
    loop = asyncio.get_running_loop()
    until = loop.time() + HEALTH_WAIT_S
    while loop.time() < until:
        try:
            await asyncio.to_thread(_asked, url)
        except (urllib.error.URLError, OSError):
            await asyncio.sleep(HEALTH_POLL_S)
        else:
            return


def _asked(url: str) -> None:
    with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - our own address
        return


def main() -> int:
    """Entry point of the samples service alone."""
    settings = load(SamplesSettings)
    telemetry.configure(settings, service="samples")
    return lifecycle.run(lambda stop: serve(settings, stop), service="samples")


if __name__ == "__main__":
    raise SystemExit(main())
