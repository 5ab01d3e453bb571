"""Shared by the profiler's tests: the stand-in tools and a workload that takes milliseconds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cascade_profiler.pipeline import Surroundings
from cascade_profiler.testing.fake_tools import FakeTools, install
from cascade_profiler.workload import Workload


@pytest.fixture
def fake(tmp_path: Path) -> FakeTools:
    """Fake nsys, nvidia-smi, tracer and post-processor."""
    return install(tmp_path / "tools")


@pytest.fixture
def around(tmp_path: Path, fake: FakeTools) -> Surroundings:
    """Surroundings in which the stand-ins are found, without credentials of the machine's own."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CASCADE_"))}
    return Surroundings(
        runs_dir=tmp_path / "runs",
        scratch_dir=tmp_path / "scratch",
        environ=fake.environ(environ),
        tools=fake.tools(),
        jobs=2,
    )


@pytest.fixture
def workload() -> Workload:
    """Six prompt tokens, twelve generated, one warm-up and two steady repeats."""
    return Workload("facebook/opt-125m", ["Hello, my name is"], max_tokens=12, repeats=3)
