"""The worker, standing still in the middle of a replay until a file is there: `held_replay.py GO_ON <its arguments>`.

What a test does in the middle of a run then happens in the middle, however slow or fast the machine is.
"""

import asyncio
import sys
from pathlib import Path

from cascade_worker import main, replay, work
from cascade_worker.rundir import LOG_NAME

GO_ON = Path(sys.argv.pop(1))
BLOCKS_BEFORE = 28
"""Of 200 lines each: three kernels of the bundled log's six."""


def may_go_on() -> bool:
    """Whether the test has put its file there."""
    return GO_ON.exists()


async def replay_log(log: Path, *, run_dir: Path, delay_s: float) -> int:
    """As the worker's own, in two parts."""
    with (run_dir / LOG_NAME).open("ab") as sink:
        for number, block in enumerate(replay._blocks(log)):
            while number == BLOCKS_BEFORE and not may_go_on():  # noqa: ASYNC110 - a test's file
                await asyncio.sleep(0.05)
            sink.write(block)
            sink.flush()
            await asyncio.sleep(delay_s)
    return 0


setattr(work, "replay_log", replay_log)  # noqa: B010 - a name that `work` does not export

if __name__ == "__main__":
    main.main()
