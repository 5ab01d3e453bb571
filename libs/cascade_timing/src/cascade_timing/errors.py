"""What can go wrong with step timing.

Everything this package raises on bad input is a `TimingError`, so that a caller for whom step timing is
optional (the worker after a successful sim) needs one `except` clause. The message says what was met, what
was expected and, where it helps, what to do; it is meant to be shown to a person.
"""


class TimingError(Exception):
    """Step timing could not be computed. The simulation that it was to be computed from is not affected."""


class InvalidInputError(TimingError):
    """A document has a missing, wrongly typed, non-finite or impossible value."""


class UnknownKernelError(TimingError):
    """A row names a kernel that the timeline, or the simulator log, does not have."""


class ImpossibleReplayError(TimingError):
    """The durations do not fit the step: its replayed GPU or wall time would be negative."""


class FileError(TimingError):
    """A file cannot be read as strict JSON, or a result cannot be written."""
