"""What a named reader of the log shows of itself. Nothing is computed before somebody looks."""

from collections.abc import Sequence
from typing import Protocol

from cascade_core.facts import AnyFact
from cascade_core.metrics import FACTS_READ, READER_LAG, READER_POSITION, READER_RESTARTS
from cascade_core.record import Recorded


class Lagging(Protocol):
    """A source of messages that knows how many are still to come."""

    @property
    def lag(self) -> int:
        """Messages that match and were not handed on yet."""
        ...


_SOURCES: dict[str, set[Lagging]] = {}
"""What is open now, by reader. The event streams of one process are one reader with many sources."""


class ReaderMetrics:
    """The metrics of one reader; does nothing for a reader without a name."""

    def __init__(self, reader: str | None) -> None:
        self._named = reader is not None
        if reader is None:
            return
        self._sources = _SOURCES.setdefault(reader, set())
        self._read = FACTS_READ.labels(reader)
        self._position = READER_POSITION.labels(reader)
        self._restarts = READER_RESTARTS.labels(reader)
        sources = self._sources
        # The scrape comes from another thread.
        READER_LAG.labels(reader).set_function(lambda: sum(source.lag for source in tuple(sources)))

    def opened(self, source: Lagging) -> None:
        """The reader reads from `source` now."""
        if self._named:
            self._sources.add(source)

    def closed(self, source: Lagging) -> None:
        """The reader is done with `source`."""
        if self._named:
            self._sources.discard(source)

    def given(self, records: Sequence[Recorded[AnyFact]]) -> None:
        """The reader was handed `records`."""
        if self._named:
            self._read.inc(len(records))
            self._position.set(records[-1].position)

    def restarted(self) -> None:
        """The reader needed a new consumer."""
        if self._named:
            self._restarts.inc()
