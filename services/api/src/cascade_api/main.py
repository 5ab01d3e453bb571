"""Runs the gateway: settings, telemetry, uvicorn, signals."""

import asyncio

import uvicorn
from cascade_core import lifecycle, telemetry
from cascade_core.settings import load

from cascade_api.app import build_app
from cascade_api.settings import ApiSettings

GRACE_S = 5
"""Open event streams get this long to end after a stop."""


async def serve(settings: ApiSettings, stop: asyncio.Event) -> None:
    """Serve HTTP until `stop` is set."""
    config = uvicorn.Config(
        build_app(settings),
        host=settings.host,
        port=settings.port,
        log_level="info",
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=75,
        # Simulators send chunks of any size; the event loop matters more than header niceties.
        server_header=False,
    )
    server = uvicorn.Server(config)
    server.config.setup_event_loop = lambda: None  # type: ignore[method-assign]  # the loop runs already
    serving = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    stopping.cancel()
    await serving


def main() -> int:
    """Entry point of the api service alone."""
    settings = load(ApiSettings)
    telemetry.configure(settings, service="api")
    return lifecycle.run(lambda stop: serve(settings, stop), service="api")


if __name__ == "__main__":
    raise SystemExit(main())
