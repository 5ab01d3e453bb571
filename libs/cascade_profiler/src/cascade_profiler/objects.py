"""Putting files into an S3 bucket, one object at a time. The only module that talks S3.

Credentials come from the environment that the caller hands in, and from nowhere else: no profile file, no instance
metadata. Without any, requests are unsigned, which is what a Cascade app's own endpoint takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import botocore
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from cascade_profiler.errors import OptionsError, UploadError
from cascade_profiler.options import S3Destination

SINGLE_PUT_BYTES = 64 * 1024 * 1024
"""[bytes] Larger files go up in parts of this size; S3 takes at most 5 GiB in one request, and 10,000 parts."""

MAX_ATTEMPTS = 6
"""[attempts] a request, with growing pauses: a run of hours should survive a minute without network."""


class ObjectStore(Protocol):
    """What streaming and uploading need of a bucket. Keys are relative to the run."""

    def check(self) -> None:
        """Raise UploadError if the bucket cannot be reached with these credentials."""

    def put_file(self, key: str, path: Path) -> None:
        """Store a file. Raises UploadError after the last attempt."""

    def put_bytes(self, key: str, body: bytes) -> None:
        """Store bytes. Raises UploadError after the last attempt."""


class S3Store:
    """`ObjectStore` below one run's prefix of an S3 bucket."""

    def __init__(self, destination: S3Destination, run_name: str, environ: Mapping[str, str]) -> None:
        self._bucket = destination.bucket
        self._prefix = "/".join(filter(None, (destination.prefix, run_name)))
        self._where = f"s3://{destination.bucket} at {destination.endpoint}"
        key, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
        if bool(key) != bool(secret):
            raise OptionsError(
                "set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither for an endpoint that takes unsigned "
                "requests"
            )
        self._client = botocore.session.Session().create_client(
            "s3",
            endpoint_url=destination.endpoint,
            region_name=destination.region,
            aws_access_key_id=key or None,
            aws_secret_access_key=secret or None,
            aws_session_token=environ.get("AWS_SESSION_TOKEN") or None,
            config=Config(
                signature_version=None if key else botocore.UNSIGNED,
                s3={"addressing_style": destination.addressing_style},
                retries={"max_attempts": MAX_ATTEMPTS, "mode": "standard"},
                # Stores that do not know trailing checksums keep their chunk framing inside the object.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    def check(self) -> None:
        try:
            self._client.list_objects_v2(Bucket=self._bucket, Prefix=f"{self._prefix}/", MaxKeys=1)
        except (BotoCoreError, ClientError) as error:
            raise UploadError(
                f"cannot reach {self._where}: {error}; check the endpoint URL (S3, not the app), the bucket, "
                "the addressing style and the AWS_* variables"
            ) from error

    def put_file(self, key: str, path: Path) -> None:
        if path.stat().st_size > SINGLE_PUT_BYTES:
            self._put_parts(key, path)
            return
        self.put_bytes(key, path.read_bytes())

    def put_bytes(self, key: str, body: bytes) -> None:
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._key(key), Body=body)
        except (BotoCoreError, ClientError) as error:
            raise UploadError(f"cannot store {key} in {self._where}: {error}") from error

    def _put_parts(self, key: str, path: Path) -> None:
        name = {"Bucket": self._bucket, "Key": self._key(key)}
        try:
            upload_id = self._client.create_multipart_upload(**name)["UploadId"]
            try:
                parts: list[dict[str, object]] = []
                with path.open("rb") as file:
                    while body := file.read(SINGLE_PUT_BYTES):
                        number = len(parts) + 1
                        reply = self._client.upload_part(
                            **name, UploadId=upload_id, PartNumber=number, Body=body
                        )
                        parts.append({"PartNumber": number, "ETag": reply["ETag"]})
                self._client.complete_multipart_upload(
                    **name, UploadId=upload_id, MultipartUpload={"Parts": parts}
                )
            except BaseException:
                self._client.abort_multipart_upload(**name, UploadId=upload_id)
                raise
        except (BotoCoreError, ClientError) as error:
            raise UploadError(f"cannot store {key} in {self._where}: {error}") from error

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}"
