"""The requests that are decoding, as one group that advances uniformly.

Each member caches one token a step, so its cached tokens are a fixed offset from the step counter. Totals are kept
for the group and members are touched only when they join or leave. The step counter is passed in and never goes back.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from sys import maxsize

NEVER = maxsize
"""Step counter that no run reaches."""


class DecodeGroup:
    """Members, their total context, when each is done, and which step needs how many new KV blocks."""

    __slots__ = (
        "_block_size",
        "_count",
        "_done_at",
        "_done_heap",
        "_offset",
        "_offset_heap",
        "largest_offset",
        "next_done",
        "phase",
        "size",
        "tokens",
    )

    def __init__(self, requests: int, block_size: int) -> None:
        self._count = requests
        self._block_size = block_size
        self._offset = [0] * requests
        self._done_at = [0] * requests
        """Step counter at which the member has all its output; 0 for non-members."""
        self._done_heap: list[int] = []
        """done_at * requests + request. Entries of members that left go stale and are dropped when they surface."""
        self._offset_heap: list[int] = []
        """-offset * requests + request, dropped in the same way."""
        self.size = 0
        self.tokens = 0
        """Cached tokens of all members."""
        self.next_done = NEVER
        """Step counter at which the first member is done."""
        self.largest_offset = -NEVER
        """Most cached tokens of a member, less the step counter."""
        self.phase = [0] * block_size
        """Members that need a new block in a step, by the step modulo the block size."""

    def join(self, request: int, *, cached: int, step: int, remaining: int) -> None:
        """Add a request with `cached` tokens cached before `step` that still emits `remaining` tokens, at least 1."""
        offset = cached - step
        done_at = step + remaining
        self._offset[request] = offset
        self._done_at[request] = done_at
        heappush(self._done_heap, done_at * self._count + request)
        heappush(self._offset_heap, request - offset * self._count)
        self.next_done = min(self.next_done, done_at)
        self.largest_offset = max(self.largest_offset, offset)
        self.size += 1
        self.tokens += cached
        self.phase[-offset % self._block_size] += 1

    def leave(self, request: int, step: int) -> int:
        """Remove a member before `step`. Returns its cached tokens."""
        offset = self._offset[request]
        cached = offset + step
        if self._done_at[request] == self.next_done or offset == self.largest_offset:
            self._done_at[request] = 0
            self._surface()
        self._done_at[request] = 0
        self.size -= 1
        self.tokens -= cached
        self.phase[-offset % self._block_size] -= 1
        return cached

    def first_done(self) -> int:
        """The member that is done at `next_done`. Needs a member."""
        return self._done_heap[0] % self._count

    def _surface(self) -> None:
        """Drop stale entries from the top of both heaps."""
        done, offsets, count = self._done_heap, self._offset_heap, self._count
        while done and self._done_at[done[0] % count] != done[0] // count:
            heappop(done)
        self.next_done = done[0] // count if done else NEVER
        while offsets and not self._is_largest(*divmod(offsets[0], count)):
            heappop(offsets)
        self.largest_offset = -(offsets[0] // count) if offsets else -NEVER

    def _is_largest(self, negated_offset: int, request: int) -> bool:
        return self._done_at[request] > 0 and self._offset[request] == -negated_offset

    def new_blocks(self, step: int, steps: int) -> Sequence[int]:
        """Blocks that members need in each of the next `steps` steps, the first of them `step`."""
        phase = self.phase
        first = step % self._block_size
        if first + steps <= self._block_size:
            return phase[first : first + steps]
        cycle = phase[first:] + phase[:first]
        return (cycle * (steps // self._block_size + 1))[:steps]
