"""What tests of ingest share: uploads, scans that wait for the processing they start, on any ports."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from cascade_core.ports import Bucket, EventLog
from cascade_core.traces.state import Trace, TraceState

from cascade_ingest.postprocess import Postprocessor
from cascade_ingest.reactor import Ingest

PREFIX = "accelsim-traces"
PROCESSED_WITHIN_S = 240.0
"""A thousand files to and from a real store took 17 s on two busy cores."""
T = "t"
"""A trace id."""
READY = {
    "metadata.json": json.dumps({"model": "m", "layers": ["a"], "gpu": "H100"}),
    "traces/kernelslist.g": "kernel-1.traceg\n",
    "traces/kernel-1.traceg": "x",
}
"""The files of an upload that is complete as soon as it is quiet."""
TIMING = json.dumps(
    [
        {"kernel_id": 2, "kernel_name": "b", "duration_ns": 20.0, "grid": [1, 1, 1], "block": [32, 1, 1]},
        {"kernel_id": 1, "kernel_name": "a", "duration_ns": 10, "grid": "2x1x1", "block": "(32, 1, 1)"},
    ]
)
"""A `real_timing.json` in the forms that occur, out of order."""


class Bench:
    """One ingest, driven scan by scan."""

    def __init__(self, log: EventLog, bucket: Bucket, work: Path, *, command: str) -> None:
        """command: the post-processor. Scans follow each other at once, so the interval is next to nothing."""
        self.bucket = bucket
        self.ingest = Ingest(
            log,
            bucket,
            prefix=PREFIX,
            postprocessor=Postprocessor(command, work),
            scan_interval_s=1e-6,
            listing_share=0,
        )

    async def put(self, trace_id: str, files: Mapping[str, bytes | str]) -> None:
        """Upload files of one trace, by their path below it."""
        for path, body in files.items():
            await self.bucket.put(key_of(trace_id, path), body.encode() if isinstance(body, str) else body)

    async def delete(self, trace_id: str, *paths: str) -> None:
        """Take files of one trace away."""
        await self.bucket.delete([key_of(trace_id, path) for path in paths])

    async def scan(self, times: int = 1) -> None:
        """Scan, and wait until the processing that began is over."""
        for _ in range(times):
            await self.ingest.scan()
            await until(self._is_idle, deadline_s=PROCESSED_WITHIN_S)

    def trace(self, trace_id: str) -> Trace:
        """The trace as it stands."""
        return self.ingest.traces[trace_id]

    async def _is_idle(self) -> bool:
        return not self.ingest.processing


async def ready(bench: Bench, trace_id: str = T) -> None:
    """Upload a whole trace and see it become ready."""
    await bench.put(trace_id, READY)
    await bench.scan(2)
    assert bench.trace(trace_id).state is TraceState.READY


def key_of(trace_id: str, path: str) -> str:
    """The object's key of one file of a trace."""
    return f"{PREFIX}/{trace_id}/{path}"


async def until(
    condition: Callable[[], Awaitable[bool]], *, deadline_s: float = 60, every_s: float = 0.01
) -> None:
    """Wait for `condition`, or fail at the deadline."""
    async with asyncio.timeout(deadline_s):
        while not await condition():  # noqa: ASYNC110 - it may be another process that brings it about
            await asyncio.sleep(every_s)
