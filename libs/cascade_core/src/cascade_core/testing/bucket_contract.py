"""What every Bucket does, real or in memory: one suite, run by both.

A test class inherits from `BucketContract` and gives it a fixture `store`, an empty bucket for each test.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from cascade_core.errors import NotFound
from cascade_core.ports import Bucket

MIB = 1024 * 1024
# Keys that break who puts keys into paths, URLs or XML without care. No backslash: SeaweedFS takes it for a slash.
HOSTILE_KEYS = [
    "t/a b",
    "t/a+b",
    "t/a%20b",
    "t/a%2Fb",
    "t/caf\u00e9",
    "t/cafe\u0301",
    "t/\U0001f680",
    "t/a&b<c>'\"",
    "t/a?b#c",
    "t/a=b;c,d:e@f$",
    "t/(1) [2] {3}",
    "t/~tilde",
    "t/a*b",
    "t/UPPER",
    "t/upper",
    "t/" + "n" * 200,
]


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    """An upload in parts."""
    for part in parts:
        yield part


async def keys_under(store: Bucket, prefix: str) -> list[str]:
    """Every key below `prefix`, in the order of the listing."""
    return [entry.key async for page in store.objects(prefix) for entry in page]


class BucketContract:
    """Given, when, then, for any bucket."""

    async def test_what_was_put_is_there(self, store: Bucket) -> None:
        info = await store.put("a/b.txt", b"hello", content_type="text/plain")
        assert (info.key, info.size) == ("a/b.txt", 5)
        assert info.etag
        assert await store.get("a/b.txt") == b"hello"
        head = await store.head("a/b.txt")
        assert head is not None
        assert (head.key, head.size, head.etag) == ("a/b.txt", 5, info.etag)

    async def test_nothing_is_where_nothing_was_put(self, store: Bucket) -> None:
        assert await store.head("no") is None
        assert await keys_under(store, "") == []
        assert await store.level("a/") == ([], [])
        assert await store.directories("a/") == []
        with pytest.raises(NotFound):
            await store.get("no")
        with pytest.raises(NotFound):
            [piece async for piece in store.stream("no")]
        await store.delete(["no", "neither"])

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [
            (0, None, b"0123456789"),
            (0, 4, b"0123"),
            (3, 7, b"3456"),
            (7, None, b"789"),
            (7, 99, b"789"),
            (9, 10, b"9"),
            (10, None, b""),
            (10, 12, b""),
            (99, None, b""),
            (5, 5, b""),
            (5, 2, b""),
        ],
    )
    async def test_a_range_is_read_up_to_its_end(
        self, store: Bucket, start: int, end: int | None, expected: bytes
    ) -> None:
        await store.put("a", b"0123456789")
        assert await store.get("a", start=start, end=end) == expected

    async def test_an_empty_object_is_an_object(self, store: Bucket) -> None:
        await store.put("empty", b"")
        assert await store.get("empty") == b""
        assert await store.get("empty", end=100) == b""
        assert [piece async for piece in store.stream("empty")] == []
        assert [piece async for piece in store.stream("empty", start=5)] == []
        head = await store.head("empty")
        assert head is not None
        assert head.size == 0

    async def test_an_object_is_streamed_in_pieces(self, store: Bucket) -> None:
        body = bytes(range(256)) * 4096
        await store.put("a", body)
        streamed = [piece async for piece in store.stream("a", chunk=1 << 16)]
        assert b"".join(streamed) == body
        assert all(0 < len(piece) <= 1 << 16 for piece in streamed)
        assert b"".join([piece async for piece in store.stream("a", start=1_000_000)]) == body[1_000_000:]

    async def test_a_put_replaces_and_changes_the_etag(self, store: Bucket) -> None:
        one = await store.put("a", b"first")
        other = await store.put("a", b"secnd")
        assert one.size == other.size
        assert one.etag != other.etag
        listed = [entry async for page in store.objects("") for entry in page]
        assert [(entry.key, entry.size, entry.etag) for entry in listed] == [("a", 5, other.etag)]

    @pytest.mark.parametrize("size", [0, 1, 8 * MIB, 8 * MIB + 1, 17 * MIB])
    async def test_an_upload_in_parts_is_one_object(self, store: Bucket, size: int) -> None:
        part = b"x" * (3 * MIB)
        parts = [part] * (size // len(part)) + [b"y" * (size % len(part))]
        info = await store.put_stream("big", pieces(*parts), content_type="text/plain")
        assert info.size == size
        head = await store.head("big")
        assert head is not None
        assert (head.size, head.etag) == (size, info.etag)
        assert await store.get("big") == b"".join(parts)

    @pytest.mark.parametrize("before", [0, 20])
    async def test_an_upload_that_breaks_off_leaves_what_was_there(self, store: Bucket, before: int) -> None:
        await store.put("a", b"old")

        async def breaking() -> AsyncIterator[bytes]:
            for _ in range(before):
                yield b"x" * MIB
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await store.put_stream("a", breaking())
        assert await store.get("a") == b"old"
        assert await keys_under(store, "") == ["a"]

    async def test_an_upload_that_is_cancelled_leaves_nothing(self, store: Bucket) -> None:
        sent = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(10):
                yield b"x" * MIB
            sent.set()
            await asyncio.Event().wait()

        upload = asyncio.create_task(store.put_stream("a", endless()))
        await sent.wait()
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert await store.head("a") is None

    async def test_a_listing_goes_on_past_a_thousand_keys(self, store: Bucket) -> None:
        keys = [f"t/kernel-{i}.trace.xz" for i in range(1, 1206)]
        gate = asyncio.Semaphore(16)

        async def put(key: str) -> None:
            async with gate:
                await store.put(key, b"x")

        await asyncio.gather(*(put(key) for key in keys), put("u/other"))
        pages = [page async for page in store.objects("t/")]
        assert len(pages) == 2
        assert [entry.key for page in pages for entry in page] == sorted(keys)
        objects, folders = await store.level("t/")
        assert (len(objects), folders) == (1205, [])
        await store.delete(keys)
        assert await keys_under(store, "") == ["u/other"]

    async def test_folders_are_counted_past_a_thousand(self, store: Bucket) -> None:
        gate = asyncio.Semaphore(16)

        async def put(key: str) -> None:
            async with gate:
                await store.put(key, b"x")

        await asyncio.gather(*(put(f"p/t{i}/metadata.json") for i in range(1100)))
        assert sorted(await store.directories("p/")) == sorted(f"t{i}" for i in range(1100))

    async def test_one_level_shows_objects_and_folders(self, store: Bucket) -> None:
        for key in ("p/a.txt", "p/b/c", "p/b/d/e", "p/f/", "p/g/.hidden", "q/x", "pa"):
            await store.put(key, b"x")
        objects, folders = await store.level("p/")
        assert [entry.key for entry in objects] == ["p/a.txt"]
        assert folders == ["b", "f", "g"]
        assert await store.directories("p/") == ["b", "f", "g"]
        assert await store.directories("") == ["p", "q"]

    @pytest.mark.parametrize("key", HOSTILE_KEYS)
    async def test_a_key_may_hold_anything_a_name_may(self, store: Bucket, key: str) -> None:
        await store.put(key, key.encode())
        assert await store.get(key) == key.encode()
        assert await keys_under(store, "t/") == [key]
        head = await store.head(key)
        assert head is not None
        await store.put(f"p/{key.removeprefix('t/')}/x", b"")
        assert await store.directories("p/") == [key.removeprefix("t/")]
        await store.delete([key])
        assert await keys_under(store, "t/") == []

    async def test_hostile_keys_do_not_meet(self, store: Bucket) -> None:
        for key in HOSTILE_KEYS:
            await store.put(key, key.encode())
        assert sorted(await keys_under(store, "t/")) == sorted(HOSTILE_KEYS)
        for key in HOSTILE_KEYS:
            assert await store.get(key) == key.encode()
