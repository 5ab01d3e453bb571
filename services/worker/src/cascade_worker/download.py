"""Fetch a trace that is not on this machine's disk from the bucket it was uploaded to."""

from cascade_worker.settings import WorkerSettings


async def fetch_trace(settings: WorkerSettings) -> None:
    """Make sure that the trace lies in the trace directory, if there is a bucket to take it from."""
    if settings.kernels_list.is_file() or settings.s3_endpoint is None:
        return
