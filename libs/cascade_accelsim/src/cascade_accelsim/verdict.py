"""Whether a run of the simulator succeeded, and the line that tells why not.

Exit code 0 is not success: Accel-Sim exits 0 for a binary version that it does not know, for a missing or empty
kernel trace, and when a limit cut the run short. The only mark of a whole run is its exit line, no limit line, and as
many finished kernels as the list holds (FORMAT notes: ends of runs).
"""

import re
from dataclasses import dataclass
from typing import Final

from cascade_accelsim.log.blocks import Progress
from cascade_accelsim.text import clean

MAX_REASON_CHARS: Final = 500
_SIGNALS: Final = {
    2: "SIGINT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}
_TELLING: Final = re.compile(
    r"ERROR|[Aa]ssertion|what\(\):|terminate called|Could not open|No such file|Unexpected end|[Kk]illed"
)
_FIRST_CAUSE: Final = re.compile(r"^(?:cat|xz|zstd|gzip):|what\(\):")
_VERSION: Final = re.compile(r"unsupported binary version: (\d+)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` says why a run is not `ok`, in one line that a user can act on; None when it is."""

    ok: bool
    reason: str | None


def judge(
    progress: Progress, *, exit_code: int | None, expected_kernels: int | None = None, stderr: str = ""
) -> Verdict:
    """Judge a run that has ended.

    progress: of the whole log, after `LogParser.finish`. exit_code: the shell's (134) or Python's (-6); None when
    the process never ended by itself. expected_kernels: kernel lines of the list; None when it is not known.
    stderr: the last lines of the other stream, where assertions are printed.
    """
    reason = _reason(progress, exit_code, expected_kernels, stderr)
    return Verdict(ok=reason is None, reason=None if reason is None else clean(reason)[:MAX_REASON_CHARS])


def _reason(progress: Progress, exit_code: int | None, expected: int | None, stderr: str) -> str | None:
    finished = progress.kernels_finished
    of_list = f"{finished} of {expected} kernels" if expected is not None else f"{finished} kernels"
    if exit_code is None:
        return f"the simulator did not end by itself after {of_list}: {_why(progress, stderr)}"
    if exit_code != 0:
        return f"the simulator exited with {_code(exit_code)} after {of_list}: {_why(progress, stderr)}"
    if progress.break_line is not None:
        return f"a limit stopped the simulation after {of_list}: {progress.break_line}"
    if not progress.saw_exit:
        return f"the simulator exited with 0 after {of_list}, but its log lacks the exit line: {_why(progress, stderr)}"
    if finished == 0:
        return "the simulator ended normally but simulated no kernel: its kernel list holds no kernel line"
    if expected is not None and finished < expected:
        return f"the simulator ended normally but finished only {of_list} of the list"
    return None


def _why(progress: Progress, stderr: str) -> str:
    """The most telling line: of stderr, then a fault on stdout, then the last line printed."""
    if line := _telling(stderr):
        return line
    if progress.fault_line is not None:
        return _explained(progress.fault_line)
    return f"the last line is {progress.last_line!r}" if progress.last_line else "it printed nothing"


def _telling(stderr: str) -> str | None:
    lines = [line.strip() for line in stderr.split("\n") if line.strip()]
    for pattern in (_FIRST_CAUSE, _TELLING):
        for line in lines:
            if pattern.search(line):
                return line
    return lines[-1] if lines else None


def _explained(fault: str) -> str:
    version = _VERSION.match(fault)
    if version is None:
        return fault
    if int(version[1]) == 0:
        return (
            f"{fault} (a kernel's trace file is missing, empty, or in a form that this simulator cannot read)"
        )
    return f"{fault} (this simulator cannot run traces of sm_{version[1]}; trace for another GPU or use a newer one)"


def _code(exit_code: int) -> str:
    number = -exit_code if exit_code < 0 else exit_code - 128
    return f"{exit_code} ({_SIGNALS[number]})" if number in _SIGNALS else str(exit_code)
