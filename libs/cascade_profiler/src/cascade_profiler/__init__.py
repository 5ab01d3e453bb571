"""Trace a workload on a real GPU and upload it to Cascade.

`Workload` says what to run, `register` adds the profiler to a Modal app; `cascade-profiler` does the same on a
machine with a GPU of its own. The package stands alone: it is installed into users' own applications.
"""

from cascade_profiler.errors import OptionsError, ProfilerError, StageFailedError
from cascade_profiler.modal_app import Profiler, register
from cascade_profiler.options import ProfileOptions, S3Destination
from cascade_profiler.workload import Workload

__all__ = [
    "OptionsError",
    "ProfileOptions",
    "Profiler",
    "ProfilerError",
    "S3Destination",
    "StageFailedError",
    "Workload",
    "register",
]
