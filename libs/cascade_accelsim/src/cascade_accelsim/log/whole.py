"""A whole log at once, for callers that have it all."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cascade_accelsim.log.blocks import KernelBlock, Progress
from cascade_accelsim.log.parser import LogParser


@dataclass(frozen=True, slots=True)
class ParsedLog:
    """A whole log. The block that a limit cut off, if any, has `partial` set."""

    blocks: tuple[KernelBlock, ...]
    progress: Progress


def parse_log(lines: Iterable[str], *, with_stats: bool = True) -> ParsedLog:
    """Read a whole log, line by line or piece by piece (each item whole lines)."""
    parser = LogParser(with_stats=with_stats)
    blocks: list[KernelBlock] = []
    for line in lines:
        blocks += parser.feed_text(line or "\n")
    blocks += parser.finish()
    cut = parser.progress.partial_kernel
    return ParsedLog(
        tuple(replace(block, partial=True) if block.index == cut else block for block in blocks),
        parser.progress,
    )
