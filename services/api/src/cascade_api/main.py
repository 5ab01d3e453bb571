"""Runs the gateway: settings, telemetry, adapters, background tasks, uvicorn, signals."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import structlog
import uvicorn
import uvloop
from cascade_core import lifecycle, telemetry
from cascade_core.errors import Unavailable
from cascade_core.settings import load
from cascade_core.tasks import TaskSet, end

from cascade_api.app import background_work, build_app, opened_gateway
from cascade_api.gateway import Gateway
from cascade_api.hot import HotRoutes
from cascade_api.settings import ApiSettings

_logger = structlog.get_logger(__name__)

GRACE_S = 5
"""Requests under way get this long to end after a stop. Event streams are ended at once."""
START_PATIENCE_S = 60.0
"""A server that is not up yet is waited for this long; after that the process ends and says which one it missed."""
START_RETRY_S = 0.5
KEEP_ALIVE_S = 75
UNSENT_BYTES_IN_KERNEL = 128 * 1024


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers (`lifecycle` has installed ours), telling when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    settings: ApiSettings,
    stop: asyncio.Event,
    *,
    listener: socket.socket | None = None,
    on_ready: Callable[[Gateway], None] | None = None,
) -> None:
    """Serve HTTP until `stop` is set.

    listener: a bound socket to serve on; one of our own at `settings.host` and `settings.port` where it is left out.
    on_ready: called once the gateway answers requests.
    Raises Unavailable if a server behind the gateway stays away, Corrupt if stored data breaks a rule.
    """
    listener = listener or bound(settings)
    _keep_unsent_bytes_here(listener)
    async with _opened_patiently(settings, stop) as gateway:
        if gateway is None:
            return
        app = build_app(settings)
        app.state.gateway = gateway
        server = _Server(
            uvicorn.Config(
                HotRoutes(app),
                lifespan="off",
                proxy_headers=False,
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=GRACE_S,
                timeout_keep_alive=KEEP_ALIVE_S,
                server_header=False,
            )
        )
        together = TaskSet()
        for work in background_work(gateway):
            together.create(work)
        together.create(_announced(server, gateway, listener, on_ready))
        served = asyncio.Event()
        together.create(_served(server, gateway, listener, stop, served))
        await together.wait(served)


async def _served(
    server: _Server, gateway: Gateway, listener: socket.socket, stop: asyncio.Event, served: asyncio.Event
) -> None:
    """Serve until `stop`, answer what is under way while the background still works, then set `served`."""
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await gateway.hub.close()
        server.should_exit = True
        await serving
    finally:
        await end(serving, stopping)
        served.set()


def bound(settings: ApiSettings) -> socket.socket:
    """A socket bound to the configured address, not yet listening. Raises Unavailable if it is taken."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"{settings.host}:{settings.port} cannot be listened on ({error.strerror}). "
            "Stop what uses it, or set CASCADE_HOST and CASCADE_PORT."
        ) from error
    return listener


def _keep_unsent_bytes_here(listener: socket.socket) -> None:
    """Let the kernel take no more than a little ahead of what a client reads; accepted connections inherit this.

    Otherwise it queues megabytes for a browser that has stopped reading, and how far behind that is cannot be told.
    """
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_IN_KERNEL)


async def _announced(
    server: _Server,
    gateway: Gateway,
    listener: socket.socket,
    on_ready: Callable[[Gateway], None] | None,
) -> None:
    await server.listening.wait()
    host, port = listener.getsockname()[:2]
    _logger.info("serving", host=host, port=port)
    if on_ready is not None:
        on_ready(gateway)


@asynccontextmanager
async def _opened_patiently(settings: ApiSettings, stop: asyncio.Event) -> AsyncIterator[Gateway | None]:
    """The gateway as soon as every server behind it answers; None if `stop` came first."""
    give_up_at = asyncio.get_running_loop().time() + START_PATIENCE_S
    while True:
        opening = opened_gateway(settings)
        try:
            gateway = await opening.__aenter__()
            break
        except Unavailable as error:
            if asyncio.get_running_loop().time() >= give_up_at:
                raise
            _logger.warning("waiting for a server", reason=str(error))
        with suppress(TimeoutError):
            async with asyncio.timeout(START_RETRY_S):
                await stop.wait()
        if stop.is_set():
            yield None
            return
    try:
        yield gateway
    finally:
        await opening.__aexit__(None, None, None)


def main() -> int:
    """Entry point of the api service alone."""
    settings = load(ApiSettings)
    telemetry.configure(settings, service="api")
    return lifecycle.run(
        lambda stop: serve(settings, stop), service="api", loop_factory=uvloop.new_event_loop
    )


if __name__ == "__main__":
    raise SystemExit(main())
