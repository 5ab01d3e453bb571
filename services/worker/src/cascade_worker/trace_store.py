"""The bucket as a download sees it: facts about an object, and its bytes from some position on.

Translates aiobotocore's types and errors; decides nothing.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore import UNSIGNED
from botocore.exceptions import BotoCoreError, ClientError

from cascade_worker.errors import TraceDownloadError
from cascade_worker.settings import WorkerSettings

_PIECE_BYTES = 256 * 1024
_MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
_CHANGED = frozenset({"412", "PreconditionFailed", "416", "InvalidRange"})


class StoreUnavailableError(Exception):
    """The bucket could not be reached, broke off, or the object changed meanwhile: worth another try."""


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """What the store says of one object."""

    size_bytes: int
    etag: str
    """Without its quotes."""
    etag_is_checksum: bool
    """False for an encrypted object, whose ETag says nothing about its content."""


class TraceStore:
    """The objects below one trace's prefix. Raises StoreUnavailableError and TraceDownloadError."""

    def __init__(self, client: Any, *, bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix
        self.uri = f"s3://{bucket}/{prefix}"

    async def head(self, path: str) -> ObjectFacts | None:
        """Facts about the object, or None if there is none."""
        try:
            reply = await self._client.head_object(Bucket=self._bucket, Key=self._prefix + path)
        except ClientError as error:
            if _code(error) in _MISSING:
                return None
            raise self._translated(error) from error
        except (BotoCoreError, OSError, TimeoutError) as error:
            raise StoreUnavailableError(str(error)) from error
        encryption = reply.get("ServerSideEncryption", "")
        return ObjectFacts(
            size_bytes=reply["ContentLength"],
            etag=reply["ETag"].strip('"'),
            etag_is_checksum=encryption in ("", "AES256") and "SSECustomerAlgorithm" not in reply,
        )

    async def read(self, path: str, *, start: int, etag: str) -> AsyncIterator[bytes]:
        """The object's bytes from `start` on, if it is still the version with this ETag. [bytes]"""
        try:
            reply = await self._client.get_object(
                Bucket=self._bucket, Key=self._prefix + path, Range=f"bytes={start}-", IfMatch=f'"{etag}"'
            )
            async with reply["Body"] as body:
                while piece := await body.read(_PIECE_BYTES):
                    yield piece
        except ClientError as error:
            raise self._translated(error) from error
        # aiobotocore lets aiohttp's error for a body that ends early through.
        except (BotoCoreError, aiohttp.ClientError, OSError, TimeoutError) as error:
            raise StoreUnavailableError(f"broke off: {error}") from error

    def _translated(self, error: ClientError) -> Exception:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        if status >= 500 or _code(error) in _CHANGED or status in (412, 416):
            return StoreUnavailableError(_code(error))
        return TraceDownloadError(
            f"{self.uri} was refused with {_code(error)}: check CASCADE_S3_ACCESS_KEY, CASCADE_S3_SECRET_KEY and "
            "the bucket's name"
        )


@asynccontextmanager
async def open_trace_store(
    settings: WorkerSettings, *, bucket: str, prefix: str
) -> AsyncIterator[TraceStore]:
    """A connection to the bucket of `settings`. Without keys, requests are unsigned."""
    access_key, secret_key = settings.s3_access_key, settings.s3_secret_key
    config = AioConfig(
        signature_version="s3v4" if access_key else UNSIGNED,
        s3={"addressing_style": "path"},
        retries={"max_attempts": 3, "mode": "standard"},
        connect_timeout=10,
        read_timeout=60,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    async with get_session().create_client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=access_key.get_secret_value() if access_key else None,
        aws_secret_access_key=secret_key.get_secret_value() if secret_key else None,
        config=config,
    ) as client:
        yield TraceStore(client, bucket=bucket, prefix=prefix)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "an unknown error"))
