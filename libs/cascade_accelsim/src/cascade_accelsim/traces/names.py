"""File names inside a trace's `traces/` folder: what they are and which belong together."""

import re
from collections.abc import Iterable
from typing import Final

PROCESSED_LIST: Final = "kernelslist.g"
_KERNEL: Final = re.compile(r"kernel-(\d{1,18})(?:[-_.].*)?$", re.DOTALL)
_RAW: Final = re.compile(r"kernel-.+\.trace(?:\.xz)?")
_LIST: Final = re.compile(r"kernelslist_ctx_(.+)(?<!\.g)")
_STATS: Final = re.compile(r"stats_ctx_(.+)")


def is_raw_kernel(name: str) -> bool:
    """Whether this is a tracer's file of one kernel: `kernel-*.trace` or `kernel-*.trace.xz`."""
    return _RAW.fullmatch(name) is not None


def kernel_id_of(name: str) -> int | None:
    """7 for `kernel-7.traceg` and `kernel-7-ctx_0x55d0.trace.xz`."""
    found = _KERNEL.match(name)
    return int(found[1]) if found else None


def context_of_list(name: str) -> str | None:
    """`0x55d0` for the raw list `kernelslist_ctx_0x55d0`; None for processed lists and other files."""
    found = _LIST.fullmatch(name)
    return found[1] if found else None


def context_of_stats(name: str) -> str | None:
    """`0x55d0` for `stats_ctx_0x55d0`."""
    found = _STATS.fullmatch(name)
    return found[1] if found else None


def is_stats(name: str) -> bool:
    """Whether the tracer's statistics are in this file: `stats_ctx_*`, or `stats.csv` of older tracers."""
    return name == "stats.csv" or context_of_stats(name) is not None


def lists_without_stats(names: Iterable[str]) -> list[str] | None:
    """Contexts whose raw list has no statistics file yet, sorted; None when there is no raw list at all.

    None is not the empty list: "every list has its statistics" would be true of a folder that holds nothing.
    """
    given = list(names)
    contexts = {context for name in given if (context := context_of_list(name)) is not None}
    if not contexts:
        return None
    return sorted(contexts - {context_of_stats(name) for name in given})
