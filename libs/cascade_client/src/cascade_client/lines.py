"""Bytes, in pieces of any size, as lines of text. Pure."""

from collections.abc import Iterator


class LineReader:
    """Cuts at line feeds only: logs may hold any other separator."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[str]:
        """The lines that `piece` completes, without their line feeds."""
        first, *others = piece.split(b"\n")
        self._rest.append(first)
        for other in others:
            yield _text(self._rest)
            self._rest = [other]

    def close(self) -> Iterator[str]:
        """The last line where no line feed ends it."""
        if any(self._rest):
            yield _text(self._rest)
        self._rest = []


def _text(pieces: list[bytes]) -> str:
    return b"".join(pieces).decode("utf-8", "replace")
