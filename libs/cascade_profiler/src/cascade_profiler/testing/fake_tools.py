"""Executables that stand in for Nsight, nvidia-smi and the post-processor, and a directory like Accel-Sim's.

`install` writes them into a directory; put its `bin` on PATH and hand `accelsim` to `Tools.in_accelsim`.
"""

from __future__ import annotations

import json
import lzma
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from cascade_profiler.commands import Tools
from cascade_profiler.testing.fake_engine import FAIL, MAX_WAIT_S, NSYS_LOG
from cascade_profiler.traces_folder import is_kernel_list, stem_of

CLOCKS = "CASCADE_FAKE_WAITS_FOR_CLOCKS"
"""Variable that makes Nsight wait, before it ends, until the clocks beside it were sampled: a run here is shorter than
the start of the sampler may be."""

FAKE_ENGINE = "cascade_profiler.testing.fake_engine:open_engine"

_PROCESS = 0x0100_1234_0000_00
"""A serialized process id: the lowest 24 bits are the thread's."""


_SCHEMA = {
    "StringIds": "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
    "NVTX_EVENTS": """
        CREATE TABLE NVTX_EVENTS (
            start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, text TEXT,
            globalTid INTEGER, textId INTEGER)""",
    "CUPTI_ACTIVITY_KIND_KERNEL": """
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
            start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
            streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
            shortName INTEGER NOT NULL, mangledName INTEGER, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
            gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL)""",
    "CUPTI_ACTIVITY_KIND_RUNTIME": """
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
            start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER)""",
    "CUPTI_ACTIVITY_KIND_MEMCPY": """
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (
            start INTEGER NOT NULL, end INTEGER NOT NULL, streamId INTEGER, correlationId INTEGER,
            globalPid INTEGER, bytes INTEGER)""",
}
"""The columns of Nsight's export that matter here, as its schema reference has them."""


@dataclass(frozen=True, slots=True)
class FakeTools:
    """Where the stand-ins lie."""

    bin: Path
    accelsim: Path

    def tools(self) -> Tools:
        """Return the tools as a profile wants them, with the fake engine."""
        return Tools.in_accelsim(self.accelsim, engine=FAKE_ENGINE)

    def environ(self, base: Mapping[str, str], **more: str) -> dict[str, str]:
        """Return an environment in which the stand-ins are found first."""
        return {**base, "PATH": f"{self.bin}{os.pathsep}{base.get('PATH', '')}", **more}


def install(directory: Path) -> FakeTools:
    """Write the stand-ins below `directory`."""
    fake = FakeTools(bin=directory / "bin", accelsim=directory / "accel-sim")
    tools = fake.tools()
    for path in (tools.tracer, tools.spinlock_detector):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x7fELF")
    _script(fake.bin / "nsys", "nsys")
    _script(fake.bin / "nvidia-smi", "nvidia_smi")
    _script(Path(tools.postprocessor), "postprocess")
    return fake


def nsys(argv: Sequence[str]) -> int:
    """Act as `nsys profile ... <command>` or `nsys export ... <report>`."""
    action, *rest = argv
    options = [word for word in rest if word.startswith("--")]
    output = Path(next(word for word in options if word.startswith("--output=")).partition("=")[2])
    if action == "export":
        if os.environ.get(FAIL) == "export":
            print("Failed to open the report", file=sys.stderr)
            return 1
        _export(Path(rest[-1]), output)
        return 0
    command = rest[next(i for i, word in enumerate(rest) if not word.startswith("--")) :]
    log = output.with_suffix(".launches")
    code = subprocess.run(command, env={**os.environ, NSYS_LOG: str(log)}, check=False).returncode
    if os.environ.get(CLOCKS):
        _wait_for_text(output.with_name("clocks.csv"))
    events = (
        [json.loads(line) for line in log.read_text(encoding="utf-8").split("\n") if line]
        if log.exists()
        else []
    )
    log.unlink(missing_ok=True)
    # The real report holds the environment of what it ran, which is why it must not leave the machine.
    report = {"environment": dict(os.environ), "events": [] if os.environ.get(FAIL) == "nsys" else events}
    output.write_text(json.dumps(report), encoding="utf-8")
    return code


