"""Logs on disk, plain or gzipped, as pieces of whole lines. One of the few modules here that touch files."""

import codecs
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

PIECE_BYTES: Final = 256 * 1024
"""Large enough that the cost of a piece vanishes, small enough to keep memory flat."""


def open_log(path: Path) -> BinaryIO:
    """The log's bytes, unpacked if the name ends in `.gz`. Raises OSError as `open` does."""
    return cast("BinaryIO", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def log_pieces(path: Path) -> Iterator[str]:
    """The log as text for `LogParser.feed_text`: whole lines, UTF-8 with bad bytes replaced, as the worker sends it.

    Raises OSError when the file cannot be read, EOFError when a gzip file is cut short.
    """
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    rest = ""
    with open_log(path) as file:
        while data := file.read(PIECE_BYTES):
            whole, newline, after = decode(data).rpartition("\n")
            if newline:
                yield rest + whole + newline
                rest = after
            else:
                rest += after
    rest += decode(b"", final=True)
    if rest:
        yield rest
