"""The folder that a backup is: facts and listings as compressed lines of JSON, and a manifest that is written last.

`facts.jsonl.zst` holds one stored fact a line. `uploads.jsonl.zst` and `internal.jsonl.zst` list the buckets.
`objects/<bucket>/` holds the objects where they were asked for, each named by the SHA-256 of its key.
"""

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import zstandard
from cascade_core.jetstream.copying import StoredFact
from cascade_core.ports import ObjectInfo
from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

FORMAT = 1
MANIFEST = "manifest.json"
FACTS = "facts.jsonl.zst"
BucketRole = Literal["uploads", "internal"]
ROLES: tuple[BucketRole, ...] = ("uploads", "internal")
_LEVEL = 6


class BackupProblem(Exception):
    """A backup cannot be written there, or what lies there cannot be restored. The message says what to do."""


class BucketSummary(BaseModel):
    """One bucket of a backup."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    objects: int
    bytes: int
    sha256: str
    """Of the listing file."""


class Manifest(BaseModel):
    """What the backup is, and how it can be told to be whole."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    created_at: str
    cascade: str
    fact_schema: int
    migrations: list[str]
    """Of the read models that stood beside the log. They are not in the backup: a restore makes them anew."""
    facts: int
    last_position: int
    facts_sha256: str
    with_objects: bool
    buckets: dict[BucketRole, BucketSummary]


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One object of a listing."""

    key: str
    size: int
    etag: str

    @classmethod
    def of(cls, info: ObjectInfo) -> "ListedObject":
        """As a store lists it."""
        return cls(key=info.key, size=info.size, etag=info.etag)


class _FactLine(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    position: int
    subject: str
    headers: dict[str, str]
    body: str


_LISTED: TypeAdapter[ListedObject] = TypeAdapter(ListedObject)


def listing_file(role: BucketRole) -> str:
    """The file that lists a bucket."""
    return f"{role}.jsonl.zst"


def object_file(directory: Path, role: BucketRole, key: str) -> Path:
    """Where an object's bytes lie. Keys may hold anything; a digest is a safe file name."""
    return directory / "objects" / role / hashlib.sha256(key.encode()).hexdigest()


class LineWriter:
    """Lines of JSON into a compressed file, with the digest of what was written."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self._digest = hashlib.sha256()
        self._compress = zstandard.ZstdCompressor(level=_LEVEL).compressobj()

    def fact(self, fact: StoredFact) -> None:
        """Add a fact."""
        self._line(
            {
                "position": fact.position,
                "subject": fact.subject,
                "headers": dict[str, JsonValue](fact.headers),
                "body": fact.body.decode(),
            }
        )

    def listed(self, entry: ListedObject) -> None:
        """Add an object."""
        self._line({"key": entry.key, "size": entry.size, "etag": entry.etag})

    def close(self) -> str:
        """Write what is left; the SHA-256 of the whole file."""
        self._put(self._compress.flush())
        return self._digest.hexdigest()

    def _line(self, value: dict[str, JsonValue]) -> None:
        self._put(self._compress.compress(json.dumps(value, ensure_ascii=False).encode() + b"\n"))

    def _put(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._target.write(piece)


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a backup. Raises BackupProblem."""
    try:
        manifest = Manifest.model_validate_json((directory / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise BackupProblem(
            f"{directory} holds no {MANIFEST}: it is no backup, or one that broke off. Choose another folder"
        ) from error
    except ValidationError as error:
        raise BackupProblem(
            f"{directory / MANIFEST} is not a manifest of format {FORMAT}; it may be of a newer Cascade"
        ) from error
    if manifest.format != FORMAT:
        raise BackupProblem(
            f"{directory} has format {manifest.format}; this Cascade reads format {FORMAT}. Upgrade it first"
        )
    return manifest


def check(path: Path, sha256: str) -> None:
    """Raises BackupProblem if the file is not what was written."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as source:
            while piece := source.read(1 << 20):
                digest.update(piece)
    except FileNotFoundError as error:
        raise BackupProblem(f"{path} is missing; the backup is not whole. Use another one") from error
    if digest.hexdigest() != sha256:
        raise BackupProblem(f"{path} is damaged: its SHA-256 is not the manifest's. Use another backup")


def facts_in(directory: Path) -> Iterator[StoredFact]:
    """The facts of a backup, in their order. Raises BackupProblem."""
    for line in _lines(directory / FACTS):
        try:
            read = _FactLine.model_validate_json(line)
        except ValidationError as error:
            raise BackupProblem(f"{directory / FACTS} holds a line that is no fact: {line[:80]!r}") from error
        yield StoredFact(read.position, read.subject, read.headers, read.body.encode())


def listed_in(directory: Path, role: BucketRole) -> Iterator[ListedObject]:
    """The objects that a bucket held. Raises BackupProblem."""
    path = directory / listing_file(role)
    for line in _lines(path):
        try:
            yield _LISTED.validate_json(line)
        except ValidationError as error:
            raise BackupProblem(f"{path} holds a line that is no object: {line[:80]!r}") from error


def _lines(path: Path) -> Iterator[bytes]:
    with (
        path.open("rb") as packed,
        zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as raw,
        io.BufferedReader(raw, 1 << 20) as lines,
    ):
        yield from lines
