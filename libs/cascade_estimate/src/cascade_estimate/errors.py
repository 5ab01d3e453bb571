"""What can go wrong with a trace or a config, each error naming the place and the remedy."""

from __future__ import annotations


class EstimateError(Exception):
    """Base of everything that the estimate refuses; the message is meant for the user."""


class TraceFormatError(EstimateError):
    """A trace that is cut, damaged or not a kernel trace.

    Attributes:
        source: the file's name as the caller gave it.
        line: 1-based line in the uncompressed text, or 0 where the problem names a block instead.
        problem: the message without the place.
    """

    def __init__(self, source: str, line: int, problem: str) -> None:
        where = f"{source}, line {line}" if line else source
        super().__init__(f"{where}: {problem}")
        self.source = source
        self.line = line
        self.problem = problem


class ConfigError(EstimateError):
    """A gpgpusim.config or trace.config that lacks a key or holds a value of the wrong form."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
