"""The stand-in post-processor, and a bench on ports in memory."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cascade_core.testing.memory_bucket import MemoryBucket
from cascade_core.testing.memory_log import MemoryLog
from cascade_ingest.testing import Bench

STAND_IN = Path(__file__).parent / "stand_in_postprocessor.py"


@pytest.fixture(scope="session")
def stand_in() -> Callable[..., str]:
    """The command of the stand-in in one of its modes."""

    def command(*words: str) -> str:
        return shlex.join([sys.executable, str(STAND_IN), *words])

    return command


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def store() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture
async def bench(log: MemoryLog, store: MemoryBucket, tmp_path: Path, stand_in: Callable[..., str]) -> Bench:
    return Bench(log, store, tmp_path, command=stand_in("ok"))
