"""Pure step-timing model: replay a measured timeline with simulated kernel durations, and compare.

`simulate` and `compare` do what the commands `cascade simulate` and `cascade compare` do, on parsed JSON.
`durations_from_kernels` imports a simulator log's cycles through a kernel mapping, and `time_steps` does all of
it in one call. Everything that can go wrong is a `TimingError`. Files are read and written by
`cascade_timing.io`, and nothing else here touches the disk, the clock or the network.
"""

from cascade_timing.compare import compare
from cascade_timing.errors import (
    FileError,
    ImpossibleReplayError,
    InvalidInputError,
    TimingError,
    UnknownKernelError,
)
from cascade_timing.matching import (
    KernelDuration,
    MappedKernel,
    durations_from_kernels,
    parse_durations,
    parse_mapping,
)
from cascade_timing.pipeline import StepTiming, time_steps
from cascade_timing.replay import simulate
from cascade_timing.timeline import KernelKey, Timeline, parse_timeline

__all__ = [
    "FileError",
    "ImpossibleReplayError",
    "InvalidInputError",
    "KernelDuration",
    "KernelKey",
    "MappedKernel",
    "StepTiming",
    "Timeline",
    "TimingError",
    "UnknownKernelError",
    "compare",
    "durations_from_kernels",
    "parse_durations",
    "parse_mapping",
    "parse_timeline",
    "simulate",
    "time_steps",
]
