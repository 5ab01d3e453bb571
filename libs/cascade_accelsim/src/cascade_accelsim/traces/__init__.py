"""A trace directory's own files: kernel lists, the tracer's statistics, file names, real timings."""

from cascade_accelsim.traces.kernels_list import KernelsList, Memcpy, parse_kernels_list
from cascade_accelsim.traces.launches import KernelLaunch, LaunchTable, merge_launches, parse_launches
from cascade_accelsim.traces.names import (
    PROCESSED_LIST,
    context_of_list,
    context_of_stats,
    is_raw_kernel,
    is_stats,
    kernel_id_of,
    lists_without_stats,
)
from cascade_accelsim.traces.real_timing import RealKernel, RealTiming, parse_real_timing

__all__ = [
    "PROCESSED_LIST",
    "KernelLaunch",
    "KernelsList",
    "LaunchTable",
    "Memcpy",
    "RealKernel",
    "RealTiming",
    "context_of_list",
    "context_of_stats",
    "is_raw_kernel",
    "is_stats",
    "kernel_id_of",
    "lists_without_stats",
    "merge_launches",
    "parse_kernels_list",
    "parse_launches",
    "parse_real_timing",
]
