"""A bucket in memory, for tests with more objects than a server would take in quickly. Passes the real one's suite."""

import asyncio
import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence

from cascade_core.errors import NotFound
from cascade_core.ports import ObjectInfo

PAGE = 1000


class MemoryBucket:
    """Implements `ports.Bucket`. `calls` counts what was asked of it, `read` what was read of each object."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self._objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self._sorted: list[str] | None = None

    async def objects(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        """See `ports.Bucket.objects`."""
        keys = self._keys(prefix)
        for start in range(0, max(len(keys), 1), PAGE):
            self.calls["list"] += 1
            await asyncio.sleep(0)
            yield [self._objects[key][1] for key in keys[start : start + PAGE] if key in self._objects]

    async def directories(self, prefix: str) -> list[str]:
        """See `ports.Bucket.directories`."""
        _, names = await self.level(prefix)
        return names

    async def level(self, prefix: str) -> tuple[list[ObjectInfo], list[str]]:
        """See `ports.Bucket.level`."""
        self.calls["level"] += 1
        await asyncio.sleep(0)
        objects: list[ObjectInfo] = []
        names: list[str] = []
        for key in self._keys(prefix):
            name, slash, _ = key.removeprefix(prefix).partition("/")
            if not slash:
                objects.append(self._objects[key][1])
            elif name and (not names or names[-1] != name):
                names.append(name)
        return objects, names

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        """See `ports.Bucket.get`."""
        self.calls["get"] += 1
        self.read[key] += 1
        await asyncio.sleep(0)
        return self._body(key)[start : max(end, start) if end is not None else None]

    async def stream(self, key: str, *, start: int = 0, chunk: int = 1 << 18) -> AsyncIterator[bytes]:
        """See `ports.Bucket.stream`."""
        self.calls["get"] += 1
        self.read[key] += 1
        body = self._body(key)
        for at in range(start, len(body), chunk):
            await asyncio.sleep(0)
            yield body[at : at + chunk]

    async def head(self, key: str) -> ObjectInfo | None:
        """See `ports.Bucket.head`."""
        self.calls["head"] += 1
        found = self._objects.get(key)
        return found[1] if found else None

    async def put(self, key: str, body: bytes, *, content_type: str | None = None) -> ObjectInfo:
        """See `ports.Bucket.put`."""
        del content_type
        self.calls["put"] += 1
        await asyncio.sleep(0)
        info = ObjectInfo(key, len(body), _etag(body))
        if key not in self._objects:
            self._sorted = None
        self._objects[key] = (body, info)
        return info

    def fill(self, contents: Mapping[str, bytes]) -> None:
        """Put many objects at once."""
        for key, body in contents.items():
            self._objects[key] = (body, ObjectInfo(key, len(body), _etag(body)))
        self._sorted = None

    async def put_stream(
        self, key: str, body: AsyncIterator[bytes], *, content_type: str | None = None
    ) -> ObjectInfo:
        """See `ports.Bucket.put_stream`."""
        return await self.put(key, b"".join([piece async for piece in body]), content_type=content_type)

    async def delete(self, keys: Sequence[str]) -> None:
        """See `ports.Bucket.delete`."""
        self.calls["delete"] += 1
        for key in keys:
            self._objects.pop(key, None)
        self._sorted = None

    def _body(self, key: str) -> bytes:
        if key not in self._objects:
            raise NotFound(f"{key} is not in the bucket")
        return self._objects[key][0]

    def _keys(self, prefix: str) -> list[str]:
        if self._sorted is None:
            self._sorted = sorted(self._objects, key=str.encode)
        first = bisect_left(self._sorted, prefix.encode(), key=str.encode)
        found = []
        for key in self._sorted[first:]:
            if not key.startswith(prefix):
                break
            found.append(key)
        return found


def _etag(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()
