"""Moving a run from local scratch into its run directory, once, at the end.

Tracing writes many small pieces, which a network volume takes badly; so everything happens on local disk, and one
copy goes to the volume. A failed run leaves its logs and marks there, without the instruction traces.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from cascade_profiler.secrets import redact

TEXT_SUFFIXES = frozenset({".json", ".jsonl", ".log", ".csv", ".txt"})
MAX_TEXT_BYTES = 64 * 1024 * 1024
"""[bytes] Text files above this are not searched for secrets; none of ours comes near."""


def collect(
    scratch: Path, run_dir: Path, *, secrets: Sequence[str], include: Callable[[Path], bool]
) -> list[Path]:
    """Copy the files below `scratch` that `include` takes (by relative path) to `run_dir`; return them, sorted.

    Text files lose every value in `secrets` on the way. Raises OSError, for a full disk for example; what was
    copied stays.
    """
    copied: list[Path] = []
    for source in sorted(path for path in scratch.rglob("*") if path.is_file() and not path.is_symlink()):
        relative = source.relative_to(scratch)
        if not include(relative):
            continue
        target = run_dir / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        if secrets and _is_text(source):
            text = source.read_text(encoding="utf-8", errors="surrogateescape")
            target.write_text(redact(text, secrets), encoding="utf-8", errors="surrogateescape")
        else:
            shutil.copyfile(source, target)
        copied.append(relative)
    return copied


def everything_but_captures(relative: Path) -> bool:
    """Take every file except Nsight's report and export, which hold the process environment."""
    return not (relative.suffix in {".nsys-rep", ".sqlite", ".qdrep", ".qdstrm"} or _is_journal(relative))


def everything(_relative: Path) -> bool:
    """Take every file: a run that keeps its capture on purpose."""
    return True


def diagnostics_only(relative: Path) -> bool:
    """Take what explains a failure: everything but captures and the instruction traces themselves."""
    return everything_but_captures(relative) and not (
        relative.parent.name == "traces" and relative.name.startswith("kernel-")
    )


def _is_journal(relative: Path) -> bool:
    return relative.name.endswith((".sqlite-journal", ".sqlite-wal", ".sqlite-shm"))


def _is_text(path: Path) -> bool:
    textual = path.suffix in TEXT_SUFFIXES or "." not in path.name
    return textual and path.stat().st_size <= MAX_TEXT_BYTES
