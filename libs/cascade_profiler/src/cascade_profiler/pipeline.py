"""One profile from start to end: baseline, Nsight, NVBit, reconciliation, post-processing, collection,
upload.

The order is the point: the unprofiled walls first, kernel timing second, instruction traces last, each in a
process of its own, and the timing of the traced run is never used. Whatever fails, the run directory ends up
with what was found out and a `run.json` that says which stage failed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic

from cascade_profiler import collect as collecting
from cascade_profiler.alignment import (
    StepAlignment,
    align_steps,
    alignment_json,
    kernel_mapping_json,
    real_timing_json,
    split_by_step,
)
from cascade_profiler.attribution import profiled_steps
from cascade_profiler.commands import (
    Command,
    Layout,
    Tools,
    baseline_command,
    clocks_command,
    postprocess_command,
    profiled_commands,
    spinlock_commands,
    trace_arguments,
    trace_command,
)
from cascade_profiler.destination import upload_run
from cascade_profiler.documents import (
    RunRecord,
    metadata_json,
    prompt_tokens,
    run_json,
    timeline_meta,
    workload_json,
)
from cascade_profiler.engine import EngineFacts
from cascade_profiler.errors import CaptureError, CommandFailedError, ProfilerError, StageFailedError
from cascade_profiler.gpus import parse_clocks
from cascade_profiler.nsys_export import read_capture
from cascade_profiler.options import ProfileOptions, S3Destination, check, default_run_name
from cascade_profiler.plan import resolve_steps
from cascade_profiler.process import run, running
from cascade_profiler.secrets import redact, secret_values
from cascade_profiler.steps import RequestMark, StepMark, parse_requests, parse_steps
from cascade_profiler.timeline import TimelineStep, reconcile, timeline_json
from cascade_profiler.traced_run import read_traced_run
from cascade_profiler.workload import Workload

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run takes from outside.

    runs_dir: where run directories are made (the volume).
    scratch_dir: local disk for everything before the collection.
    environ: the environment; children get it without secrets, the upload takes its credentials from it.
    jobs: [processes] for post-processing.
    """

    runs_dir: Path
    scratch_dir: Path
    environ: Mapping[str, str]
    tools: Tools
    jobs: int = 8
    progress: Progress = lambda _line: None


def profile(
    workload: Workload, options: ProfileOptions, around: Surroundings, *, now: datetime | None = None
) -> dict[str, object]:
    """Profile `workload` and return the content of `run.json`, which also says where the run lies.

    Raises OptionsError before anything is started, StageFailedError afterwards.
    """
    check(workload, options)
    started = now or datetime.now(UTC)
    run_name = options.run_name or default_run_name(started, workload.model)
    run_dir = around.runs_dir / run_name
    if run_dir.exists():
        raise StageFailedError("prepare", f"{run_dir} exists; choose another run name", run_dir=run_dir)
    record = RunRecord(
        run_name=run_name,
        workload=workload,
        options=options,
        profiler_version=profiler_version(),
        started_at=started.isoformat(),
    )
    around.scratch_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="cascade-trace-", dir=around.scratch_dir))
    try:
        return _Run(record, Layout(scratch), run_dir, around).execute()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def profiler_version() -> str:
    """Return the installed version, or `0+unknown` in a source tree that is not installed."""
    try:
        return version("cascade-profiler")
    except PackageNotFoundError:
        return "0+unknown"


