"""The last lines of a log whose chunks may arrive late, twice or out of order. Pure; order of arrival is irrelevant."""

from dataclasses import dataclass

LOG_TAIL_LINES = 20  # spec: limits, `log_tail` holds the last 20 lines
MOST_LINE_CHARS = 4000
"""What the tail keeps of a line. Every event and every row of a sim carries the tail; a line may be megabytes long."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """The newest pieces of a log by `seq`, just enough of them to give the last lines.

    `pieces` is ascending in `seq`; each piece keeps at most `LOG_TAIL_LINES` lines of its chunk's end.
    """

    pieces: tuple[tuple[int, tuple[str, ...]], ...] = ()

    def add(self, seq: int, lines: list[str]) -> "LogTail":
        """The tail after chunk `seq`. A `seq` that is already held, or older than what is needed, changes nothing."""
        pieces = self.pieces
        if pieces and seq <= pieces[-1][0]:
            if any(held == seq for held, _ in pieces) or (self._is_full() and seq < pieces[0][0]):
                return self
            merged = sorted([*pieces, (seq, _end_of(lines))])
        else:
            merged = [*pieces, (seq, _end_of(lines))]
        return LogTail(_trimmed(merged))

    def lines(self) -> list[str]:
        """The last `LOG_TAIL_LINES` lines, in `seq` order."""
        return [line for _, piece in self.pieces for line in piece][-LOG_TAIL_LINES:]

    def _is_full(self) -> bool:
        return sum(len(piece) for _, piece in self.pieces) >= LOG_TAIL_LINES


def _end_of(lines: list[str]) -> tuple[str, ...]:
    return tuple(
        line if len(line) <= MOST_LINE_CHARS else f"{line[:MOST_LINE_CHARS]}… ({len(line)} characters)"
        for line in lines[-LOG_TAIL_LINES:]
    )


def _trimmed(pieces: list[tuple[int, tuple[str, ...]]]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    held = sum(len(piece) for _, piece in pieces)
    first = 0
    # The oldest kept piece stays, so that a repeat of it is still recognised as held.
    while first < len(pieces) - 1 and held - len(pieces[first][1]) >= LOG_TAIL_LINES:
        held -= len(pieces[first][1])
        first += 1
    return tuple(pieces[first:])
