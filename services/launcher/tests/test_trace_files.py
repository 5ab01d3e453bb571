import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cascade_core.errors import BucketUnavailable, NotFound
from cascade_core.ports import ObjectInfo
from cascade_core.s3.bucket import S3Bucket
from cascade_launcher import trace_files
from cascade_launcher.backends.protocol import LaunchError
from cascade_launcher.testing import PREFIX, TRACE_ID, eventually
from cascade_launcher.trace_files import materialise

KEY_PREFIX = f"{PREFIX}/{TRACE_ID}/"


class BreakingBucket:
    """The real bucket, whose streams of kernel-2 break off after `bytes_` bytes for the first `times`
    calls."""

    def __init__(self, real: S3Bucket, *, bytes_: int, times: int) -> None:
        self.real = real
        self.bytes_ = bytes_
        self.times = times
        self.starts: list[tuple[str, int]] = []
        self.garble: set[str] = set()

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    async def stream(self, key: str, *, start: int = 0, chunk: int = 1 << 18) -> AsyncIterator[bytes]:
        self.starts.append((key, start))
        sent = 0
        breaks = self.times > 0 and "kernel-2" in key
        if breaks:
            self.times -= 1
        async for piece in self.real.stream(key, start=start, chunk=self.bytes_ or chunk):
            if breaks and sent + len(piece) > self.bytes_:
                raise BucketUnavailable(f"reading {key} broke off")
            yield piece[::-1] if key in self.garble else piece
            sent += len(piece)
            self.garble.discard(key)


async def fetch(bucket: object, tmp_path: Path) -> Path:
    directory = tmp_path / "trace"
    await materialise(bucket, prefix=KEY_PREFIX, directory=directory, index_path=tmp_path / "index.json")  # type: ignore[arg-type]
    return directory


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


async def test_the_trace_lies_on_disk_as_in_the_bucket(traces: S3Bucket, tmp_path: Path) -> None:
    directory = await fetch(traces, tmp_path)
    assert tree(directory) == {
        "metadata.json": b"{}",
        "traces/kernel-1.traceg": b"-kernel name = a\n" * 100,
        "traces/kernelslist.g": b"kernel-1.traceg\n",
    }


async def test_a_second_run_fetches_nothing(traces: S3Bucket, tmp_path: Path) -> None:
    await fetch(traces, tmp_path)
    again = BreakingBucket(traces, bytes_=0, times=0)
    await fetch(again, tmp_path)
    assert again.starts == []


async def test_a_broken_download_goes_on_where_it_stood(traces: S3Bucket, tmp_path: Path) -> None:
    await traces.put(f"{KEY_PREFIX}traces/kernel-2.traceg", bytes(range(256)) * 40)
    breaking = BreakingBucket(traces, bytes_=4000, times=2)
    directory = await fetch(breaking, tmp_path)
    assert (directory / "traces/kernel-2.traceg").read_bytes() == bytes(range(256)) * 40
    assert any(start > 0 for _, start in breaking.starts)
    assert not [name for name in tree(directory) if ".part-" in name]


async def test_what_was_fetched_before_an_outage_is_kept(traces: S3Bucket, tmp_path: Path) -> None:
    await traces.put(f"{KEY_PREFIX}traces/kernel-2.traceg", b"x" * 10_000)
    with pytest.raises(BucketUnavailable):
        await fetch(BreakingBucket(traces, bytes_=1000, times=100), tmp_path)
    back = BreakingBucket(traces, bytes_=0, times=0)
    await fetch(back, tmp_path)
    assert dict(back.starts)[f"{KEY_PREFIX}traces/kernel-2.traceg"] > 0


async def test_what_was_fetched_before_a_kill_is_kept(
    traces: S3Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_files, "INDEX_EVERY_S", 0.0)
    monkeypatch.setattr(trace_files, "DOWNLOADS_AT_ONCE", 1)
    left_behind = tmp_path / "as-a-kill-leaves-it"

    class Killed(BreakingBucket):
        async def stream(self, key: str, *, start: int = 0, chunk: int = 1 << 18) -> AsyncIterator[bytes]:
            if len(self.starts) == 2:
                (tmp_path / "index.json").rename(left_behind)
                await asyncio.Event().wait()
            async for piece in super().stream(key, start=start, chunk=chunk):
                yield piece

    fetching = asyncio.create_task(fetch(Killed(traces, bytes_=0, times=0), tmp_path))
    await eventually(left_behind.exists)
    fetching.cancel()
    await asyncio.wait([fetching])
    left_behind.rename(tmp_path / "index.json")  # nothing that an orderly end wrote
    again = BreakingBucket(traces, bytes_=0, times=0)
    await fetch(again, tmp_path)
    assert len(again.starts) == 1


async def test_an_overwritten_object_of_the_same_size_is_fetched_again(
    traces: S3Bucket, tmp_path: Path
) -> None:
    directory = await fetch(traces, tmp_path)
    await traces.put(f"{KEY_PREFIX}traces/kernelslist.g", b"kernel-9.traceg\n")
    await fetch(traces, tmp_path)
    assert (directory / "traces/kernelslist.g").read_bytes() == b"kernel-9.traceg\n"


