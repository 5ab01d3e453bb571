"""Timelines, mappings, durations and results in files, plain or gzipped.

The only module of this package that touches the disk. Reading looks at the content, not at the name, to tell
gzip from plain text; writing gzips when the name ends in `.gz`, and replaces the file in one move, so that a
reader never sees half a result.
"""

import gzip
import json
import math
import zlib
from pathlib import Path

from cascade_timing.errors import FileError, InvalidInputError
from cascade_timing.fields import JsonObject
from cascade_timing.matching import KernelDuration, MappedKernel, parse_durations, parse_mapping
from cascade_timing.timeline import Timeline, parse_timeline

MAX_FILE_BYTES = 512 * 1024 * 1024
"""Largest document read, after decompression. [B] A timeline takes about 200 bytes a kernel, so this is
more than two million kernels; the bound keeps a small gzip file from filling the memory."""

_GZIP_MAGIC = b"\x1f\x8b"


def read_timeline(path: Path) -> Timeline:
    """A `corrected_timeline.json` or `simulated_timeline.json`, plain or gzipped.

    Raises:
        FileError: no such file, not readable, not strict JSON, too large.
        InvalidInputError: JSON, but not a timeline; the message names the file.
    """
    document = read_json(path)
    try:
        return parse_timeline(document)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def read_mapping(path: Path) -> tuple[MappedKernel, ...]:
    """A `kernel_mapping.json`, plain or gzipped. Raises as `read_timeline` does."""
    document = read_json(path)
    try:
        return parse_mapping(document)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def read_durations(path: Path) -> tuple[KernelDuration, ...]:
    """A durations file, plain or gzipped. Raises as `read_timeline` does."""
    document = read_json(path)
    try:
        return parse_durations(document)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def read_json(path: Path) -> object:
    """The JSON document in a file. NaN and Infinity, which Python would accept, are refused.

    Raises:
        FileError: no such file, not readable, not UTF-8, not strict JSON, or over `MAX_FILE_BYTES`.
    """
    text = _decoded(path, _content(path))
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite_float)
    except RecursionError as error:
        raise FileError(f"{path} is nested too deeply to be one of our files") from error
    except ValueError as error:
        raise FileError(
            f"{path} is not strict JSON: {error}. Write it again, or check that it is complete"
        ) from error


def write_json(path: Path, document: JsonObject) -> None:
    """Write a document as strict JSON; the same document always gives the same bytes.

    Raises:
        FileError: the directory is missing, the disk is full, or the document holds NaN or Infinity.
    """
    content = to_json(document).encode()
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    partial = path.with_name(f".{path.name}.partial")
    try:
        try:
            partial.write_bytes(content)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error


def to_json(document: JsonObject) -> str:
    """A document as one line of strict ASCII JSON, with a line end.

    ASCII, because a name may hold half of a surrogate pair, which JSON can escape and UTF-8 cannot encode.

    Raises:
        FileError: the document holds NaN or Infinity.
    """
    try:
        return json.dumps(document, allow_nan=False) + "\n"
    except ValueError as error:
        raise FileError(f"the result is not strict JSON: {error}") from error


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            head = file.read(len(_GZIP_MAGIC))
            file.seek(0)
            if head == _GZIP_MAGIC:
                with gzip.open(file) as unpacked:
                    content = unpacked.read(MAX_FILE_BYTES + 1)
            else:
                content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise FileError(f"{path} does not exist; expected a JSON file, plain or gzipped") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(f"{path} is a damaged gzip file: {error}. Copy it again") from error
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise FileError(
            f"{path} holds more than {MAX_FILE_BYTES} bytes; expected a step timeline of at most that"
        )
    return content


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _refuse_constant(name: str) -> object:
    raise ValueError(f"it holds {name}, which is not JSON; use null where there is no number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"it holds {text}, which no float can represent")
    return value
