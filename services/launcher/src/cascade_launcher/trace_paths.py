"""Where a trace lies on a local disk. Pure. Ids and keys are whatever an uploader chose, so none is
trusted."""

import hashlib
import os
import re
from pathlib import Path, PurePosixPath

_LONGEST_NAME_BYTES = 255
"""Of one path component, on every common file system."""
_LONGEST_BEFORE_AN_ENDING_BYTES = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=,@:~ ()\[\]{}-]")


def directory_name(trace_id: str) -> str:
    """One safe path component for a trace id; the id itself wherever that is safe. Two ids never share a
    name.

    Unsafe characters become `%XX` of their UTF-8 bytes; `%` itself is one of them, so no plain id looks
    encoded. Very long ids become a marked hash, and `%s` is no encoded byte.
    """
    name = _UNSAFE.sub(_percent, trace_id)
    if name == "" or name.strip(".") == "":  # "", ".", ".." and longer runs of dots
        name = "".join(_percent_byte(byte) for byte in trace_id.encode()) or "%empty"
    if len(name) > _LONGEST_NAME_BYTES:
        return "%sha256-" + hashlib.sha256(trace_id.encode("utf-8", "surrogatepass")).hexdigest()
    return name


def index_name(directory: str) -> str:
    """The name, for a trace's index, of a directory's; with room for an ending. Two directories never share one."""
    if len(os.fsencode(directory)) <= _LONGEST_BEFORE_AN_ENDING_BYTES:
        return directory
    return "%sha256-" + hashlib.sha256(os.fsencode(directory)).hexdigest()


def _percent(match: re.Match[str]) -> str:
    return "".join(_percent_byte(byte) for byte in match.group().encode("utf-8", "surrogatepass"))


def _percent_byte(byte: int) -> str:
    return f"%{byte:02X}"


def trace_dir(data_dir: Path, *, bucket: str, prefix: str, trace_id: str) -> Path:
    """`$CASCADE_DATA_DIR/s3/<bucket>/<prefix>/<trace id>`, absolute."""
    parts = [part for part in prefix.split("/") if part not in ("", ".", "..")]
    return data_dir.absolute().joinpath("s3", bucket, *parts, directory_name(trace_id))


def index_path(data_dir: Path, trace_id: str) -> Path:
    """`$CASCADE_DATA_DIR/work/traces/<trace id>.json`, absolute."""
    return data_dir.absolute() / "work" / "traces" / f"{index_name(directory_name(trace_id))}.json"


def relative_path(key: str, prefix: str) -> PurePosixPath | None:
    """The file below the trace's directory for an object's key; None where it must not or need not be stored.

    Directory markers hold nothing; dotfiles are no part of a trace; a key that would leave the directory, or
    that no file system takes, is refused.
    """
    if not key.startswith(prefix):
        return None
    parts = key[len(prefix) :].split("/")
    if any(
        not part
        or part.startswith(".")
        or "\0" in part
        or len(part.encode("utf-8", "replace")) > _LONGEST_NAME_BYTES
        for part in parts
    ):
        return None
    return PurePosixPath(*parts)
