"""A trace's directory as one scan saw it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cascade_accelsim.traces.names import is_raw_kernel
from cascade_core.ports import ObjectInfo

METADATA = "metadata.json"
PROCESSED_LIST = "traces/kernelslist.g"
TRACES = "traces/"
CORRECTED_TIMELINE = "corrected_timeline.json"
KERNEL_MAPPING = "kernel_mapping.json"
REAL_TIMING = "real_timing.json"


@dataclass(frozen=True, slots=True)
class File:
    """One visible file. Contents are the same where size and ETag are."""

    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Tree:
    """The visible files by their path below the trace's directory."""

    files: Mapping[str, File]

    @property
    def size_bytes(self) -> int:
        """Every visible file."""
        return sum(file.size for file in self.files.values())

    @property
    def raw_kernel_count(self) -> int:
        """The tracer's kernel files that have arrived."""
        return sum(1 for name in self.trace_names() if is_raw_kernel(name))

    @property
    def has_processed_list(self) -> bool:
        """Whether Accel-Sim could read the trace as it is."""
        return PROCESSED_LIST in self.files

    @property
    def has_step_timeline(self) -> bool:
        """Whether both files of step timing are there."""
        return CORRECTED_TIMELINE in self.files and KERNEL_MAPPING in self.files

    def trace_names(self) -> list[str]:
        """Names of the files directly in `traces/`."""
        return [
            path.removeprefix(TRACES)
            for path in self.files
            if path.startswith(TRACES) and "/" not in path.removeprefix(TRACES)
        ]

    def etag(self, path: str) -> str | None:
        """What tells one content of a file from another; None where there is no such file."""
        file = self.files.get(path)
        return file.etag if file else None


def is_visible(path: str) -> bool:
    """Whether a path counts: no directory marker, and no dotfile anywhere in it, which covers uploads in flight."""
    return bool(path) and not path.endswith("/") and not any(part.startswith(".") for part in path.split("/"))


def tree_of(root: str, objects: Iterable[ObjectInfo]) -> Tree:
    """The tree below `root`, which ends in `/`."""
    files = {}
    for entry in objects:
        path = entry.key.removeprefix(root)
        if is_visible(path):
            files[path] = File(entry.size, entry.etag)
    return Tree(files)
