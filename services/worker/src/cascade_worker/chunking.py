"""Bytes of simulator output in, numbered chunks of lines out. Pure: the clock is an argument.

Lines end at LF and nowhere else: U+2028, U+0085, form feed and a bare CR are part of the line they stand in.
Bytes that are not UTF-8 become U+FFFD, so that no simulator output can stop the stream. Joining every chunk's
lines with LF gives the decoded output again, except for a newline at its very end.
"""

from collections.abc import Iterator
from dataclasses import dataclass

LINES_PER_CHUNK = 200
"""Lines that complete a chunk at once. [lines]"""

CHUNK_AGE_S = 0.5
"""A complete line waits no longer than this for company. [s]"""

CHUNK_BYTES = 4 * 1024 * 1024
"""A chunk is sent early once it holds this much, so that very long lines do not pile up to one huge body. A
single longer line still travels whole. [bytes]"""


@dataclass(frozen=True, slots=True)
class LogChunk:
    """One `POST /logs` body: `seq` counts a sim's chunks from 0; the lines have no trailing newline."""

    seq: int
    lines: tuple[str, ...]


class Chunker:
    """Collects output until a chunk is full or old enough. One instance per sim; holds at most one chunk and
    one unfinished line."""

    def __init__(
        self,
        *,
        max_lines: int = LINES_PER_CHUNK,
        max_age_s: float = CHUNK_AGE_S,
        max_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._max_lines = max_lines
        self._max_age_s = max_age_s
        self._max_bytes = max_bytes
        self._seq = 0
        self._lines: list[str] = []
        self._size_bytes = 0
        self._oldest_at = 0.0
        self._tail: list[bytes] = []  # pieces of the line that has not ended yet

    def feed(self, output: bytes, *, now: float) -> Iterator[LogChunk]:
        """Take the next bytes; yield each chunk that they fill.

        now: a monotonic clock. [s] The iterator must be consumed before the next call.
        """
        pieces = output.split(b"\n")
        for piece in pieces[:-1]:
            self._tail.append(piece)
            line = b"".join(self._tail)
            self._tail.clear()
            if not self._lines:
                self._oldest_at = now
            self._lines.append(line.decode("utf-8", errors="replace"))
            self._size_bytes += len(line) + 1
            if len(self._lines) >= self._max_lines or self._size_bytes >= self._max_bytes:
                yield self._cut()
        if pieces[-1]:
            self._tail.append(pieces[-1])

    def flush_if_due(self, *, now: float) -> LogChunk | None:
        """The collected lines, once the oldest of them has waited long enough; an unfinished line stays."""
        if self._lines and now - self._oldest_at >= self._max_age_s:
            return self._cut()
        return None

    def close(self) -> LogChunk | None:
        """Whatever is left at the end of the output, a last line without its newline included."""
        if self._tail:
            self._lines.append(b"".join(self._tail).decode("utf-8", errors="replace"))
            self._tail.clear()
        return self._cut() if self._lines else None

    def _cut(self) -> LogChunk:
        chunk = LogChunk(self._seq, tuple(self._lines))
        self._seq += 1
        self._lines = []
        self._size_bytes = 0
        return chunk
