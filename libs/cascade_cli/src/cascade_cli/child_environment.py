"""What a child process may see of this process's environment: what any program needs, and no secret."""

import os
from collections.abc import Mapping

# The operator's shell may hold cloud keys; Cascade's own variables hold the token.
_NEEDED = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "VIRTUAL_ENV",
    "PYTHONPATH", "LD_LIBRARY_PATH",
)  # fmt: skip


def bare(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that any program needs, of `environ` or of this process."""
    source = os.environ if environ is None else environ
    return {name: source[name] for name in _NEEDED if name in source}
