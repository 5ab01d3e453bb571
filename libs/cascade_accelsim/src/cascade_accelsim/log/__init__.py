"""The simulator's stdout, read as it grows: kernel blocks, running totals, and how it ended."""

from cascade_accelsim.log.blocks import KernelBlock, Progress, Stats, sim_time_ns
from cascade_accelsim.log.parser import LogParser
from cascade_accelsim.log.whole import ParsedLog, parse_log

__all__ = [
    "KernelBlock",
    "LogParser",
    "ParsedLog",
    "Progress",
    "Stats",
    "parse_log",
    "sim_time_ns",
]
