"""An estimate is computed once, and so is the reason why there is none."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from cascade_api.estimates import store
from cascade_api.estimates.store import ConfigFiles, EstimateFailed, EstimateStore
from cascade_cli.embedded.s3 import EmbeddedS3
from cascade_core.s3 import bucket as s3
from cascade_core.s3.bucket import S3Bucket
from cascade_core.settings import BucketSettings


class Counted(EstimateStore):
    """Counts how often a trace was fetched and computed."""

    computed = 0

    async def _compute(self, *asked: object) -> bytes:
        self.computed += 1
        return await super()._compute(*asked)  # type: ignore[arg-type]  # passed on as they came


@pytest.fixture
def config(tmp_path: Path) -> ConfigFiles:
    (tmp_path / "gpgpusim.config").write_text("-gpgpu_n_clusters 1\n")
    return ConfigFiles(tmp_path / "gpgpusim.config", tmp_path / "trace.config")


@pytest.fixture
def with_store(s3_server: EmbeddedS3) -> Callable[[Callable[[Counted, S3Bucket], Awaitable[None]]], None]:
    """Runs work on an empty store and its bucket."""

    def run(work: Callable[[Counted, S3Bucket], Awaitable[None]]) -> None:
        async def open_and_work() -> None:
            access = s3_server.access
            settings = BucketSettings(
                s3_endpoint=access.endpoint, s3_access_key=access.access_key, s3_secret_key=access.secret_key
            )
            async with s3.opened(settings) as bucket:
                await bucket.ensure()
                await work(Counted(bucket, bucket, prefix=f"t-{secrets.token_hex(4)}"), bucket)

        asyncio.run(open_and_work())

    return run


async def put_trace(bucket: S3Bucket, estimates: EstimateStore, text: bytes) -> None:
    await bucket.put(f"{estimates._prefix}/t/traces/kernelslist.g", text)


def test_a_trace_that_cannot_be_estimated_is_tried_once_until_it_changes(
    with_store: Callable[..., None], config: ConfigFiles
) -> None:
    async def ask_again_and_again(estimates: Counted, bucket: S3Bucket) -> None:
        await put_trace(bucket, estimates, secrets.token_bytes(8))
        reasons = set()
        for _ in range(3):
            with pytest.raises(EstimateFailed) as failed:
                await estimates.kernels("t", config, within_s=60)
            reasons.add(failed.value.detail)
        assert (estimates.computed, len(reasons)) == (1, 1)
        await put_trace(bucket, estimates, secrets.token_bytes(8))
        with pytest.raises(EstimateFailed):
            await estimates.kernels("t", config, within_s=60)
        assert estimates.computed == 2

    with_store(ask_again_and_again)


def test_a_failure_that_nobody_waited_for_is_known_to_the_next_who_asks(
    with_store: Callable[..., None], config: ConfigFiles
) -> None:
    async def leave_and_come_back(estimates: Counted, bucket: S3Bucket) -> None:
        await put_trace(bucket, estimates, secrets.token_bytes(8))
        assert await estimates.kernels("t", config, within_s=0) is None
        await asyncio.wait(estimates._running.values())
        with pytest.raises(EstimateFailed):
            await estimates.kernels("t", config, within_s=60)
        assert estimates.computed == 1

    with_store(leave_and_come_back)


def test_an_estimate_that_takes_too_long_is_given_up_for_good(
    with_store: Callable[..., None], config: ConfigFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "COMPUTE_TIMEOUT_S", 0.0)

    async def ask_twice(estimates: Counted, bucket: S3Bucket) -> None:
        await put_trace(bucket, estimates, secrets.token_bytes(8))
        for _ in range(2):
            with pytest.raises(EstimateFailed, match="cascade estimate DIR"):
                await estimates.kernels("t", config, within_s=60)
        assert estimates.computed == 1

    with_store(ask_twice)
