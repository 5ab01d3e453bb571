"""The streaming layout: trace a few layers and send every kernel's file away as soon as the tracer has closed
it.

`metadata.json` goes first, so that the app shows the trace at once; kernel files follow while tracing goes
on, and their local copies are deleted, so that a trace larger than the disk passes through. Logs, spinlock
data and the final `metadata.json` come at the end, after a failure too. Statistics come last: an app takes
the upload for complete when every kernel list has its statistics.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Protocol

from cascade_profiler.commands import (
    Command,
    Layout,
    gpu_command,
    layer_arguments,
    layers_command,
    spinlock_commands,
    trace_command,
)
from cascade_profiler.documents import RunRecord, metadata_json
from cascade_profiler.engine import EngineFacts
from cascade_profiler.errors import (
    CaptureError,
    CommandFailedError,
    OptionsError,
    ProfilerError,
    StageFailedError,
    UploadError,
)
from cascade_profiler.gpus import parse_gpu
from cascade_profiler.objects import RunStore
from cascade_profiler.options import ProfileOptions, check_run_name, default_run_name
from cascade_profiler.pipeline import Surroundings, profiler_version
from cascade_profiler.process import check, run, running
from cascade_profiler.secrets import redact, secret_values
from cascade_profiler.traces_folder import closed_traces, is_kernel_list, is_statistics
from cascade_profiler.workload import Workload

POLL_S = 0.5
"""[s] between two looks at the tracer's folder; a traced kernel takes far longer."""

TRACING = "tracing"
"""Status of the first metadata.json: neither ok nor failed yet."""


@dataclass(frozen=True, slots=True)
class StreamResult:
    """What a finished stream sent."""

    run_name: str
    kernels: int
    sent_bytes: int


class OpenRun(Protocol):
    """Connects to the place of one run in a bucket."""

    def __call__(self, run_name: str) -> AbstractContextManager[RunStore]:
        """Return the run's store, open while the block lasts."""


def list_layers(workload: Workload, around: Surroundings) -> tuple[str, ...]:
    """Return the model's module paths. Raises CommandFailedError if the model does not load."""
    with tempfile.TemporaryDirectory(prefix="cascade-layers-", dir=_made(around.scratch_dir)) as scratch:
        layout = Layout(Path(scratch))
        _write(layout.workload, workload.to_dict())
        command = layers_command(around.tools, layout)
        run(command, around.environ, timeout_s=ProfileOptions().stage_timeout_s)
        names: list[str] = json.loads((layout.baseline / "layers.json").read_text(encoding="utf-8"))
    return tuple(names)


def stream(
    workload: Workload,
    layers: Sequence[str],
    options: ProfileOptions,
    around: Surroundings,
    open_run: OpenRun,
    *,
    now: datetime | None = None,
) -> StreamResult:
    """Trace `layers` during one generation and stream the files into the bucket.

    open_run: connects to the run's place in the bucket, by its name.

    Raises OptionsError or UploadError (bucket not reachable) before anything is traced, StageFailedError
    after.
    """
    if not layers:
        raise OptionsError("no layers to trace; choose some from --list-layers")
    if not workload.enforce_eager:
        raise OptionsError(
            "layers cannot be traced with enforce_eager=False: CUDA graphs hide launches from the tracer"
        )
    started = now or datetime.now(UTC)
    run_name = options.run_name or default_run_name(started, workload.model, tuple(layers))
    check_run_name(run_name)
    record = RunRecord(
        run_name=run_name,
        workload=workload,
        options=options,
        profiler_version=profiler_version(),
        started_at=started.isoformat(),
        status=TRACING,
    )
    with open_run(run_name) as store:
        store.check()
        scratch = Path(tempfile.mkdtemp(prefix="cascade-stream-", dir=_made(around.scratch_dir)))
        try:
            return _Stream(record, tuple(layers), Layout(scratch), store, around).execute()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


