"""Whether an upload is complete. Pure: it looks at what scans saw, never at a clock. spec: traces"""

from collections.abc import Mapping
from dataclasses import dataclass

from cascade_accelsim.traces.names import lists_without_stats
from pydantic import JsonValue

from cascade_ingest.tree import TRACES, Tree


@dataclass(frozen=True, slots=True)
class Complete:
    """Everything that belongs to the upload is there."""


@dataclass(frozen=True, slots=True)
class Incomplete:
    """What the upload waits for, in words for the operator."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReportedFailed:
    """The profiler itself says that tracing failed."""

    error: str


Verdict = Complete | Incomplete | ReportedFailed


def assess(tree: Tree, metadata: Mapping[str, JsonValue] | None, *, root: str, quiet: bool) -> Verdict:
    """Judge one scan.

    root: the trace's key prefix, ending in `/`; a `files` list may name keys with or without it.
    quiet: whether the scan before saw the same files.
    """
    if metadata is None:
        return Incomplete("metadata.json is not there yet, or not whole")
    if metadata.get("status") == "failed":
        return ReportedFailed("profiler reported status 'failed' in metadata.json")
    listed = metadata.get("files")
    if isinstance(listed, list) and listed:  # an empty list tells nothing about the upload
        return _by_files_list(tree, listed, root)
    return _by_quiet_tree(tree, quiet=quiet)


def _by_files_list(tree: Tree, listed: list[JsonValue], root: str) -> Verdict:
    for entry in listed:
        if not isinstance(entry, dict):
            return Incomplete("metadata.json has a `files` list with an entry that is no object")
        key, size = entry.get("key"), entry.get("bytes")
        if not isinstance(key, str) or not isinstance(size, int) or isinstance(size, bool):
            return Incomplete("metadata.json has a `files` entry without a key and a size in bytes")
        path = key.removeprefix(root)
        found = tree.files.get(path)
        if found is None:
            return Incomplete(f"{path} is listed but has not arrived")
        if found.size != size:
            return Incomplete(
                f"{path} is listed with {size} bytes and has {found.size}"
                + (
                    "; an upload may have left its checksum framing in the object"
                    if found.size > size
                    else ""
                )
            )
    return Complete()


def _by_quiet_tree(tree: Tree, *, quiet: bool) -> Verdict:
    names = tree.trace_names()
    missing = lists_without_stats(names)
    older_tracer = "kernelslist" in names and "stats.csv" in names
    if missing is None and not older_tracer and not tree.has_processed_list:
        return Incomplete("no traces/kernelslist_ctx_* has arrived yet")
    if missing:
        return Incomplete(f"{TRACES}stats_ctx_{missing[0]} has not arrived yet")
    if not quiet:
        return Incomplete("files changed since the scan before")
    return Complete()
