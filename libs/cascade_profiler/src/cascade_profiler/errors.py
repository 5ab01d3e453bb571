"""What can go wrong while profiling, one small class for each answer to "what do I do now?".

All derive from `ProfilerError`, so that a caller can catch the package's errors and nothing else. The package
depends on no other Cascade library for them, because it is installed into a user's own application.
"""

from __future__ import annotations

from pathlib import Path


class ProfilerError(Exception):
    """Root of every error that this package raises on purpose."""


class OptionsError(ProfilerError, ValueError):
    """The workload or the options cannot be used as given. Nothing was started; correct them."""


class CaptureError(ProfilerError):
    """A profiler's output cannot be read, or holds nothing to work with."""


class ReconcileError(ProfilerError):
    """The three runs do not describe the same work, so that they cannot be put side by side."""


class CommandFailedError(ProfilerError):
    """A tool ended with an error, was not found, or ran past its limit. `log` has its output."""

    def __init__(self, message: str, *, log: Path) -> None:
        super().__init__(message)
        self.log = log


class UploadError(ProfilerError):
    """The bucket refused, or could not be reached. What was collected is still on disk."""


class StageFailedError(ProfilerError):
    """One stage of a run failed; `run_dir` holds what was collected, `run.json` in it says why."""

    def __init__(self, stage: str, detail: str, *, run_dir: Path) -> None:
        super().__init__(f"stage {stage!r} failed: {detail} (diagnostics: {run_dir})")
        self.stage = stage
        self.run_dir = run_dir
