"""The incremental log parser: a plain state machine from lines to kernel blocks.

A block starts at a line that begins with `kernel_name =` and ends at the next `gpgpu_simulation_time`,
`launching kernel name:`, `Processing kernel`, `Header info loaded`, exit or limit line, or at the next
`kernel_name` (spec: reading-results, how the parser reads a log). The result does not depend on how the log is
cut into chunks, and no text makes it raise.

It works on text and not line by line: one search finds the next line that matters, and a block is sliced out whole.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from cascade_accelsim.log.blocks import KernelBlock, Progress, Stats
from cascade_accelsim.log.flight import Flight, launch_line, uid_in
from cascade_accelsim.log.stats import block_stats, value_of
from cascade_accelsim.text import clean, without_escapes

MAX_BLOCK_CHARS: Final = 16 * 1024 * 1024
"""What is kept of one block: about 50 times the largest real one. The rest of a block without an end is dropped."""
MAX_LINE_CHARS: Final = 1000
"""What is kept of a line that is only shown: the break, fault and last lines."""
_HEAD_LINES: Final = 64
"""The typed fields and the totals stand in the first 25 lines of a block."""

_ENDS: Final = {
    "gpgpu_simulation_time": "time",
    "launching kernel name:": "launch",
    "Processing kernel": "next",
    "Header info loaded": "next",
    "GPGPU-Sim: *** exit detected": "exit",
    "GPGPU-Sim: ** break due to": "limit",
    "kernel_name": "block",
}
"""How the lines begin that end a block, and what each of them means."""
_EVENTS: Final = _ENDS | {
    "gpgpu_simulation_rate": "rate",
    "Destroy streams for kernel": "destroy",
    "GPGPU-Sim uArch: clock freqs:": "clock",
    "engine": "engine",
    "unsupported binary version": "fault",
    "Unable to open file": "fault",
    "ERROR": "fault",
    "GPGPU-Sim uArch: ERROR": "fault",
    "GPGPU-Sim ** ERROR": "fault",
}
"""The same for every line that matters outside a block."""


def _lines_that_begin_with(words: Iterable[str]) -> re.Pattern[str]:
    """Without groups and with the newline in front, since that is what lets the search run at 2 GB/s."""
    settings = {"kernel_name": "kernel_name[ \t]*=", "engine": "engine[ \t]*="}
    return re.compile("\n(?:" + "|".join(settings.get(word, re.escape(word)) for word in words) + ")")


_BLOCK_END: Final = _lines_that_begin_with(_ENDS)
_EVENT: Final = _lines_that_begin_with(_EVENTS)
_DIGITS: Final = re.compile(r"\d+(?:\.\d+)?")


def _without_redrawn(line: str) -> str:
    """One line whose carriage returns made a terminal draw it again: its beginning, then what marks a place in the log.

    Nothing else counts that stands behind a carriage return, or text in a line could pass for a statistic.
    """
    first, *redrawn = line.split("\r")
    marks = [part for part in redrawn if _EVENT.match("\n" + part) or _BLOCK_END.match("\n" + part)]
    return "\n".join([first, *marks]) + "\n"


class LogParser:
    """Reads one sim's log. Feed it whole lines in order; it hands back the blocks that these lines finished."""

    def __init__(self, *, with_stats: bool = True) -> None:
        """`with_stats=False` fills in no `stats`, for callers that judge a run and do not store it."""
        self._with_stats = with_stats
        self._progress = Progress()
        self._lines = 0
        self._last_line: str | None = None
        self._flight = Flight()
        self._after_block = False
        """Only the block's own closing lines came since the last block, so that a limit line means that block."""
        self._open: list[str] | None = None
        self._open_chars = 0

    @property
    def progress(self) -> Progress:
        return replace(self._progress, lines=self._lines, last_line=self._last_line)

    def feed(self, lines: Sequence[str]) -> list[KernelBlock]:
        """Read lines (without their newlines) and return the blocks that they finished."""
        return self.feed_text("\n".join(lines) + "\n") if lines else []

    def feed_text(self, text: str) -> list[KernelBlock]:
        """Read whole lines, each ended by a newline (the last one's may be missing). The fast way in."""
        if not text:
            return []
        if not text.endswith("\n"):
            text += "\n"
        text = without_escapes(text)
        done: list[KernelBlock] = []
        if "\r" not in text:
            self._read(text, text.count("\n"), done)
            return done
        for line in text.split("\n")[:-1]:
            self._read(_without_redrawn(line), 1, done)
        return done

    def finish(self) -> list[KernelBlock]:
        """The log has ended: close a block that is still open. It is not `complete`."""
        return [] if self._open is None else [self._close(self._open, complete=False)]

    def _read(self, text: str, lines: int, done: list[KernelBlock]) -> None:
        """Read whole lines, clean of escapes, that count as `lines` lines of the log."""
        text = "\n" + text  # now every line follows a newline, also the first
        position = 0
        while True:
            if self._open is not None:
                end = _BLOCK_END.search(text, position)
                self._keep(self._open, text[position + 1 : None if end is None else end.start() + 1])
                if end is None:
                    break
                complete = _kind(end) == "time"
                done.append(self._close(self._open, complete=complete))
                position = end.end() if complete else end.start()
            event = _EVENT.search(text, position)
            if event is None:
                break
            position = text.find("\n", event.end())
            kind = _kind(event)
            self._event(kind, text[event.start() + 1 : position], text[event.end() : position])
            if kind == "block":
                self._open, self._open_chars = [], 0
                self._keep(self._open, text[event.start() + 1 : position + 1])
        self._lines += lines
        self._last_line = _last_line(text) or self._last_line

    def _event(self, kind: str, line: str, rest: str) -> None:
        """A line that matters outside a block. `rest` is what follows the words that it was known by."""
        progress = self._progress
        match kind:
            case "launch":
                name, uid = launch_line(rest)
                if uid is not None:
                    self._flight.launched(uid, name)
                progress = replace(progress, current_kernel=name)
            case "destroy":
                if (gone := uid_in(rest)) is not None:
                    self._flight.destroyed_streams(gone)
            case "rate" if "cycle" not in rest:  # printed twice, inst/sec and cycle/sec
                rate = _DIGITS.search(rest)
                progress = replace(progress, sim_rate_ips=_finite(rate[0]) if rate else None)
            case "exit":
                progress = replace(progress, saw_exit=True)
            case "limit":
                partial = progress.kernels_done - 1 if self._after_block else progress.partial_kernel
                progress = replace(progress, break_line=clean(line)[:MAX_LINE_CHARS], partial_kernel=partial)
            case "clock":
                progress = replace(progress, core_clock_hz=_finite(rest.partition(":")[0]))
            case "engine":
                progress = replace(progress, engine=clean(rest)[:MAX_LINE_CHARS])
            case "fault":
                progress = replace(progress, fault_line=clean(line)[:MAX_LINE_CHARS])
        if kind in {"launch", "next", "destroy", "time", "block"}:
            self._after_block = False
        self._progress = progress

    def _keep(self, pieces: list[str], text: str) -> None:
        room = MAX_BLOCK_CHARS - self._open_chars
        if room > 0:
            pieces.append(text[:room])
            self._open_chars += len(text)

    def _close(self, pieces: list[str], *, complete: bool) -> KernelBlock:
        text = "".join(pieces)
        complete = complete and self._open_chars <= MAX_BLOCK_CHARS
        self._open = None
        self._open_chars = 0
        self._after_block = True
        stats = block_stats(
            text if self._with_stats else "\n".join(text.split("\n", _HEAD_LINES)[:_HEAD_LINES])
        )
        finished = self._flight.finish(stats.get("kernel_launch_uid"))
        progress = self._progress
        self._progress = replace(
            progress,
            kernels_done=progress.kernels_done + 1,
            gpu_tot_sim_cycle=_total(stats, "gpu_tot_sim_cycle", progress.gpu_tot_sim_cycle),
            gpu_tot_sim_insn=_total(stats, "gpu_tot_sim_insn", progress.gpu_tot_sim_insn),
            gpu_tot_ipc=_total(stats, "gpu_tot_ipc", progress.gpu_tot_ipc),
        )
        return KernelBlock(
            index=progress.kernels_done,
            kernel_name=str(stats.get("kernel_name", "")),
            kernel_launch_uid=finished.launch_uid,
            finished_uid=finished.uid,
            finished_name=finished.name,
            gpu_sim_cycle=_count(stats.get("gpu_sim_cycle")),
            gpu_sim_insn=_count(stats.get("gpu_sim_insn")),
            gpu_ipc=_number(stats.get("gpu_ipc")),
            since_last_completion=finished.overlapped,
            partial=False,
            complete=complete,
            stats=stats if self._with_stats else {},
        )


def _kind(line: re.Match[str]) -> str:
    return _EVENTS[line[0].strip("\n\t =")]


def _last_line(text: str) -> str:
    """The last line with anything to show on it, or the empty text."""
    end = len(text)
    while end > 0:
        start = text.rfind("\n", 0, end) + 1
        if line := clean(text[start:end]):
            return line[:MAX_LINE_CHARS]
        end = start - 1
    return ""


def _finite(text: str) -> float | None:
    return _number(value_of(text))


def _number(value: float | str | None) -> float | None:
    return value if isinstance(value, float) else None


def _count(value: float | str | None) -> int | None:
    """A count as printed, or None: not a whole number, wrapped below zero, or wider than 64 bits."""
    if isinstance(value, float) and value.is_integer() and 0 <= value < 2**63:
        return int(value)
    return None


def _total(stats: Stats, key: str, before: float | None) -> float | None:
    return _number(stats[key]) if key in stats else before
