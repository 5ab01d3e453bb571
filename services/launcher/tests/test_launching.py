"""Which preparations and launches are under way at a time."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from cascade_core.record import Recorded
from cascade_core.runs.state import Run
from cascade_core.s3.bucket import S3Bucket
from cascade_core.tasks import TaskSet, end
from cascade_core.testing.memory_log import MemoryLog
from cascade_launcher.backends.local import LocalBackend, LocalOptions
from cascade_launcher.fleet import Fleet
from cascade_launcher.launching import Launching
from cascade_launcher.plan import MOST_PREPARATIONS
from cascade_launcher.term import Term, Timing
from cascade_launcher.testing import PREFIX, cancel, eventually, run_requested


class RealClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Preparing(LocalBackend):
    """Never done with a preparation."""

    def __init__(self, bucket: S3Bucket, data_dir: Path) -> None:
        options = LocalOptions(
            sim_cmd="true",
            main_url="http://127.0.0.1:8000",
            token="",
            data_dir=data_dir,
            accelsim_dir=data_dir,
            bucket_name=bucket.name,
            prefix=PREFIX,
        )
        super().__init__(options, bucket, {})
        self.begun: list[str] = []

    async def prepare(self, run: Run) -> None:
        self.begun.append(run.run_id)
        await asyncio.Event().wait()


async def test_a_preparation_that_is_cancelled_before_it_begins_leaves_its_place(
    stored_trace: S3Bucket, tmp_path: Path
) -> None:
    backend, fleet = Preparing(stored_trace, tmp_path), Fleet()
    term = Term(
        log=MemoryLog(), backend=backend, clock=RealClock(), timing=Timing(), fleet=fleet, tasks=TaskSet()
    )
    launching = Launching(term, found=frozenset(), stop=lambda sim_id: None)
    early = [run_requested(number) for number in range(1, 1 + MOST_PREPARATIONS)]
    last = run_requested(99)
    for position, fact in enumerate(early, 1):
        fleet.apply(Recorded(position, fact, f"id-{position}"))
    running = asyncio.create_task(launching.run())
    try:
        await asyncio.sleep(0)  # it has made the tasks, and none of them has had its turn
        for position, run in enumerate(early, 10):
            fleet.apply(Recorded(position, cancel(run), f"id-{position}"))
            launching.forget_run(run.run_id)
        fleet.apply(Recorded(20, last, "id-20"))
        launching.look_again()
        await eventually(lambda: bool(backend.begun))
    finally:
        await end(running)
        over = asyncio.Event()
        over.set()
        await term.tasks.wait(over)
    assert backend.begun == [last.run_id]
