"""The contract of the bucket, held by the one in memory and by the one on a real S3 server."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from cascade_cli.embedded.s3_requests import S3Access
from cascade_core.errors import BucketUnavailable
from cascade_core.ports import Bucket
from cascade_core.s3.bucket import S3Bucket, opened
from cascade_core.settings import BucketSettings
from cascade_core.testing.bucket_contract import BucketContract
from cascade_core.testing.memory_bucket import MemoryBucket
from pydantic import SecretStr


def settings_of(access: S3Access) -> BucketSettings:
    return BucketSettings(
        s3_endpoint=access.endpoint,
        s3_bucket=access.bucket,
        s3_access_key=access.access_key,
        s3_secret_key=SecretStr(access.secret_key) if access.secret_key else None,
    )


@pytest.fixture
async def s3(bucket: S3Access) -> AsyncIterator[S3Bucket]:
    async with opened(settings_of(bucket)) as store:
        yield store


class TestMemoryBucket(BucketContract):
    @pytest.fixture
    def store(self) -> Bucket:
        return MemoryBucket()


class TestS3Bucket(BucketContract):
    @pytest.fixture
    def store(self, s3: S3Bucket) -> Bucket:
        return s3


async def test_an_upload_that_breaks_off_leaves_no_parts_behind(s3: S3Bucket) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 1024 * 1024
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await s3.put_stream("a", breaking())
    uploads = await s3._client.list_multipart_uploads(Bucket=s3.name)
    assert uploads.get("Uploads", []) == []


async def test_an_object_carries_no_chunk_framing(s3: S3Bucket) -> None:
    await s3.put("a", b"1024;chunk-signature")
    await s3.put_stream("b", one(b"x" * (9 * 1024 * 1024)))
    assert await s3.get("a") == b"1024;chunk-signature"
    head = await s3.head("b")
    assert head is not None
    assert head.size == 9 * 1024 * 1024


async def one(piece: bytes) -> AsyncIterator[bytes]:
    yield piece


async def test_a_bucket_is_made_once(bucket: S3Access) -> None:
    async with opened(settings_of(bucket), bucket=f"{bucket.bucket}-made") as store:
        await store.ensure()
        await store.ensure()
        await store.put("a", b"x")
        await store.delete(["a"])
        await store._client.delete_bucket(Bucket=store.name)


async def test_a_bucket_that_is_not_there_is_unavailable(bucket: S3Access) -> None:
    async with opened(settings_of(bucket), bucket="no-such-bucket") as store:
        for asked in (
            store.get("a"),
            store.level(""),
            store.put("a", b"x"),
            store.put_stream("a", one(b"x" * (9 * 1024 * 1024))),
        ):
            with pytest.raises(
                BucketUnavailable, match=f"no-such-bucket does not exist at {bucket.endpoint}"
            ):
                await asked
        assert await store.head("a") is None  # a HEAD has no body that would tell the difference


async def test_a_store_that_cannot_be_reached_is_unavailable(bucket: S3Access) -> None:
    nowhere = replace(bucket, endpoint="http://127.0.0.1:9")
    async with opened(settings_of(nowhere)) as store:
        with pytest.raises(BucketUnavailable, match="did not answer"):
            await asyncio.gather(
                store.get("a"), store.put_stream("a", one(b"x")), store.head("a"), store.level("")
            )


async def test_wrong_keys_are_refused_in_words(bucket: S3Access) -> None:
    async with opened(settings_of(replace(bucket, secret_key="wrong"))) as store:
        with pytest.raises(BucketUnavailable, match="refused list_objects_v2"):
            await store.level("")