async def test_a_file_that_was_cut_on_disk_is_fetched_again(traces: S3Bucket, tmp_path: Path) -> None:
    directory = await fetch(traces, tmp_path)
    (directory / "traces/kernel-1.traceg").write_bytes(b"cut")
    await fetch(traces, tmp_path)
    assert (directory / "traces/kernel-1.traceg").read_bytes() == b"-kernel name = a\n" * 100


async def test_bytes_that_changed_on_the_way_are_noticed(traces: S3Bucket, tmp_path: Path) -> None:
    garbling = BreakingBucket(traces, bytes_=0, times=0)
    garbling.garble.add(f"{KEY_PREFIX}traces/kernel-1.traceg")
    directory = await fetch(garbling, tmp_path)
    assert (directory / "traces/kernel-1.traceg").read_bytes() == b"-kernel name = a\n" * 100


async def test_an_etag_that_is_no_checksum_is_accepted_once_the_bytes_agree(
    traces: S3Bucket, tmp_path: Path
) -> None:
    class OddEtags(BreakingBucket):
        async def objects(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
            async for page in self.real.objects(prefix):
                yield [
                    ObjectInfo(one.key, one.size, hashlib.md5(one.key.encode()).hexdigest()) for one in page
                ]

    directory = await fetch(OddEtags(traces, bytes_=0, times=0), tmp_path)
    assert (directory / "metadata.json").read_bytes() == b"{}"


async def test_an_object_removed_before_the_download_that_settles_its_etag_is_left_out(
    traces: S3Bucket, tmp_path: Path
) -> None:
    key = f"{KEY_PREFIX}metadata.json"

    class RemovedAfterTwo(BreakingBucket):
        async def objects(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
            async for page in self.real.objects(prefix):
                yield [ObjectInfo(one.key, one.size, "0" * 32) if one.key == key else one for one in page]

        async def stream(self, key: str, *, start: int = 0, chunk: int = 1 << 18) -> AsyncIterator[bytes]:
            async for piece in super().stream(key, start=start, chunk=chunk):
                yield piece
            if self.starts.count((key, 0)) == 2 and key.endswith("metadata.json"):
                await self.real.delete([key])

    directory = await fetch(RemovedAfterTwo(traces, bytes_=0, times=0), tmp_path)
    assert sorted(tree(directory)) == ["traces/kernel-1.traceg", "traces/kernelslist.g"]


async def test_a_bucket_that_says_it_is_not_there_fails_the_run_and_not_the_launcher(
    traces: S3Bucket, tmp_path: Path
) -> None:
    class Nowhere(BreakingBucket):
        async def objects(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
            if prefix:
                raise NotFound("no-such-bucket is not in the bucket no-such-bucket")
            yield []

    with pytest.raises(LaunchError, match=r"^launcher prepare: .*CASCADE_S3_BUCKET"):
        await fetch(Nowhere(traces, bytes_=0, times=0), tmp_path)


async def test_a_bucket_that_does_not_exist_may_still_be_made(traces: S3Bucket, tmp_path: Path) -> None:
    missing = S3Bucket(traces._client, "launcher-no-such-bucket")
    with pytest.raises(BucketUnavailable, match="launcher-no-such-bucket"):
        await fetch(missing, tmp_path)


async def test_a_file_that_left_the_bucket_leaves_the_disk(traces: S3Bucket, tmp_path: Path) -> None:
    await traces.put(f"{KEY_PREFIX}kernel_mapping.json", b"[]")
    directory = await fetch(traces, tmp_path)
    await traces.delete([f"{KEY_PREFIX}kernel_mapping.json"])
    await fetch(traces, tmp_path)
    assert "kernel_mapping.json" not in tree(directory)


async def test_hostile_keys_and_directory_markers_are_left_out(traces: S3Bucket, tmp_path: Path) -> None:
    await traces.put(f"{KEY_PREFIX}traces/.DS_Store", b"x")
    await traces.put(f"{KEY_PREFIX}empty", b"")
    directory = await fetch(traces, tmp_path)
    assert sorted(tree(directory)) == [
        "empty",
        "metadata.json",
        "traces/kernel-1.traceg",
        "traces/kernelslist.g",
    ]


async def test_a_trace_without_a_kernel_list_cannot_be_prepared(traces: S3Bucket, tmp_path: Path) -> None:
    await traces.delete([f"{KEY_PREFIX}traces/kernelslist.g"])
    with pytest.raises(LaunchError, match=r"launcher prepare: traces/kernelslist\.g not found"):
        await fetch(traces, tmp_path)


async def test_a_directory_that_cannot_be_written_is_a_clear_error(traces: S3Bucket, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("a file where the directory should be")
    with pytest.raises(LaunchError, match="launcher prepare: the trace cannot be stored in"):
        await fetch(traces, tmp_path)


async def test_two_runs_of_one_trace_fetch_it_once(traces: S3Bucket, tmp_path: Path) -> None:
    counting = BreakingBucket(traces, bytes_=0, times=0)
    await asyncio.gather(*(fetch(counting, tmp_path) for _ in range(3)))
    assert len(counting.starts) == 3  # one a file
