"""One run's place in an S3 bucket, for code that waits for each file: a thin, blocking face of
`cascade_client`.

Credentials come from the environment that the caller hands in, and from nowhere else: no profile file, no
instance metadata. Without any, requests are unsigned, which is what a Cascade app's own endpoint takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from cascade_client.object_store import ObjectStore, open_store
from cascade_client.object_store import UploadError as ClientUploadError
from cascade_client.upload import PART_BYTES

from cascade_profiler.errors import OptionsError, UploadError
from cascade_profiler.options import S3Destination

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """Keys of one upload; without keys, requests are unsigned. Not shown in any representation."""

    access_key: str | None
    secret_key: str | None
    session_token: str | None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Credentials:
        """Read the AWS_* variables. Raises OptionsError if only one half of a key pair is there."""
        key, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
        if bool(key) != bool(secret):
            raise OptionsError(
                "set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither for an endpoint that takes unsigned "
                "requests"
            )
        token = environ.get("AWS_SESSION_TOKEN")
        return cls(key or None, secret or None, (token or None) if key else None)


class RunStore(Protocol):
    """What streaming and uploading need of a bucket. Keys are relative to the run."""

    def check(self) -> None:
        """Raise UploadError if the bucket cannot be reached with these credentials."""

    def put_file(self, key: str, path: Path) -> None:
        """Store a file. Raises UploadError after the last attempt."""

    def put_bytes(self, key: str, body: bytes) -> None:
        """Store bytes. Raises UploadError after the last attempt."""


@contextmanager
def open_run(destination: S3Destination, run_name: str, environ: Mapping[str, str]) -> Iterator[RunStore]:
    """Connect to a run's place in its bucket. Raises OptionsError for half a key pair."""
    credentials = Credentials.from_environ(environ)
    with asyncio.Runner() as runner:
        opened = open_store(
            endpoint=destination.endpoint,
            bucket=destination.bucket,
            access_key=credentials.access_key,
            secret_key=credentials.secret_key,
            session_token=credentials.session_token,
            region=destination.region,
            addressing_style=destination.addressing_style,
        )
        store = runner.run(opened.__aenter__())
        try:
            yield _S3Run(runner, store, destination.run_prefix(run_name))
        finally:
            runner.run(opened.__aexit__(None, None, None))


class _S3Run:
    """`RunStore` on a real bucket."""

    def __init__(self, runner: asyncio.Runner, store: ObjectStore, prefix: str) -> None:
        self._runner = runner
        self._store = store
        self._prefix = prefix

    def check(self) -> None:
        self._wait(self._store.list_objects(f"{self._prefix}/"))

    def put_file(self, key: str, path: Path) -> None:
        size_bytes = path.stat().st_size
        self._wait(
            self._store.put_file(f"{self._prefix}/{key}", path, size_bytes=size_bytes, part_bytes=PART_BYTES)
        )

    def put_bytes(self, key: str, body: bytes) -> None:
        self._wait(self._store.put(f"{self._prefix}/{key}", body, content_type="application/octet-stream"))

    def _wait(self, work: Coroutine[object, object, Result]) -> Result:
        try:
            return self._runner.run(work)
        except ClientUploadError as error:
            raise UploadError(
                f"{error}; the endpoint is S3's, not the app's, and keys come from AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY"
            ) from error