class _Stream:
    def __init__(
        self,
        record: RunRecord,
        layers: Sequence[str],
        layout: Layout,
        store: RunStore,
        around: Surroundings,
    ) -> None:
        self._record = record
        self._layers = layers
        self._layout = layout
        self._store = store
        self._around = around
        self._sent: dict[str, int] = {}
        self._stage = "prepare"

    def execute(self) -> StreamResult:
        record, layout = self._record, self._layout
        record.engine = self._gpu()
        self._send_metadata()
        try:
            self._trace()
            record.engine = self._engine() or record.engine
            record.status, self._stage = "ok", "upload"
            self._send_rest()
        except BaseException as error:
            # Also an interrupt: whatever ends the stream, its trace must not be `tracing` for ever.
            detail = redact(str(error), secret_values(self._around.environ))
            kind = type(error).__name__
            record.status, record.error = "failed", f"{kind}: {detail}" if detail else kind
            record.failed_stage = self._stage
            self._send_diagnostics()
            if isinstance(error, ProfilerError | OSError):
                raise StageFailedError(self._stage, detail, run_dir=layout.root) from error
            raise
        return StreamResult(record.run_name, len(self._sent), sum(self._sent.values()))

    def _trace(self) -> None:
        layout, tools, record = self._layout, self._around.tools, self._record
        _write(layout.workload, record.workload.to_dict())
        (layout.traced / "spinlock_detection").mkdir(parents=True, exist_ok=True)
        handling = record.options.spinlock_handling
        self._stage = "spinlock"
        last = f"--trace-repeat={record.workload.repeats - 1}"
        for detection in spinlock_commands(tools, layout, handling=handling, arguments=(last,)):
            self._around.progress(detection.render())
            run(detection, self._around.environ, timeout_s=record.options.stage_timeout_s)
        self._stage = "trace"
        arguments = layer_arguments(self._layers)
        self._follow(trace_command(tools, layout, handling=handling, arguments=arguments, mode="layers"))
        if not self._sent:
            raise CaptureError(f"no kernel was traced in {', '.join(self._layers)}; do these modules run?")

    def _follow(self, command: Command) -> None:
        """Run the tracer and send what it has closed, until it ends; then send the rest."""
        self._around.progress(command.render())
        waited_s = 0.0
        with running(command, self._around.environ) as process:
            while True:
                try:
                    code = process.wait(timeout=POLL_S)
                    break
                except TimeoutExpired:
                    waited_s += POLL_S
                    if waited_s > self._record.options.stage_timeout_s:
                        limit = f"{self._record.options.stage_timeout_s:g} s"
                        raise CommandFailedError(
                            f"the tracer ran past its limit of {limit}", log=command.log
                        ) from None
                self._send_traces(finished=False)
        check(command, code)
        self._send_traces(finished=True)

    def _send_traces(self, *, finished: bool) -> None:
        folder = self._layout.traces
        if not folder.is_dir():
            return
        present = [path.name for path in folder.iterdir()]
        lists = [_text(folder / name) for name in present if is_kernel_list(name)]
        for name in closed_traces(lists, present, finished=finished):
            path = folder / name
            size = path.stat().st_size
            self._store.put_file(f"traces/{name}", path)
            path.unlink()
            self._sent[name] = size
            self._around.progress(f"sent {name} ({size} bytes)")

    def _engine(self) -> EngineFacts | None:
        """What the engine said of itself; None where it did not come so far. Raises CaptureError."""
        engine = self._layout.traced / "engine.json"
        return EngineFacts.from_json(_text(engine)) if engine.is_file() else None

    def _send_diagnostics(self) -> None:
        """Send what a failed stream left, without the rest of its traces, as far as that can be sent."""
        with suppress(CaptureError):
            self._record.engine = self._engine() or self._record.engine
        try:
            self._send_rest()
        except (UploadError, OSError) as error:
            self._around.progress(f"could not send all diagnostics: {error}")

    def _send_rest(self) -> None:
        """Send logs, spinlock data, lists, the final metadata and the statistics, in this order."""
        layout = self._layout
        secrets = secret_values(self._around.environ)
        for log in sorted(layout.logs.glob("*")):
            self._store.put_bytes(f"logs/{log.name}", _clean(log, secrets))
        detection = layout.traced / "spinlock_detection"
        for path in sorted(path for path in detection.rglob("*") if path.is_file()):
            self._store.put_file(f"spinlock_detection/{path.relative_to(detection).as_posix()}", path)
        tables = sorted(layout.traces.glob("*")) if layout.traces.is_dir() else []
        for path in tables:
            if is_kernel_list(path.name):
                self._store.put_file(f"traces/{path.name}", path)
        self._send_metadata()
        for path in tables:
            if is_statistics(path.name):
                self._store.put_file(f"traces/{path.name}", path)

    def _send_metadata(self) -> None:
        document = metadata_json(self._record, layers=self._layers, real_timing=False)
        document["kernels_sent"] = len(self._sent)
        self._store.put_bytes("metadata.json", (json.dumps(document, indent=1) + "\n").encode())

    def _gpu(self) -> EngineFacts | None:
        """Ask nvidia-smi for the GPU, so that the first metadata.json can name it; without it, the engine
        will."""
        command = gpu_command(self._around.tools, self._layout)
        try:
            run(command, self._around.environ, timeout_s=60)
        except CommandFailedError:
            return None
        found = parse_gpu(_text(command.log))
        return None if found is None else EngineFacts("", found[0], found[1])


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _clean(path: Path, secrets: Sequence[str]) -> bytes:
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    return redact(text, secrets).encode("utf-8", errors="surrogateescape")


def _write(path: Path, document: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document) + "\n", encoding="utf-8")


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory
