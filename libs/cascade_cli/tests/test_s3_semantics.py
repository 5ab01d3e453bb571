"""The embedded store keeps to the S3 that Cascade relies on."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import ClientError
from cascade_cli.embedded.s3 import EmbeddedS3
from cascade_cli.embedded.s3_requests import S3Access

HOSTILE_KEYS = [
    "plain/a.txt",
    "blank in name/ leading",
    "plus+plus/100%/%2F",
    "ünï/日本/😀",
    "star*/gt>/q?x=1&y/#frag",
    "dots/a..b/c.d",
    "quote\"/apostrophe'/semi;colon",
    "tilde~/(paren)/[bracket]/{brace}",
]


@pytest.fixture
async def client(bucket: S3Access) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(
            get_session().create_client(
                "s3",
                endpoint_url=bucket.endpoint,
                aws_access_key_id=bucket.access_key,
                aws_secret_access_key=bucket.secret_key,
                region_name="us-east-1",
                config=AioConfig(s3={"addressing_style": "path"}),
            )
        )


async def test_listing_follows_pages_past_a_thousand_keys(client: Any, bucket: S3Access) -> None:
    names = [f"traces/t{n:04d}.traceg" for n in range(1205)]
    for name in names:
        await client.put_object(Bucket=bucket.bucket, Key=name, Body=b"x")
    first = await client.list_objects_v2(Bucket=bucket.bucket, Prefix="traces/")
    assert (first["KeyCount"], first["IsTruncated"]) == (1000, True)
    second = await client.list_objects_v2(
        Bucket=bucket.bucket, Prefix="traces/", ContinuationToken=first["NextContinuationToken"]
    )
    assert not second["IsTruncated"]
    assert [one["Key"] for one in first["Contents"] + second["Contents"]] == names


async def test_a_delimiter_folds_directories_and_keeps_files(client: Any, bucket: S3Access) -> None:
    for key in ("p/a/1", "p/a/2", "p/b/1", "p/file", "q/other"):
        await client.put_object(Bucket=bucket.bucket, Key=key, Body=b"x")
    listing = await client.list_objects_v2(Bucket=bucket.bucket, Prefix="p/", Delimiter="/")
    assert [one["Prefix"] for one in listing["CommonPrefixes"]] == ["p/a/", "p/b/"]
    assert [one["Key"] for one in listing["Contents"]] == ["p/file"]


@pytest.mark.parametrize("key", HOSTILE_KEYS)
async def test_any_key_comes_back_as_it_was_given(client: Any, bucket: S3Access, key: str) -> None:
    await client.put_object(Bucket=bucket.bucket, Key=key, Body=b"body")
    listing = await client.list_objects_v2(Bucket=bucket.bucket)
    assert [one["Key"] for one in listing["Contents"]] == [key]
    got = await client.get_object(Bucket=bucket.bucket, Key=key)
    assert await got["Body"].read() == b"body"
    await client.delete_object(Bucket=bucket.bucket, Key=key)
    assert (await client.list_objects_v2(Bucket=bucket.bucket))["KeyCount"] == 0


@pytest.mark.parametrize("size", [0, 1, 100_000, 4 * 1024 * 1024 + 1, 20 * 1024 * 1024])
async def test_the_etag_of_a_single_put_is_its_md5_everywhere(
    client: Any, bucket: S3Access, size: int
) -> None:
    body = bytes(range(256)) * (size // 256) + b"z" * (size % 256)
    etag = f'"{hashlib.md5(body).hexdigest()}"'
    put = await client.put_object(Bucket=bucket.bucket, Key="k", Body=body)
    head = await client.head_object(Bucket=bucket.bucket, Key="k")
    (listed,) = (await client.list_objects_v2(Bucket=bucket.bucket))["Contents"]
    assert (put["ETag"], head["ETag"], listed["ETag"]) == (etag, etag, etag)
    assert (head["ContentLength"], listed["Size"]) == (size, size)
    got = await client.get_object(Bucket=bucket.bucket, Key="k")
    assert await got["Body"].read() == body


async def test_a_range_gives_exactly_those_bytes(client: Any, bucket: S3Access) -> None:
    body = bytes(n % 251 for n in range(9_000_000))  # several chunks inside the store
    await client.put_object(Bucket=bucket.bucket, Key="k", Body=body)
    for header, expected in (
        ("bytes=0-9", body[:10]),
        ("bytes=4194300-4194310", body[4194300:4194311]),
        ("bytes=8999990-", body[-10:]),
        ("bytes=-5", body[-5:]),
    ):
        got = await client.get_object(Bucket=bucket.bucket, Key="k", Range=header)
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
        assert await got["Body"].read() == expected
    with pytest.raises(ClientError, match=r"InvalidRange|416"):
        await client.get_object(Bucket=bucket.bucket, Key="k", Range="bytes=9000000-")


async def test_a_multipart_upload_is_one_object_once_completed_and_nothing_before(
    client: Any, bucket: S3Access
) -> None:
    parts = [b"a" * 5 * 1024 * 1024, b"b" * 5 * 1024 * 1024, b"tail"]
    upload = await client.create_multipart_upload(Bucket=bucket.bucket, Key="big")
    done = []
    for number, part in enumerate(parts, start=1):
        answer = await client.upload_part(
            Bucket=bucket.bucket, Key="big", UploadId=upload["UploadId"], PartNumber=number, Body=part
        )
        done.append({"PartNumber": number, "ETag": answer["ETag"]})
    assert (await client.list_objects_v2(Bucket=bucket.bucket))["KeyCount"] == 0
    completed = await client.complete_multipart_upload(
        Bucket=bucket.bucket, Key="big", UploadId=upload["UploadId"], MultipartUpload={"Parts": done}
    )
    digest = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest()
    assert completed["ETag"] == f'"{digest}-3"'
    got = await client.get_object(Bucket=bucket.bucket, Key="big")
    assert await got["Body"].read() == b"".join(parts)
    aborted = await client.create_multipart_upload(Bucket=bucket.bucket, Key="other")
    await client.abort_multipart_upload(Bucket=bucket.bucket, Key="other", UploadId=aborted["UploadId"])
    assert (await client.list_objects_v2(Bucket=bucket.bucket))["KeyCount"] == 1


async def test_what_is_missing_is_said_to_be_missing(client: Any, bucket: S3Access) -> None:
    with pytest.raises(ClientError, match="NoSuchKey"):
        await client.get_object(Bucket=bucket.bucket, Key="none")
    with pytest.raises(ClientError, match="404"):
        await client.head_object(Bucket=bucket.bucket, Key="none")
    await client.delete_object(Bucket=bucket.bucket, Key="none")  # deleting nothing is no error
    with pytest.raises(ClientError, match="NoSuchBucket"):
        await client.list_objects_v2(Bucket="no-such-bucket")


async def test_a_key_may_be_both_an_object_and_a_prefix(client: Any, bucket: S3Access) -> None:
    await client.put_object(Bucket=bucket.bucket, Key="a", Body=b"file")
    await client.put_object(Bucket=bucket.bucket, Key="a/b", Body=b"below")
    keys = [one["Key"] for one in (await client.list_objects_v2(Bucket=bucket.bucket))["Contents"]]
    assert "a/b" in keys


async def test_a_directory_marker_is_listed_as_an_empty_object(client: Any, bucket: S3Access) -> None:
    await client.put_object(Bucket=bucket.bucket, Key="dir/", Body=b"")
    listing = await client.list_objects_v2(Bucket=bucket.bucket)
    assert [(one["Key"], one["Size"]) for one in listing["Contents"]] == [("dir/", 0)]


async def test_without_credentials_only_the_upload_bucket_is_open(
    s3_server: EmbeddedS3, bucket: S3Access
) -> None:
    access = s3_server.access
    async with httpx.AsyncClient(base_url=access.endpoint, timeout=60) as anyone:
        path = f"/{access.bucket}/{quote('up load/ü+%')}"
        assert (await anyone.put(path, content=b"trace")).status_code == 200
        assert (await anyone.get(path)).content == b"trace"
        assert (await anyone.head(path)).headers["content-length"] == "5"
        assert (await anyone.get(f"/{access.bucket}?list-type=2")).status_code == 200
        assert (await anyone.post(f"{path}?uploads")).status_code == 200
        assert (await anyone.delete(path)).status_code == 204
        for closed in (access.internal_bucket, bucket.bucket):
            assert (await anyone.put(f"/{closed}/k", content=b"x")).status_code == 403
            assert (await anyone.get(f"/{closed}?list-type=2")).status_code == 403
        assert (await anyone.put("/new-bucket")).status_code == 403
