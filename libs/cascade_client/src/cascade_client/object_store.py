"""The few S3 calls that an upload needs, on any S3 store. Translates types and errors; decides nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore import UNSIGNED
from botocore.exceptions import BotoCoreError, ClientError


class UploadError(Exception):
    """A trace could not be uploaded. The message says what was met and what to do."""


class StoreError(UploadError):
    """The store refused a request or could not be reached."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a listing says of one object."""

    size_bytes: int
    etag: str


class ObjectStore:
    """One bucket. Raises StoreError."""

    def __init__(self, client: Any, *, bucket: str, endpoint: str) -> None:
        self._client = client
        self._bucket = bucket
        self._endpoint = endpoint

    async def list_objects(self, prefix: str) -> Mapping[str, StoredObject]:
        """Every object whose key begins with `prefix`, all pages."""
        objects: dict[str, StoredObject] = {}
        token: dict[str, str] = {}
        while True:
            page = await self._call("list_objects_v2", Prefix=prefix, **token)
            for entry in page.get("Contents", []):
                objects[entry["Key"]] = StoredObject(entry["Size"], entry["ETag"].strip('"'))
            if not page.get("IsTruncated"):
                return objects
            token = {"ContinuationToken": page["NextContinuationToken"]}

    async def put(self, key: str, body: bytes, *, content_type: str) -> None:
        """Store `body` under `key`."""
        await self._call("put_object", Key=key, Body=body, ContentType=content_type)

    async def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""
        await self._call("delete_object", Key=key)

    async def put_file(
        self,
        key: str,
        source: Path,
        *,
        size_bytes: int,
        part_bytes: int,
        advanced: Callable[[int], None] | None = None,
    ) -> None:
        """Store a file, in parts of `part_bytes` if it is larger; `advanced` hears of each part. [bytes]"""
        with source.open("rb") as file:
            if size_bytes <= part_bytes:
                body = await asyncio.to_thread(file.read)
                await self._call("put_object", Key=key, Body=body)
                if advanced is not None:
                    advanced(len(body))
                return
            await self._put_parts(key, file, part_bytes=part_bytes, advanced=advanced)

    async def _put_parts(
        self, key: str, file: BinaryIO, *, part_bytes: int, advanced: Callable[[int], None] | None
    ) -> None:
        upload = await self._call("create_multipart_upload", Key=key)
        target = {"Key": key, "UploadId": upload["UploadId"]}
        parts: list[dict[str, object]] = []
        try:
            while part := await asyncio.to_thread(file.read, part_bytes):
                number = len(parts) + 1
                reply = await self._call("upload_part", PartNumber=number, Body=part, **target)
                parts.append({"PartNumber": number, "ETag": reply["ETag"]})
                if advanced is not None:
                    advanced(len(part))
            await self._call("complete_multipart_upload", MultipartUpload={"Parts": parts}, **target)
        except BaseException:
            # Parts of an abandoned upload take space that nobody sees.
            await asyncio.shield(self._abort(target))
            raise

    async def _abort(self, target: Mapping[str, str]) -> None:
        try:
            await self._call("abort_multipart_upload", **target)
        except StoreError:
            return  # the error that led here says more

    async def _call(self, operation: str, **arguments: object) -> Any:
        try:
            return await getattr(self._client, operation)(Bucket=self._bucket, **arguments)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "unknown error")
            raise StoreError(
                f"{self._endpoint} refused {operation} in bucket {self._bucket}: {code}{_hint(code)}"
            ) from error
        except (BotoCoreError, OSError, TimeoutError) as error:
            raise StoreError(f"{self._endpoint} cannot be reached: {error}") from error


@asynccontextmanager
async def open_store(
    *,
    endpoint: str,
    bucket: str,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    region: str = "us-east-1",
    addressing_style: str = "path",
) -> AsyncIterator[ObjectStore]:
    """A connection to one bucket. Without keys, requests are unsigned, whatever the environment holds.

    addressing_style: path, virtual or auto, as botocore knows them.
    """
    config = AioConfig(
        signature_version="s3v4" if access_key else UNSIGNED,
        s3={"addressing_style": addressing_style},
        retries={"max_attempts": 3, "mode": "standard"},
        connect_timeout=10,
        read_timeout=120,
        # Checksum trailers travel as chunk framing, which some stores leave in the object.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    async with get_session().create_client(
        "s3",
        endpoint_url=_checked(endpoint),
        region_name=region,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        aws_session_token=session_token,
        config=config,
    ) as client:
        yield ObjectStore(client, bucket=bucket, endpoint=endpoint)


def _checked(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise StoreError(f"{endpoint!r} is no S3 endpoint: give a URL such as http://127.0.0.1:9000")
    return endpoint


def _hint(code: str) -> str:
    match code:
        case "AccessDenied" | "403" | "InvalidAccessKeyId" | "SignatureDoesNotMatch":
            return " (set CASCADE_S3_ACCESS_KEY and CASCADE_S3_SECRET_KEY to keys that may write there)"
        case "NoSuchBucket":
            return " (create the bucket, or name another one with --bucket)"
        case _:
            return ""
