"""What happens between the first and the final heartbeat: fetch, check, simulate, forward, judge, upload,
time.

The same path for all engines; they differ only in who appends to accelsim.log.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from cascade_worker import estimator
from cascade_worker.chunking import Chunker, LogChunk
from cascade_worker.download import fetch_trace
from cascade_worker.errors import CannotStartError
from cascade_worker.gateway import Gateway, Outcome
from cascade_worker.judgement import LogReading, count_kernels, read_core_clock_mhz
from cascade_worker.logstream import forward_log
from cascade_worker.replay import check_recording, copy_recorded_outputs, replay_log
from cascade_worker.rundir import LOG_NAME, STDERR_NAME, clear_neighbours, hold, make_run_dir
from cascade_worker.settings import WorkerOptions, WorkerSettings
from cascade_worker.simulator import AccelSimFiles, command_line, run_simulator
from cascade_worker.steps import send_step_timing
from cascade_worker.upload import upload_outputs

_STDERR_TAIL_BYTES = 8 * 1024
_DAY_S = 86_400


async def do_work(gateway: Gateway, settings: WorkerSettings, options: WorkerOptions) -> Outcome:
    """Run one sim and return how it ended. The log and the output files have been delivered by then.

    Raises CannotStartError, SourceFailedError, OSError and GatewayError; the session turns them into an
    outcome.
    """
    await fetch_trace(settings)
    simulate, config_dirs = _source(settings, options)
    run_dir = settings.run_dir
    before = await asyncio.to_thread(make_run_dir, run_dir, config_dirs=config_dirs)
    hold(run_dir)
    oldest = time.time() - settings.keep_sim_files_days * _DAY_S
    await asyncio.to_thread(clear_neighbours, run_dir, before=oldest)
    log_path = run_dir / LOG_NAME
    log_path.touch()

    reading = LogReading()

    async def handle(chunk: LogChunk) -> None:
        reading.read(chunk.lines)
        await gateway.send_chunk(chunk)

    exit_code = await _simulate_and_forward(simulate, log_path=log_path, handle=handle)
    reading.close()
    problem = reading.problem(
        exit_code=exit_code,
        # A replayed log was made from another trace, so this trace's list says nothing about it.
        expected_kernels=None if options.engine == "replay" else count_kernels(settings.kernels_list),
        stderr_tail=_tail(run_dir / STDERR_NAME),
    )
    await upload_outputs(gateway, run_dir=run_dir, before=before)
    if problem is not None:
        return Outcome(state="failed", exit_code=exit_code, error=problem)
    await send_step_timing(
        gateway,
        trace_dir=settings.trace_dir,
        kernels=reading.finished_kernels(),
        core_clock_mhz=_core_clock_mhz(settings, reading),
    )
    return Outcome(state="succeeded", exit_code=exit_code)


Simulate = Callable[[], Awaitable[int]]
"""Appends to accelsim.log until it is complete; returns the exit code."""


def _source(settings: WorkerSettings, options: WorkerOptions) -> tuple[Simulate, tuple[Path, ...]]:
    """What makes the log, and the directories whose files its run directory starts with.

    Raises CannotStartError that names every missing path.
    """
    _require(settings.kernels_list)
    run_dir = settings.run_dir
    if options.replay is not None:
        log, outputs = options.replay.absolute(), options.replay_outputs
        check_recording(log, outputs)

        async def replay() -> int:
            exit_code = await replay_log(log, run_dir=run_dir, delay_s=options.delay_s)
            if outputs is not None:
                await copy_recorded_outputs(outputs, run_dir=run_dir)
            return exit_code

        return replay, ()

    files = _accelsim_files(settings)
    if options.engine == "estimate":
        _require(files.gpgpusim_config)
        # Some configs keep everything in one file; the estimate names what it misses.
        configs = [path.name for path in (files.gpgpusim_config, files.trace_config) if path.is_file()]
        command = estimator.command_line(settings.kernels_list, configs)
    else:
        _require(files.binary, files.gpgpusim_config, files.trace_config)
        command = command_line(files.binary, settings.kernels_list)

    async def simulate() -> int:
        return await run_simulator(
            command,
            run_dir=run_dir,
            environ=os.environ,
            grace_s=settings.stop_grace_s,
        )

    return simulate, tuple(directory for directory in files.config_dirs if directory.is_dir())


async def _simulate_and_forward(
    simulate: Simulate, *, log_path: Path, handle: Callable[[LogChunk], Awaitable[None]]
) -> int:
    """Let the log grow and forward it at the same time; the end of either by an error ends both."""
    finished = asyncio.Event()

    async def make_log() -> int:
        try:
            return await simulate()
        finally:
            finished.set()

    # No TaskGroup: that forgets a stop which comes while one of the two has failed and the other is being ended, and a
    # simulator's end takes seconds.
    making = asyncio.create_task(make_log())
    forwarding = asyncio.create_task(
        forward_log(log_path, finished=finished, handle=handle, chunker=Chunker())
    )
    stopped: asyncio.CancelledError | None = None
    try:
        await asyncio.wait((making, forwarding), return_when=asyncio.FIRST_EXCEPTION)
    except asyncio.CancelledError as error:
        stopped = error
    making.cancel()
    forwarding.cancel()
    while not (making.done() and forwarding.done()):
        try:
            await asyncio.wait((making, forwarding))
        except asyncio.CancelledError as error:
            stopped = error
    failures = [
        failure
        for task in (making, forwarding)
        if not task.cancelled() and (failure := task.exception()) is not None
    ]
    if stopped is not None:
        raise stopped
    if failures:
        raise failures[0]
    return making.result()


def _accelsim_files(settings: WorkerSettings) -> AccelSimFiles:
    if settings.accelsim_dir is None:
        raise CannotStartError(
            "CASCADE_ACCELSIM_DIR is not set: the worker cannot find Accel-Sim and its configs"
        )
    return AccelSimFiles.below(settings.accelsim_dir, settings.gpu_config)


def _require(*paths: Path) -> None:
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise CannotStartError(f"missing {', '.join(missing)}")


def _core_clock_mhz(settings: WorkerSettings, reading: LogReading) -> float | None:
    """The config's core clock, which the app's times use too; the log's own where there is no config."""
    if settings.accelsim_dir is not None:
        config = AccelSimFiles.below(settings.accelsim_dir, settings.gpu_config).gpgpusim_config
        if config.is_file():
            return read_core_clock_mhz(config)
    return reading.core_clock_mhz()


def _tail(path: Path) -> str:
    """The end of what the simulator wrote to stderr; empty if it wrote nothing."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _STDERR_TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
