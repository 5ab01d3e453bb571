"""The requests that are decoding, as one group that advances uniformly.

Each member caches one token a step, so its cached tokens are a fixed offset from the step counter. Totals are kept
for the group and members are touched only when they join or leave. The step counter is passed in and never goes back.
"""

from collections.abc import Sequence
from heapq import heappop, heappush


class DecodeGroup:
    """Members, their total context, when each is done, and which step needs how many new KV blocks."""

    __slots__ = (
        "_block_size",
        "_count",
        "_done_at",
        "_done_heap",
        "_largest_heap",
        "_offset",
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
        self._largest_heap: list[int] = []
        """-offset * requests + request, dropped in the same way."""
        self.size = 0
        self.tokens = 0
        """Cached tokens of all members."""
        self.phase = [0] * block_size
        """Members that need a new block in a step, by the step modulo the block size."""

    def join(self, request: int, *, cached: int, step: int, remaining: int) -> None:
        """Add a request with `cached` tokens cached before `step` that still emits `remaining` tokens, at least 1."""
        offset = cached - step
        self._offset[request] = offset
        self._done_at[request] = step + remaining
        heappush(self._done_heap, (step + remaining) * self._count + request)
        heappush(self._largest_heap, request - offset * self._count)
        self.size += 1
        self.tokens += cached
        self.phase[-offset % self._block_size] += 1

    def leave(self, request: int, step: int) -> int:
        """Remove a member before `step`. Returns its cached tokens."""
        offset = self._offset[request]
        cached = offset + step
        self._done_at[request] = 0
        self.size -= 1
        self.tokens -= cached
        self.phase[-offset % self._block_size] -= 1
        return cached

    def cached(self, request: int, step: int) -> int:
        """Tokens that a member has cached before `step`."""
        return self._offset[request] + step

    def next_done(self) -> tuple[int, int]:
        """(step counter, request) of the member that is done first, lowest request on ties. Needs a member."""
        heap = self._done_heap
        while True:
            done_at, request = divmod(heap[0], self._count)
            if self._done_at[request] == done_at:
                return done_at, request
            heappop(heap)

    def largest_cached(self, step: int) -> int:
        """The most tokens that any member has cached before `step`. Needs a member."""
        heap = self._largest_heap
        while True:
            negated, request = divmod(heap[0], self._count)
            if self._done_at[request] and self._offset[request] == -negated:
                return step - negated
            heappop(heap)

    def new_blocks(self, step: int, steps: int) -> Sequence[int]:
        """Blocks that members need in each of the next `steps` steps, the first of them `step`."""
        phase = self.phase
        first = step % self._block_size
        if first + steps <= self._block_size:
            return phase[first : first + steps]
        cycle = phase[first:] + phase[:first]
        return (cycle * (steps // self._block_size + 1))[:steps]
