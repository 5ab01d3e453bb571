"""Keeping credentials out of captured processes and collected files. Pure.

Nsight stores the environment of what it runs, and any library may print its own. So the profiled and traced
processes get no secret in the first place, and what is collected is searched for the values once more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

REMOVED = "[removed by cascade-profiler]"
MIN_SECRET_LENGTH = 8
"""[characters] Shorter values are no credentials, and removing them would damage logs."""

_SECRET_NAME = re.compile(
    r"AWS_.*|.*(?:SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY).*", re.IGNORECASE
)
_HARMLESS = frozenset({"AWS_REGION", "AWS_DEFAULT_REGION", "TOKENIZERS_PARALLELISM"})


def is_secret_name(name: str) -> bool:
    """Return whether an environment variable of this name may hold a credential."""
    return name not in _HARMLESS and _SECRET_NAME.fullmatch(name) is not None


def without_secrets(environ: Mapping[str, str], *, keep: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment without what may be a credential, except the names in `keep`."""
    kept = frozenset(keep)
    return {name: value for name, value in environ.items() if name in kept or not is_secret_name(name)}


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values to search collected text for, the longest first."""
    values = {v for name, v in environ.items() if is_secret_name(name) and len(v) >= MIN_SECRET_LENGTH}
    return tuple(sorted(values, key=lambda v: (-len(v), v)))


def redact(text: str, values: Iterable[str]) -> str:
    """Return `text` with every value replaced by a note."""
    for value in values:
        text = text.replace(value, REMOVED)
    return text
