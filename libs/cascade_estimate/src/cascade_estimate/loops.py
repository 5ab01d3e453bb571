"""Shortening long programs at their main loop, so that prologue, a few iterations and epilogue stand for the
whole.

Two shortened programs of different length give the time of one iteration, and with it the time of those left
out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

_LEAST_ITERATIONS = 6
_FINE_ITERATIONS = 64  # more iterations than this only split the same loop further


@dataclass(frozen=True, slots=True)
class Loop:
    """The main loop of a program: the text (program counter and blank) with which its first instruction's
    lines begin.

    Attributes:
        head: that text.
        iterations: how often it runs in the program in which it was found.
        body: instructions of one iteration, on average.
    """

    head: bytes
    iterations: int
    body: float


def main_loop(lines: tuple[bytes, ...], *, lineinfo: bool) -> Loop | None:
    """The loop that covers most of a warp's instructions, None if there is none worth shortening."""
    if lineinfo:
        heads = [line[: line.index(b" ", line.index(b" ") + 1) + 1] for line in lines]
    else:
        heads = [line[: line.index(b" ") + 1] for line in lines]
    best: Loop | None = None
    best_score = 0.0
    seen_counts: set[int] = set()
    last = {head: place for place, head in enumerate(heads)}
    first: dict[bytes, int] = {}
    for place, head in enumerate(heads):
        first.setdefault(head, place)
    for head, count in Counter(
        heads
    ).items():  # in order of first appearance: a loop's first instruction comes first
        if count < _LEAST_ITERATIONS or count in seen_counts:
            continue
        seen_counts.add(count)
        covered = last[head] - first[head]
        score = covered * (1.0 - 4.0 / count)
        if count > _FINE_ITERATIONS:
            score *= 0.9
        if score > best_score * 1.02:
            best, best_score = Loop(head, count, covered / (count - 1)), score
    return best if best_score > len(lines) * 0.3 else None


def shortened(lines: tuple[bytes, ...], loop: Loop, keep: int) -> tuple[tuple[bytes, ...], int]:
    """`lines` with at most `keep` iterations, and how many were left out. The last iteration always stays."""
    places = [place for place, line in enumerate(lines) if line.startswith(loop.head)]
    if len(places) <= keep:
        return lines, 0
    return lines[: places[keep - 1]] + lines[places[-1] :], len(places) - keep
