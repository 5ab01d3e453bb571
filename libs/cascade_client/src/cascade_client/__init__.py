"""Typed Python client of the Cascade HTTP API, sync and async.

    with CascadeClient("http://127.0.0.1:8000", token) as client:
        run = client.launch("demo", [RunEntry(gpu_config="SM80_A100", count=2)])
        for event in client.events(run.id):
            print(event.type)
        print(markdown(client.report(run.id)))

Bodies are in `cascade_client.wire`, errors in `cascade_client.errors`; uploading traces is `cascade_client.upload`.
"""

from cascade_client.async_client import AsyncCascadeClient
from cascade_client.client import CascadeClient
from cascade_client.errors import ApiError, ClientError
from cascade_client.report import Report
from cascade_client.report_text import markdown
from cascade_client.wire.runs import RunEntry

__all__ = ["ApiError", "AsyncCascadeClient", "CascadeClient", "ClientError", "Report", "RunEntry", "markdown"]
