"""Cleaning of printed text: terminal colours, carriage returns, control characters, lone surrogates.

Wrapped simulators colour their lines, end them with CRLF and redraw progress with a bare CR. What is kept of a
log (names, keys, values) must be text that JSON, UTF-8 and Postgres accept.
"""

import re
from typing import Final

_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?")
_CARRIAGE_RETURNS_AT_END: Final = re.compile(r"(?<!\r)\r+\n")
"""Tried once for each run of carriage returns: at each of them it would take the square of the run's length."""
_UNWANTED: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


def without_escapes(text: str) -> str:
    """`text` without terminal escape sequences and without carriage returns before a newline.

    A bare carriage return (a redrawn progress line) stays: the caller decides whether it separates lines.
    """
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\r" in text:
        text = _CARRIAGE_RETURNS_AT_END.sub("\n", text)
    return text


def clean(text: str) -> str:
    """`text` stripped, without control characters, each tab one blank, lone surrogates as U+FFFD."""
    text = text.strip()
    if text.isprintable():
        return text
    return _SURROGATE.sub("\ufffd", _UNWANTED.sub("", text.replace("\t", " "))).strip()
