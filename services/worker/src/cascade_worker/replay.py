"""The stand-in simulator: a recorded Accel-Sim log sent again, line by line.

The numbers come from the record, not from the trace; heartbeats say so (`engine: replay`).
"""

import asyncio
import gzip
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from cascade_worker.errors import CannotStartError, SourceFailedError
from cascade_worker.rundir import LOG_NAME, RESERVED_NAMES, copy_files

LINES_PER_PAUSE = 200
"""Lines between two pauses. [lines]"""

NOT_OUTPUTS = frozenset({"run.log", "setup.log"}) | RESERVED_NAMES
"""Files of a recorded run's directory that its simulator did not write."""

_GZIP_MAGIC = b"\x1f\x8b"


def check_recording(log: Path, outputs: Path | None) -> None:
    """Raise CannotStartError, naming the path, when there is nothing to replay."""
    if not log.is_file():
        raise CannotStartError(f"missing recorded log: {log}")
    if outputs is not None and not outputs.is_dir():
        raise CannotStartError(f"missing directory of recorded outputs: {outputs}")


async def replay_log(log: Path, *, run_dir: Path, delay_s: float) -> int:
    """Append the recorded `log` to the run's log, pausing `delay_s` every 200 lines; return exit code 0. [s]

    Raises SourceFailedError for a record that cannot be read to its end.
    """
    with (run_dir / LOG_NAME).open("ab") as sink:
        try:
            for block in _blocks(log):
                sink.write(block)
                sink.flush()
                await asyncio.sleep(delay_s)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceFailedError(f"the recorded log {log} cannot be read: {error}") from error
    return 0


async def copy_recorded_outputs(outputs: Path, *, run_dir: Path) -> None:
    """Put a recorded run's output files into `run_dir`, as if the simulator had written them."""
    await asyncio.to_thread(copy_files, outputs, run_dir, leave_out=NOT_OUTPUTS)


def _blocks(log: Path) -> Iterator[bytes]:
    with _open(log) as lines:
        while block := b"".join(islice(lines, LINES_PER_PAUSE)):
            yield block


def _open(log: Path) -> BinaryIO:
    file = log.open("rb")
    compressed = file.read(2) == _GZIP_MAGIC
    file.seek(0)
    if compressed:
        return gzip.GzipFile(fileobj=file, mode="rb")  # type: ignore[return-value]  # reads like any binary file
    return file