def nvidia_smi(argv: Sequence[str]) -> int:
    """Act as nvidia-smi: name and capability once, or clocks once and then nothing until stopped."""
    if any("compute_cap" in word for word in argv):
        print("NVIDIA H100 80GB HBM3, 9.0")
        return 0
    print("1980, 2619\n1965, 2619\n1980, 2619", flush=True)
    signal.pause()
    return 0


def postprocess(argv: Sequence[str]) -> int:
    """Act as post-traces-processing: a .tracez for every raw trace, and kernelslist.g for the first list."""
    traces = Path(argv[0])
    if os.environ.get(FAIL) == "postprocess":
        print("cannot read the list", file=sys.stderr)
        return 3
    listed = min(path for path in traces.iterdir() if is_kernel_list(path.name))
    lines: list[str] = []
    for line in listed.read_text(encoding="utf-8").rstrip("\n").split("\n"):
        if line.startswith("kernel"):
            raw = lzma.decompress((traces / line).read_bytes())
            line = f"{stem_of(line)}.tracez"  # noqa: PLW2901
            (traces / line).write_bytes(raw + b"\0" + bytes(16))
        lines.append(line)
    if os.environ.get(FAIL) == "postprocess-silent":
        lines = lines[:-1]  # and exit 0, as old versions do
    (traces / "kernelslist.g").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def _wait_for_text(path: Path) -> None:
    deadline_s = monotonic() + MAX_WAIT_S
    while not (path.exists() and path.read_text(encoding="utf-8").endswith("\n")):
        if monotonic() > deadline_s:
            raise TimeoutError(f"nothing in {path} after {MAX_WAIT_S:g} s")
        sleep(0.01)


def _export(report: Path, output: Path) -> None:
    """Write an SQLite export with the tables and columns of Nsight's own."""
    events = json.loads(report.read_text(encoding="utf-8"))["events"]
    strings: dict[str, int] = {}

    def string_id(text: str) -> int:
        return strings.setdefault(text, len(strings) + 1)

    kernels = [event for event in events if "kernel" in event]
    copies = [event for event in events if "memcpy" in event]
    output.unlink(missing_ok=True)
    with closing(sqlite3.connect(output)) as database, database:
        for table in ("StringIds", "NVTX_EVENTS"):
            database.execute(_SCHEMA[table])
        for event in events:
            if "range" in event:
                marked = (event["start"], event["end"], _PROCESS + 5, string_id(event["range"]))
                database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, NULL, ?, ?)", marked)
        if kernels:  # tables are made lazily
            for table in (
                "CUPTI_ACTIVITY_KIND_KERNEL",
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                "CUPTI_ACTIVITY_KIND_MEMCPY",
            ):
                database.execute(_SCHEMA[table])
        for event in reversed(kernels):  # rows are in no order
            # Some rows name a kernel in its demangled spelling only.
            mangled = None if event["stream"] != 7 else string_id(event["kernel"])
            names = (string_id(event["demangled"]), string_id(event["demangled"]), mangled)
            launch = (event["start"], event["end"], event["stream"], event["correlation"], _PROCESS, *names)
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*launch, *event["grid"], *event["block"]),
            )
        for event in copies:
            copy = (event["start"], event["end"], event["correlation"], _PROCESS)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 7, ?, ?, 8)", copy)
        for event in kernels + copies:
            call = (*event["api"], _PROCESS + 5, event["correlation"], string_id("cudaLaunchKernel"))
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", call)
        database.executemany("INSERT INTO StringIds VALUES (?2, ?1)", list(strings.items()))


def _script(path: Path, function: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!{sys.executable}\nimport sys\nfrom cascade_profiler.testing.fake_tools import {function}\n"
        f"sys.exit({function}(sys.argv[1:]))\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
