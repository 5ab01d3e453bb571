"""The incremental log parser: a plain state machine from lines to kernel blocks.

A block starts at a line that begins with `kernel_name =` and ends at the next `gpgpu_simulation_time`,
`launching kernel name:`, `Processing kernel`, `Header info loaded`, exit or limit line, or at the next
`kernel_name` (spec: reading-results, how the parser reads a log). The result does not depend on how the log is
cut into chunks, and no text makes it raise.

It works on text and not line by line: one search finds the next line that matters, and a block is sliced out whole.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from cascade_accelsim.log.blocks import KernelBlock, ParserState, Progress, Stats
from cascade_accelsim.log.flight import Flight, launch_line, uid_in
from cascade_accelsim.log.stats import block_stats, value_of
from cascade_accelsim.text import clean, without_escapes

STATE_VERSION: Final = 1
MAX_BLOCK_CHARS: Final = 16 * 1024 * 1024
"""What is kept of one block: about 50 times the largest real one. The rest of a block without an end is dropped."""
MAX_LINE_CHARS: Final = 1000
"""What is kept of a line that is only shown: the break, fault and last lines."""
_HEAD_LINES: Final = 64
"""The typed fields and the totals stand in the first 25 lines of a block."""

_END: Final = (
    r"(?P<time>gpgpu_simulation_time)"
    r"|(?P<launch>launching kernel name:)"
    r"|(?P<next>Processing kernel|Header info loaded)"
    r"|(?P<exit>GPGPU-Sim: \*\*\* exit detected)"
    r"|(?P<limit>GPGPU-Sim: \*\* break due to)"
    r"|(?P<block>kernel_name[ \t]*=)"
)
_BLOCK_END: Final = re.compile(rf"\n(?:{_END})")
_EVENT: Final = re.compile(
    rf"\n(?:{_END}"
    r"|(?P<rate>gpgpu_simulation_rate)"
    r"|(?P<destroy>Destroy streams for kernel )"
    r"|(?P<clock>GPGPU-Sim uArch: clock freqs:)"
    r"|(?P<engine>engine[ \t]*=)"
    r"|(?P<fault>unsupported binary version|Unable to open file|ERROR|GPGPU-Sim uArch: ERROR|GPGPU-Sim \*\* ERROR))"
)
_DIGITS: Final = re.compile(r"\d+(?:\.\d+)?")


class LogParser:
    """Reads one sim's log. Feed it whole lines in order; it hands back the blocks that these lines finished."""

    def __init__(self, *, with_stats: bool = True) -> None:
        """`with_stats=False` fills in no `stats`, for callers that judge a run and do not store it."""
        self._with_stats = with_stats
        self._progress = Progress()
        self._flight = Flight()
        self._after_block = False
        """Only the block's own closing lines came since the last block, so that a limit line means that block."""
        self._open: list[str] | None = None
        self._open_chars = 0
        self._before_open: ParserState | None = None

    @property
    def progress(self) -> Progress:
        return self._progress

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
        for line in text.split("\n")[
            :-1
        ]:  # redrawn in place: each state of the line is read, all count as one line
            self._read(line.replace("\r", "\n") + "\n", 1, done)
        return done

    def finish(self) -> list[KernelBlock]:
        """The log has ended: close a block that is still open. It is not `complete`."""
        return [] if self._open is None else [self._close(self._open, complete=False)]

    def state(self) -> ParserState:
        """The state between blocks; with a block open, that before it, so that it is read again from its start."""
        return self._before_open or self._snapshot(self._progress.lines)

    @classmethod
    def restore(cls, state: ParserState, *, with_stats: bool = True) -> "LogParser":
        """A parser that goes on at line `state["next_line"]`.

        Raises ValueError for a state of another version: read the log from its start instead.
        """
        if state["version"] != STATE_VERSION:
            raise ValueError(
                f"parser state has version {state['version']}, expected {STATE_VERSION}: read the log from line 0"
            )
        parser = cls(with_stats=with_stats)
        parser._progress = Progress(**state["progress"])  # type: ignore[arg-type]  # written by _snapshot
        parser._after_block = state["after_block"]
        parser._flight = Flight(state["in_flight"], state["destroyed"])
        return parser

    def _snapshot(self, next_line: int) -> ParserState:
        return ParserState(
            version=STATE_VERSION,
            next_line=next_line,
            progress=asdict(replace(self._progress, lines=next_line)),
            after_block=self._after_block,
            in_flight=list(self._flight.in_flight.items()),
            destroyed=list(self._flight.destroyed),
        )

    def _read(self, text: str, lines: int, done: list[KernelBlock]) -> None:
        """Read whole lines, clean of escapes, that count as `lines` lines of the log."""
        first_line = self._progress.lines
        text = "\n" + text  # now every line follows a newline, also the first
        position = counted_to = counted = 0
        while True:
            if self._open is not None:
                end = _BLOCK_END.search(text, position)
                self._keep(self._open, text[position + 1 : None if end is None else end.start() + 1])
                if end is None:
                    break
                done.append(self._close(self._open, complete=end.lastgroup == "time"))
                position = end.end() if end.lastgroup == "time" else end.start()
            event = _EVENT.search(text, position)
            if event is None:
                break
            position = text.find("\n", event.end())
            kind = event.lastgroup or ""
            self._event(kind, text[event.start() + 1 : position], text[event.end() : position])
            if kind == "block":
                counted += text.count("\n", counted_to, event.start())
                counted_to = event.start()
                self._before_open = self._snapshot(first_line + min(counted, lines - 1))
                self._open, self._open_chars = [], 0
                self._keep(self._open, text[event.start() + 1 : position + 1])
        last_line = _last_line(text) or self._progress.last_line
        self._progress = replace(self._progress, lines=first_line + lines, last_line=last_line)

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
        self._open = self._before_open = None
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
