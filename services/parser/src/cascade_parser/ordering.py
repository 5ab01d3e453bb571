"""A sim's chunks in `seq` order, whatever order they arrive in. Pure, and small: it holds numbers, never lines.

A chunk that comes early is remembered by its place in the stream and fetched again when its turn has come, so a
client that never sends `seq` 0 costs two integers a chunk.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class ChunkOrder:
    """Which chunk is next, and which came early. The first chunk of a `seq` wins."""

    next_seq: int = 0
    _early: dict[int, int] = field(default_factory=dict)

    def arrived(self, seq: int, position: int) -> bool:
        """Note a chunk. True if it is the next one: its lines can be read at once. Repeats change nothing."""
        if seq == self.next_seq:
            self.next_seq += 1
            self._early.pop(seq, None)
            return True
        if seq > self.next_seq:
            self._early.setdefault(seq, position)
        return False

    def take_next_early(self) -> int | None:
        """The position of the next chunk, if it came early; it counts as read from here on."""
        position = self._early.pop(self.next_seq, None)
        if position is not None:
            self.next_seq += 1
        return position

    def take_rest(self) -> list[int]:
        """Positions of all chunks beyond a gap, in `seq` order: the sim has ended and the gap will not fill."""
        rest = sorted(self._early.items())
        self._early.clear()
        if rest:
            self.next_seq = rest[-1][0] + 1
        return [position for _, position in rest]
