"""Make the sync client from the async one, so that there is one implementation of both.

    uv run python scripts/build_sync_client.py

A test fails while `client.py` is not what this makes of `async_client.py`.
"""

import re
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "libs" / "cascade_client" / "src" / "cascade_client"
SOURCE = PACKAGE / "async_client.py"
TARGET = PACKAGE / "client.py"

_RULES = (
    (r"The async client:", "The sync client:"),
    (
        r"`client\.py` is made from this file by `scripts/build_sync_client\.py`: change only this one\.",
        "Made from `async_client.py` by `scripts/build_sync_client.py`: change that one.",
    ),
    (r"an `async with` block, or `close` it\.", "a `with` block, or `close` it. For one thread."),
    (r"-> AsyncGenerator\[(\w+), None\]", r"-> Iterator[\1]"),
    (
        r"AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Sequence",
        "Callable, Generator, Iterator, Sequence",
    ),
    (r"Awaitable\[None\]", "None"),
    (r"await asyncio\.to_thread\(([\w.]+), ", r"\1("),
    (r"await asyncio\.to_thread\(([\w.]+)\)", r"\1()"),
    (r"import asyncio\n", "import time\n"),
    (r"asyncio\.sleep", "time.sleep"),
    (r"\bAsync(Iterator|Client|CascadeClient)", r"\1"),
    (r"asynccontextmanager", "contextmanager"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\baclose\(", "close("),
    (r"\baread\(", "read("),
    (r"\baiter_bytes\(", "iter_bytes("),
)


def sync_source() -> str:
    """The sync client's source as it must be, formatted."""
    text = SOURCE.read_text()
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    for arguments in (["check", "--fix", "--quiet", "--exit-zero"], ["format", "--quiet"]):
        done = subprocess.run(
            ["ruff", *arguments, "--stdin-filename", str(TARGET), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = done.stdout
    return text


if __name__ == "__main__":
    TARGET.write_text(sync_source())
