"""Text that clients sent: what can be stored and sent on whatever it held."""

import re

_SURROGATE = re.compile("[\ud800-\udfff]")
REPLACEMENT = "\ufffd"


def without_surrogates(text: str) -> str:
    """`text` with U+FFFD for each lone surrogate, which UTF-8 cannot express."""
    return _SURROGATE.sub(REPLACEMENT, text)


def without_nul(text: str) -> str:
    """`text` with U+FFFD for each NUL, which Postgres refuses in text."""
    return text.replace("\x00", REPLACEMENT)
