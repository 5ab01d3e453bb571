"""A file that appears only when it is complete."""

from pathlib import Path
from typing import BinaryIO


class Draft:
    """Written beside its target and moved there at the end. Raises OSError."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = target.with_name(f".{target.name}.part")
        self._file: BinaryIO | None = None

    def open(self) -> None:
        """Begin, from nothing."""
        self.close()
        self._file = self._path.open("wb")

    def write(self, piece: bytes) -> None:
        """Append bytes."""
        assert self._file is not None, "not open"
        self._file.write(piece)

    def finish(self) -> int:
        """Move the file to its target; its size. [bytes]"""
        self.close()
        self._path.replace(self._target)
        return self._target.stat().st_size

    def discard(self) -> None:
        """Leave nothing behind."""
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file, complete or not."""
        if self._file is not None:
            self._file.close()
            self._file = None
