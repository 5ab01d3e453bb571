"""Estimate of kernel cycles from SASS traces and a GPU config, with its error stated.

Pure core, readers at the edge: `read_trace` and `GpuSpec.from_config` parse, `estimate_kernel` and
`estimate_trace` answer, `accelsim_log` writes the answer in the simulator's form, `bench_estimate` measures
how wrong it is.
"""

from cascade_estimate.bench import bench_estimate
from cascade_estimate.config import GpuSpec
from cascade_estimate.errors import ConfigError, EstimateError, TraceFormatError
from cascade_estimate.estimate import MODEL_VERSION, KernelEstimate, estimate_kernel, l2_after
from cascade_estimate.header import TraceHeader
from cascade_estimate.l2state import WarmL2
from cascade_estimate.log import ENGINE, accelsim_log
from cascade_estimate.sharpen import KernelFigure, RunFigures, cache_key, sharpened
from cascade_estimate.spec_files import load_spec
from cascade_estimate.trace import KernelTrace, read_trace
from cascade_estimate.tracedir import Progress, estimate_trace, iter_estimates

__all__ = [
    "ENGINE",
    "MODEL_VERSION",
    "ConfigError",
    "EstimateError",
    "GpuSpec",
    "KernelEstimate",
    "KernelFigure",
    "KernelTrace",
    "Progress",
    "RunFigures",
    "TraceFormatError",
    "TraceHeader",
    "WarmL2",
    "accelsim_log",
    "bench_estimate",
    "cache_key",
    "estimate_kernel",
    "estimate_trace",
    "iter_estimates",
    "l2_after",
    "load_spec",
    "read_trace",
    "sharpened",
]