class _Run:
    """The state of one run while it goes on: the record, and the stage that is open."""

    def __init__(self, record: RunRecord, layout: Layout, run_dir: Path, around: Surroundings) -> None:
        self._record = record
        self._layout = layout
        self._run_dir = run_dir
        self._around = around
        self._stage = "prepare"

    def execute(self) -> dict[str, object]:
        record = self._record
        try:
            self._profile()
            record.status = "ok"
            with self._timed("trace_collect"):
                self._collect(self._takes_all())
        except (ProfilerError, OSError) as error:
            detail = self._salvage(error)
            raise StageFailedError(self._stage, detail, run_dir=self._run_dir) from error
        except BaseException as error:  # an interrupt or a defect: keep what there is, then let it through
            self._salvage(error)
            raise
        if record.destination is not None:
            self._upload(record.destination)
        return self._finish()

    def _profile(self) -> None:
        record = self._record
        self._write("workload.json", record.workload.to_dict())
        steps, requests = self._baseline()
        self._stage = "plan"
        wanted = record.options.trace_steps
        record.trace_repeat = record.options.repeat_to_trace(record.workload)
        record.trace_steps = resolve_steps(wanted, steps, repeat=record.trace_repeat)
        timeline = self._profiled(steps, requests)
        if record.trace_steps:
            self._trace(timeline)
        self._write_metadata(replace(record, status="ok"), real_timing=bool(record.trace_steps))

    def _baseline(self) -> tuple[tuple[StepMark, ...], tuple[RequestMark, ...]]:
        layout, record = self._layout, self._record
        with self._timed("baseline"):
            self._run(baseline_command(self._around.tools, layout))
            steps = parse_steps(_text(layout.baseline / "steps.jsonl"))
            requests = parse_requests(_text(layout.baseline / "requests.jsonl"))
            record.engine = EngineFacts.from_json(_text(layout.baseline / "engine.json"))
            record.prompt_tokens = prompt_tokens(requests)
            self._write("workload.json", workload_json(record))
        return steps, requests

    def _profiled(
        self, steps: tuple[StepMark, ...], requests: tuple[RequestMark, ...]
    ) -> tuple[TimelineStep, ...]:
        layout, record, tools = self._layout, self._record, self._around.tools
        with self._timed("profiled"):
            profile_run, export = profiled_commands(tools, layout)
            with self._clocks():
                self._run(profile_run)
            self._run(export)
            capture = read_capture(layout.export)
            if not capture.kernels:
                raise CaptureError(
                    f"the capture {layout.report.name} has no kernels; did the workload use the GPU?"
                )
            timeline = reconcile(
                baseline=steps,
                profiled=parse_steps(_text(layout.profiled / "steps.jsonl")),
                captured=profiled_steps(capture),
                warmup_repeats=record.workload.warmup_repeats,
            )
            record.sm_clock_mhz_median, record.mem_clock_mhz = parse_clocks(_text(layout.clocks, missing=""))
            document = timeline_json(
                meta=timeline_meta(record),
                steps=timeline,
                requests=requests,
                warmup_repeats=record.workload.warmup_repeats,
            )
            self._write("corrected_timeline.json", document)
            if not record.options.keep_nsys_rep:
                layout.report.unlink(missing_ok=True)
                layout.export.unlink(missing_ok=True)
        return timeline

    def _trace(self, timeline: tuple[TimelineStep, ...]) -> None:
        layout, record, tools = self._layout, self._record, self._around.tools
        assert record.trace_repeat is not None, "set before the profiled stage"
        handling = record.options.spinlock_handling
        arguments = trace_arguments(repeat=record.trace_repeat, steps=record.trace_steps)
        with self._timed("trace"):
            # The detector and the tracer write below this folder, and make no parents.
            (layout.traced / "spinlock_detection").mkdir(parents=True, exist_ok=True)
            for detection in spinlock_commands(tools, layout, handling=handling, arguments=arguments):
                self._run(detection)
            self._run(trace_command(tools, layout, handling=handling, arguments=arguments))
        if record.options.postprocess:
            with self._timed("postprocess"):
                self._run(postprocess_command(tools, layout, jobs=self._around.jobs))
                record.postprocessed = True
        with self._timed("align"):
            traced = read_traced_run(layout.traced, processed=record.postprocessed)
            aligned = align_steps(split_by_step(traced.kernels, traced.spans, traced.lists), timeline)
            self._write_alignment(aligned)
            self._write("real_timing.json", real_timing_json(aligned, traced.kernels))

    def _write_alignment(self, aligned: tuple[StepAlignment, ...]) -> None:
        document = alignment_json(aligned)
        summary = document["summary"]
        assert isinstance(summary, dict), "alignment_json makes it"
        self._record.alignment = summary
        self._write("trace_alignment.json", document)
        self._write("kernel_mapping.json", kernel_mapping_json(aligned))

    def _takes_all(self) -> Callable[[Path], bool]:
        keep = self._record.options.keep_nsys_rep
        return collecting.everything if keep else collecting.everything_but_captures

    def _collect(self, include: Callable[[Path], bool]) -> None:
        secrets = secret_values(self._around.environ)
        self._write("workload.json", workload_json(self._record))
        collecting.collect(self._layout.root, self._run_dir, secrets=secrets, include=include)

    def _salvage(self, error: BaseException) -> str:
        """Collect and, if asked for, upload what explains the failure; return its text.

        A second failure only adds a line of progress. The text may quote a log, so that it loses secrets as logs do.
        """
        record = self._record
        detail = redact(str(error), secret_values(self._around.environ))
        record.status, record.failed_stage = "failed", self._stage
        record.error = f"{type(error).__name__}: {detail}"
        try:
            self._write_metadata(record, real_timing=False)
            self._collect(collecting.diagnostics_only)
            self._finish()
            if record.destination is not None:
                self._send(record.destination)
        except (ProfilerError, OSError) as second:
            self._around.progress(f"could not keep all diagnostics: {second}")
        return detail

    def _upload(self, destination: S3Destination) -> None:
        """Upload what was collected. A bucket that refuses does not make the profile a failed one."""
        self._stage = "upload"
        self._around.progress("upload: started")
        self._finish()
        try:
            self._send(destination)
        except ProfilerError as error:
            self._record.upload_error = str(error)
            self._finish()
            raise StageFailedError(self._stage, str(error), run_dir=self._run_dir) from error

    def _send(self, destination: S3Destination) -> None:
        around = self._around
        upload_run(
            self._run_dir, destination, self._record.run_name, around.environ, progress=around.progress
        )

    def _finish(self) -> dict[str, object]:
        document = run_json(self._record)
        self._run_dir.mkdir(parents=True, exist_ok=True)
        _write_json(self._run_dir / "run.json", document)
        return document

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        self._stage = stage
        self._around.progress(f"{stage}: started")
        start_s = monotonic()
        try:
            yield
        finally:
            self._record.stage_wall_s[stage] = monotonic() - start_s
        self._around.progress(f"{stage}: {self._record.stage_wall_s[stage]:.1f} s")

    @contextmanager
    def _clocks(self) -> Iterator[None]:
        """Sample clocks beside the block; a machine without nvidia-smi gets none, and null in run.json."""
        with ExitStack() as stack:
            with suppress(CommandFailedError):
                stack.enter_context(
                    running(clocks_command(self._around.tools, self._layout), self._around.environ)
                )
            yield

    def _run(self, command: Command) -> None:
        self._around.progress(command.render())
        run(command, self._around.environ, timeout_s=self._record.options.stage_timeout_s)

    def _write_metadata(self, record: RunRecord, *, real_timing: bool) -> None:
        """Write metadata.json where the traces are, or on top where there are none."""
        place = "traced/metadata.json" if self._layout.traced.is_dir() else "metadata.json"
        self._write(place, metadata_json(record, real_timing=real_timing))

    def _write(self, name: str, document: object) -> None:
        _write_json(self._layout.root / name, document)


def _text(path: Path, *, missing: str | None = None) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        if missing is not None:
            return missing
        raise CaptureError(f"{path.name} was not written; see the logs") from error


def _write_json(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
