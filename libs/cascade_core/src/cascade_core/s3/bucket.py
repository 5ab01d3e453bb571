"""Bucket on any S3 store, by aiobotocore. Thin: it translates types and errors, and follows every listing page."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore import UNSIGNED
from botocore.exceptions import BotoCoreError, ClientError

from cascade_core.errors import BucketUnavailable, NotFound
from cascade_core.ports import ObjectInfo
from cascade_core.settings import BucketSettings

PART_BYTES = 8 * 1024 * 1024
"""Size of a multipart part; S3 allows no less than 5 MiB."""
DELETE_BATCH = 1000
# A body that ends early shows as a client error of the transport below.
_BROKEN = (BotoCoreError, aiohttp.ClientError, OSError, TimeoutError)
_GONE = frozenset({"NoSuchKey", "404", "NotFound"})
_NO_BUCKET = "NoSuchBucket"
_BEYOND_THE_END = frozenset({"InvalidRange", "416"})


@asynccontextmanager
async def opened(settings: BucketSettings, *, bucket: str | None = None) -> AsyncIterator["S3Bucket"]:
    """The bucket of `settings` (or another one at the same endpoint), for the length of the block."""
    secret = settings.s3_secret_key
    anonymous = settings.s3_access_key is None
    config = AioConfig(
        s3={"addressing_style": "path"},
        signature_version=UNSIGNED if anonymous else "s3v4",
        connect_timeout=5,
        read_timeout=60,
        retries={"max_attempts": 3, "mode": "standard"},
        max_pool_connections=32,
        # Trailing checksums travel as chunk framing, which some stores leave in the object (DESIGN, trap 6).
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    async with get_session().create_client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=settings.s3_access_key,
        aws_secret_access_key=secret.get_secret_value() if secret else None,
        config=config,
    ) as client:
        yield S3Bucket(client, bucket or settings.s3_bucket)


class S3Bucket:
    """One bucket. Implements `ports.Bucket`."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name

    async def objects(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        """Every object under `prefix`, a page of up to 1000 at a time."""
        token: dict[str, str] = {}
        while True:
            page = await self._call("list_objects_v2", Bucket=self.name, Prefix=prefix, MaxKeys=1000, **token)
            yield [_info_of(entry) for entry in page.get("Contents", [])]
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    async def directories(self, prefix: str) -> list[str]:
        """The names directly under `prefix` that hold objects."""
        _, names = await self.level(prefix)
        return names

    async def level(self, prefix: str) -> tuple[list[ObjectInfo], list[str]]:
        """One level of the tree: the objects directly under `prefix`, and the names of the folders there."""
        objects: list[ObjectInfo] = []
        names: list[str] = []
        token: dict[str, str] = {}
        while True:
            page = await self._call(
                "list_objects_v2", Bucket=self.name, Prefix=prefix, Delimiter="/", MaxKeys=1000, **token
            )
            objects.extend(_info_of(entry) for entry in page.get("Contents", []))
            names.extend(
                entry["Prefix"][len(prefix) :].rstrip("/") for entry in page.get("CommonPrefixes", [])
            )
            if not page.get("IsTruncated"):
                return objects, [name for name in names if name]
            token = {"ContinuationToken": page["NextContinuationToken"]}

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        """The object's bytes in [start, end). Nothing where the object ends before `start`."""
        if end is not None and end <= start:
            return b""
        extra = (
            {} if start == 0 and end is None else {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        )
        reply = await self._opened(key, extra)
        if reply is None:
            return b""
        try:
            async with reply["Body"] as body:
                return bytes(await body.read())
        except _BROKEN as error:
            raise BucketUnavailable(f"reading {key} broke off: {error}") from error

    async def stream(self, key: str, *, start: int = 0, chunk: int = 1 << 18) -> AsyncIterator[bytes]:
        """The object's bytes in pieces of up to `chunk`."""
        extra = {"Range": f"bytes={start}-"} if start else {}
        reply = await self._opened(key, extra)
        if reply is None:
            return
        try:
            async with reply["Body"] as body:
                while piece := await body.read(chunk):
                    yield piece
        except _BROKEN as error:
            raise BucketUnavailable(f"reading {key} broke off: {error}") from error

    async def head(self, key: str) -> ObjectInfo | None:
        """What is known of one object; None where there is none."""
        try:
            reply = await self._call("head_object", Bucket=self.name, Key=key)
        except NotFound:
            return None
        return ObjectInfo(key, reply["ContentLength"], reply["ETag"].strip('"'), reply.get("LastModified"))

    async def put(self, key: str, body: bytes, *, content_type: str | None = None) -> ObjectInfo:
        """Store an object whole."""
        extra = {"ContentType": content_type} if content_type else {}
        reply = await self._call("put_object", Bucket=self.name, Key=key, Body=body, **extra)
        return ObjectInfo(key, len(body), reply["ETag"].strip('"'))

    async def put_stream(
        self, key: str, body: AsyncIterator[bytes], *, content_type: str | None = None
    ) -> ObjectInfo:
        """Store an object in parts. An error on the way leaves no object and no parts behind."""
        held = bytearray()
        upload: str | None = None
        parts: list[dict[str, Any]] = []
        size = 0
        try:
            async for piece in body:
                held += piece
                size += len(piece)
                while len(held) >= PART_BYTES:
                    upload = upload or await self._start_upload(key, content_type)
                    parts.append(await self._put_part(key, upload, len(parts) + 1, bytes(held[:PART_BYTES])))
                    del held[:PART_BYTES]
            if upload is None:
                return await self.put(key, bytes(held), content_type=content_type)
            if held:
                parts.append(await self._put_part(key, upload, len(parts) + 1, bytes(held)))
            reply = await self._call(
                "complete_multipart_upload",
                Bucket=self.name,
                Key=key,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
            )
        except BaseException:
            if upload is not None:
                # A store that cannot be reached keeps the parts; what went wrong first is what the caller hears.
                with suppress(BucketUnavailable, NotFound):
                    await self._call("abort_multipart_upload", Bucket=self.name, Key=key, UploadId=upload)
            raise
        return ObjectInfo(key, size, reply["ETag"].strip('"'))

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, a thousand a call."""
        for start in range(0, len(keys), DELETE_BATCH):
            objects = [{"Key": key} for key in keys[start : start + DELETE_BATCH]]
            reply = await self._call(
                "delete_objects", Bucket=self.name, Delete={"Objects": objects, "Quiet": True}
            )
            for problem in reply.get("Errors", []):
                if problem.get("Code") not in _GONE:
                    raise BucketUnavailable(
                        f"S3 did not remove {problem.get('Key')}: {problem.get('Code')} {problem.get('Message')}"
                    )

    async def ensure(self) -> None:
        """Create the bucket if it is not there."""
        try:
            await self._call("head_bucket", Bucket=self.name)
        except NotFound:
            try:
                await self._client.create_bucket(Bucket=self.name)
            except ClientError as error:
                if error.response["Error"].get("Code") not in {
                    "BucketAlreadyOwnedByYou",
                    "BucketAlreadyExists",
                }:
                    raise BucketUnavailable(f"the bucket {self.name} cannot be created: {error}") from error

    async def _opened(self, key: str, extra: dict[str, str]) -> Any:
        """The reply to a read; None where it starts behind the object's end, which an empty object always does."""
        try:
            return await self._call("get_object", Bucket=self.name, Key=key, **extra)
        except BucketUnavailable as error:
            cause = error.__cause__
            if (
                isinstance(cause, ClientError)
                and str(cause.response.get("Error", {}).get("Code")) in _BEYOND_THE_END
            ):
                return None
            raise

    async def _start_upload(self, key: str, content_type: str | None) -> str:
        extra = {"ContentType": content_type} if content_type else {}
        reply = await self._call("create_multipart_upload", Bucket=self.name, Key=key, **extra)
        return str(reply["UploadId"])

    async def _put_part(self, key: str, upload: str, number: int, body: bytes) -> dict[str, Any]:
        reply = await self._call(
            "upload_part", Bucket=self.name, Key=key, UploadId=upload, PartNumber=number, Body=body
        )
        return {"PartNumber": number, "ETag": reply["ETag"]}

    async def _call(self, operation: str, **arguments: Any) -> Any:
        try:
            return await getattr(self._client, operation)(**arguments)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in _GONE:
                raise NotFound(
                    f"{arguments.get('Key', self.name)} is not in the bucket {self.name}"
                ) from error
            if code == _NO_BUCKET:
                raise BucketUnavailable(
                    f"the bucket {self.name} does not exist at {self._client.meta.endpoint_url}. "
                    "Run `cascade provision` to create it, or set CASCADE_S3_BUCKET to one that is there"
                ) from error
            raise BucketUnavailable(f"S3 refused {operation}: {error}") from error
        except _BROKEN as error:
            raise BucketUnavailable(f"S3 did not answer {operation}: {error}") from error


def _info_of(entry: dict[str, Any]) -> ObjectInfo:
    return ObjectInfo(
        entry["Key"], int(entry["Size"]), str(entry.get("ETag", "")).strip('"'), entry.get("LastModified")
    )
