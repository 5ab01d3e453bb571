"""What the registered Modal functions do inside the GPU container; also what the command line does at home.

Plain JSON comes in and goes out, because these calls cross a network.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cascade_profiler.commands import Tools
from cascade_profiler.container import ACCELSIM_DIR, RUNS_DIR, SCRATCH_DIR
from cascade_profiler.objects import open_run
from cascade_profiler.options import (
    ProfileOptions,
    S3Destination,
    SpinlockHandling,
    check_capture,
    trace_steps_from,
)
from cascade_profiler.pipeline import Surroundings, profile
from cascade_profiler.stream import list_layers, stream
from cascade_profiler.workload import Workload


def surroundings() -> Surroundings:
    """Return the container's own: volume, local disk, environment and tools."""
    return Surroundings(
        runs_dir=Path(RUNS_DIR),
        scratch_dir=Path(SCRATCH_DIR),
        environ=dict(os.environ),
        tools=Tools.in_accelsim(Path(ACCELSIM_DIR)),
        jobs=os.cpu_count() or 1,
        progress=print,
    )


def run_profile(
    workload: Mapping[str, object],
    *,
    trace_steps: object = "plan",
    trace_repeat: int | None = None,
    spinlock_handling: SpinlockHandling = "mark_region",
    keep_nsys_rep: bool = False,
    postprocess: bool = True,
    run_name: str | None = None,
    s3: Mapping[str, object] | None = None,
    around: Surroundings | None = None,
) -> dict[str, object]:
    """Profile a workload; return the content of `run.json`.

    Raises OptionsError for options that cannot work, StageFailedError with the run directory otherwise.
    """
    options = ProfileOptions(
        trace_steps=trace_steps_from(trace_steps),
        trace_repeat=trace_repeat,
        spinlock_handling=spinlock_handling,
        keep_nsys_rep=keep_nsys_rep,
        postprocess=postprocess,
        run_name=run_name,
        s3=None if s3 is None else S3Destination.from_mapping(s3),
    )
    return profile(Workload.from_dict(workload), options, around or surroundings())


def run_list_layers(workload: Mapping[str, object], *, around: Surroundings | None = None) -> list[str]:
    """Return the paths of the model's modules."""
    return list(list_layers(Workload.from_dict(workload), around or surroundings()))


def run_stream(
    workload: Mapping[str, object],
    layers: list[str],
    *,
    s3: Mapping[str, object],
    spinlock_handling: SpinlockHandling = "mark_region",
    run_name: str | None = None,
    around: Surroundings | None = None,
) -> dict[str, object]:
    """Trace layers and stream them into the bucket; return the run's name, its kernels and bytes."""
    around = around or surroundings()
    destination = S3Destination.from_mapping(s3)
    options = ProfileOptions(
        trace_steps=(), spinlock_handling=spinlock_handling, run_name=run_name, s3=destination
    )
    parsed = Workload.from_dict(workload)
    check_capture(parsed, options)
    environ = around.environ
    result = stream(
        parsed, layers, options, around, lambda run_name: open_run(destination, run_name, environ)
    )
    return {"run_name": result.run_name, "kernels": result.kernels, "sent_bytes": result.sent_bytes}
