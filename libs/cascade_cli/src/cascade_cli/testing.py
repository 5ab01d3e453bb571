"""Pytest fixtures: a whole app with one finished run, as `cascade demo --stay` leaves it. Shared by a session's tests.

A package's conftest imports them. The app serves until the session ends.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from cascade_client.client import CascadeClient

from cascade_cli import running

STARTED_WITHIN_S: Final = 180.0
STOPPED_WITHIN_S: Final = 60.0
PARSED_WITHIN_S: Final = 60.0
KERNELS: Final = {"replay": 6, "estimate": 8}
"""Of each sim's log, by the engine that makes it."""


@dataclass(frozen=True, slots=True)
class DemoApp:
    """A running app."""

    url: str
    token: str
    data_dir: Path
    summary: dict[str, Any]
    """What the demo printed: the run's id, its states and each config's totals."""

    @property
    def run_id(self) -> str:
        """The finished run."""
        return str(self.summary["run_id"])

    def environment(self) -> dict[str, str]:
        """The variables that name the app, on top of what any process needs."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CASCADE_")}
        kept.pop("COLUMNS", None)
        return kept | {"CASCADE_URL": self.url, "CASCADE_TOKEN": self.token}


@pytest.fixture(scope="session")
def replay_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoApp]:
    """An app whose sims replay a recorded log: the stand-in."""
    with _demo(tmp_path_factory.mktemp("replay"), "replay") as app:
        yield app


@pytest.fixture(scope="session")
def estimate_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoApp]:
    """An app whose sims estimate."""
    with _demo(tmp_path_factory.mktemp("estimate"), "estimate") as app:
        yield app


@contextmanager
def _demo(directory: Path, engine: str) -> Iterator[DemoApp]:
    output, problems = directory / "summary.json", directory / "problems.txt"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CASCADE_")}
    command = [sys.executable, "-m", "cascade_cli", "demo", "--json", "--stay", "--engine", engine]
    with output.open("wb") as stdout, problems.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "--data-dir", str(directory / "data")], stdout=stdout, stderr=stderr, env=environment
        )
    try:
        summary = _summary(process, output, problems)
        urls = running.read(directory / "data")
        assert urls is not None
        assert urls.token is not None
        _wait_until_parsed(urls.url, urls.token, str(summary["run_id"]), KERNELS[engine])
        yield DemoApp(urls.url, urls.token, directory / "data", summary)
    finally:
        process.terminate()
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_parsed(url: str, token: str, run_id: str, kernels: int) -> None:
    """A run has ended once its simulators say so; the last kernels are read from its logs a moment later."""
    deadline = time.monotonic() + PARSED_WITHIN_S
    with CascadeClient(url, token) as client:
        while any(sim.kernels_done < kernels for sim in client.run(run_id).sims):
            assert time.monotonic() < deadline, f"the logs were not read in {PARSED_WITHIN_S:.0f} s"
            time.sleep(0.1)


def _summary(process: "subprocess.Popen[bytes]", output: Path, problems: Path) -> dict[str, Any]:
    deadline = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < deadline:
        text = output.read_text()
        if text.endswith("\n"):
            summary: dict[str, Any] = json.loads(text)
            return summary
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(f"the demo gave no summary: {problems.read_text()}")
