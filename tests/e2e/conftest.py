"""A real `cascade serve` on the bundled samples, as a user has it, shared by all tests of this folder."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from cascade_cli.embedded.process import free_ports

TOKEN = "correct-horse-battery-staple"
PATIENCE_S = 120.0
CASES = Path(__file__).parent / "cases"
"""Small inputs that broke systems like this one, with what is right; our own data."""


@dataclass(frozen=True)
class App:
    """A running app."""

    url: str
    log: Path

    def client(self, token: str | None = TOKEN) -> httpx.Client:
        """An HTTP client with the token."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """Served, healthy and seeded. No network beyond loopback is asked for."""
    directory = tmp_path_factory.mktemp("serve")
    directory.chmod(0o755)
    port, s3_port = free_ports(2)
    environment = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    environment |= {
        "CASCADE_TOKEN": TOKEN,
        "CASCADE_HOST": "127.0.0.1",
        "CASCADE_PORT": str(port),
        "CASCADE_S3_PORT": str(s3_port),
        "CASCADE_DATA_DIR": str(directory / "data"),
        "CASCADE_TOKENIZER_DIR": str(directory / "no-tokenizers"),
    }
    log = directory / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "cascade_cli", "serve"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    app = App(f"http://127.0.0.1:{port}", log)
    try:
        _wait_for_samples(app, process)
        yield app
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_samples(app: App, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, app.log.read_text()
        try:
            with app.client() as client:
                runs = client.get("/api/runs")
            if runs.status_code == 200 and sum(run["state"] == "succeeded" for run in runs.json()) == 3:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < until, f"not seeded in {PATIENCE_S:.0f} s:\n{app.log.read_text()[-4000:]}"
        time.sleep(0.2)


@pytest.fixture(scope="session")
def client(app: App) -> Iterator[httpx.Client]:
    with app.client() as client:
        yield client


@pytest.fixture(scope="session")
def case() -> Callable[[str, str], Any]:
    """(case, file) -> its parsed JSON."""
    return lambda name, file: json.loads((CASES / name / file).read_bytes())
