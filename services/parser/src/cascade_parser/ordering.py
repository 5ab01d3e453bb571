"""A sim's chunks in `seq` order, whatever order they arrive in, and where they lie. Pure, and small: it holds numbers,
never lines.

A chunk that comes early is remembered by its place in the stream and fetched again when its turn has come, so a
client that never sends `seq` 0 costs two integers a chunk.
"""

from array import array
from dataclasses import dataclass, field


class ChunkPlaces:
    """Where the chunks of one log lie in the stream. The first chunk of a `seq` wins.

    Eight bytes a chunk as long as none is missing: a thousand sims send seven million in an hour.
    """

    __slots__ = ("_behind_a_gap", "_whole", "first")

    def __init__(self) -> None:
        self._whole = array("Q")
        """Positions of all chunks up to the first that is missing, by `seq`."""
        self._behind_a_gap: dict[int, int] = {}
        self.first = 0
        """The smallest position; 0 without chunks."""

    def __len__(self) -> int:
        return len(self._whole) + len(self._behind_a_gap)

    def add(self, seq: int, position: int) -> bool:
        """Note a chunk. False, and nothing is changed, where its `seq` is known."""
        if self.position(seq) is not None:
            return False
        self.first = min(self.first or position, position)
        self._behind_a_gap[seq] = position
        while (following := self._behind_a_gap.pop(len(self._whole), None)) is not None:
            self._whole.append(following)
        return True

    def position(self, seq: int) -> int | None:
        """Where the chunk lies; None for one that has not come."""
        return self._whole[seq] if seq < len(self._whole) else self._behind_a_gap.get(seq)


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
