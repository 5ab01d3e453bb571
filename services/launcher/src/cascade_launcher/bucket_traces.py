"""Traces that sims fetch themselves: where they lie, and whether they are complete enough to be simulated."""

from urllib.parse import quote

from cascade_core.ports import Bucket

from cascade_launcher.backends.protocol import LaunchError

KERNELS_LIST = "traces/kernelslist.g"
"""The processed trace, below its directory. spec: simulator, The contract."""


def key_prefix(prefix: str, trace_id: str) -> str:
    """The keys of a trace begin with this."""
    base = prefix.strip("/")
    return f"{base}/{trace_id}/" if base else f"{trace_id}/"


def trace_url(bucket: str, prefix: str, trace_id: str) -> str:
    """`s3://bucket/prefix/trace-id`, quoted."""
    return f"s3://{bucket}/{quote(key_prefix(prefix, trace_id).rstrip('/'))}"


async def check(bucket: Bucket, prefix: str, trace_id: str) -> None:
    """Raise LaunchError where the bucket holds no processed trace, BucketUnavailable where it does not answer."""
    key = key_prefix(prefix, trace_id) + KERNELS_LIST
    if await bucket.head(key) is None:
        raise missing_list(key)


def missing_list(key: str) -> LaunchError:
    """The error of a trace that cannot be simulated."""
    return LaunchError(
        f"launcher prepare: {KERNELS_LIST} not found: the bucket holds no {key}. "
        "The trace must be ready before a run; was it removed since?"
    )
