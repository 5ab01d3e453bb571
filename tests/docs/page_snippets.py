"""Finds the snippets of a page that a reader is meant to run, and runs them as one does.

`<!-- run: serve -->` marks a block that starts the app and stays, `<!-- run -->` one for the second terminal,
`<!-- shows -->` text that the block before it must print, with `…` for anything.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MARKED = re.compile(r"^<!-- (run: serve|run|shows) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINKED: Final = ("examples", "scripts", "samples", "docs")
UP: Final = "Uvicorn running on"
UP_WITHIN_S: Final = 120.0
RUNS_WITHIN_S: Final = 180.0
STOPS_WITHIN_S: Final = 90.0
POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Snippet:
    """One block to run, and what it must show."""

    serves: bool
    code: str
    shows: str


def snippets(page: str) -> list[Snippet]:
    """The runnable blocks of a page, in order."""
    found: list[Snippet] = []
    for kind, body in MARKED.findall(page):
        if kind == "shows":
            found[-1] = Snippet(found[-1].serves, found[-1].code, body)
        else:
            found.append(Snippet(kind == "run: serve", body, ""))
    return found


def missing(shown: str, output: str) -> list[str]:
    """The lines of `shown` that `output` does not have."""
    lines = [line for line in shown.split("\n") if line.strip()]
    return [line for line in lines if re.search(".*".join(map(re.escape, line.split("…"))), output) is None]


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody with a checkout, two terminals and free ports."""

    home: Path
    port: int
    s3_port: int

    def follow(self, page: str) -> Iterator[tuple[Snippet, str]]:
        """Run every block; yields each with what it printed. An app that a block starts runs until the next one."""
        todo = snippets(page)
        while todo:
            first = todo.pop(0)
            if not first.serves:
                yield first, self.run(first.code)
                continue
            with self.serving(first.code) as output:
                yield first, output
                while todo and not todo[0].serves:
                    inner = todo.pop(0)
                    yield inner, self.run(inner.code)

    def run(self, code: str) -> str:
        """Run a block to its end; what it printed. Raises AssertionError where it fails."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._here(code)],
            cwd=self.home,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=RUNS_WITHIN_S,
        )
        assert done.returncode == 0, f"{code}\nended with {done.returncode}:\n{done.stdout}"
        return self._there(done.stdout)

    @contextmanager
    def serving(self, code: str) -> Iterator[str]:
        """Start a block that stays; what it printed until it was up."""
        log = self.home / "serve.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-eu", "-c", self._here(code)],
                cwd=self.home,
                env=self._environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            deadline = time.monotonic() + UP_WITHIN_S
            while UP not in log.read_text(errors="replace"):
                assert process.poll() is None, f"{code}\nended:\n{log.read_text(errors='replace')}"
                assert time.monotonic() < deadline, f"not up:\n{log.read_text(errors='replace')}"
                time.sleep(POLL_S)
            yield self._there(log.read_text(errors="replace"))
        finally:
            _stop(process)

    def _here(self, code: str) -> str:
        return code.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")

    def _there(self, output: str) -> str:
        return output.replace(f":{self.port}", ":8000").replace(f":{self.s3_port}", ":9000")

    def _environment(self) -> Mapping[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("CASCADE_")}
        return plain | {
            "PATH": f"{self.home / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CASCADE_PORT": str(self.port),
            "CASCADE_S3_PORT": str(self.s3_port),
            "COLUMNS": "120",
        }


def reader(home: Path, port: int, s3_port: int) -> Reader:
    """A reader whose checkout is ours and whose `uv run` uses the environment of this test."""
    for name in LINKED:
        (home / name).symlink_to(ROOT / name)
    uv = home / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text('#!/bin/sh\n[ "$1" = run ] || exit 64\nshift\nexec "$@"\n')
    uv.chmod(0o755)
    return Reader(home, port, s3_port)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)  # what Ctrl+C does
    try:
        process.wait(STOPS_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
