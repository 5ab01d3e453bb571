"""The sentence that a sim shows when its simulator ended without a final heartbeat. Pure."""

import re
import signal

from cascade_launcher.backends.protocol import Ended, Gone

MOST_OUTPUT_LINES = 5
MOST_OUTPUT_CHARS = 1000
# Terminal colour and movement; the rest of the control characters would be shown as garbage.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def ending(vital: Ended | Gone, *, heard: bool) -> str:
    """Why a sim is over whose simulator never said so. `heard`: whether it ever sent a heartbeat."""
    when = "without a final heartbeat" if heard else "before its first heartbeat"
    if isinstance(vital, Gone):
        return f"the simulator is gone {when}: its platform no longer knows it"
    sentence = f"{how_it_ended(vital.exit_code)} {when}"
    if vital.reason:
        sentence = vital.reason if vital.exit_code is None else f"{vital.reason} ({sentence})"
    lines = last_lines(vital.output)
    return f"{sentence}; its last output:\n" + "\n".join(lines) if lines else sentence


def how_it_ended(exit_code: int | None) -> str:
    """An exit code in words; a negative one is a signal's, as is one above 128 by a shell's convention."""
    if exit_code is None:
        return "the simulator ended (its exit code could not be seen)"
    number = -exit_code if exit_code < 0 else exit_code - 128
    if exit_code < 0 or exit_code > 128:
        try:
            name = signal.Signals(number).name
        except ValueError:
            return f"the simulator exited with code {exit_code}"
        return (
            f"the simulator was ended by {name}"
            if exit_code < 0
            else (f"the simulator exited with code {exit_code} ({name})")
        )
    return f"the simulator exited with code {exit_code}"


def last_lines(output: tuple[str, ...]) -> list[str]:
    """The last lines that hold text, readable and bounded."""
    cleaned = (_CONTROLS.sub("", _ESCAPES.sub("", line)).rstrip() for line in output)
    lines = [line for line in cleaned if line][-MOST_OUTPUT_LINES:]
    kept: list[str] = []
    room = MOST_OUTPUT_CHARS
    for line in reversed(lines):
        if room <= 0:
            break
        kept.append(line if len(line) <= room else "…" + line[-room:])
        room -= len(line)
    return kept[::-1]


def lines_of(raw: bytes, *, whole: bool) -> tuple[str, ...]:
    """The lines of a piece of output. `whole`: whether it begins at a line's start."""
    lines = raw.decode("utf-8", "replace").split("\n")
    return tuple(lines if whole or len(lines) == 1 else lines[1:])
