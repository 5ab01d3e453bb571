"""One NATS connection: how it is made, kept and given up. A lost server is waited for, for ever."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from cascade_core.errors import LogUnavailable
from cascade_core.settings import NatsSettings
from cascade_core.tasks import end

_logger = structlog.get_logger(__name__)

CONNECT_TIMEOUT_S = 5
RECONNECT_WAIT_S = 0.25
"""Short, because services on one machine lose their server only while it restarts."""
DRAIN_TIMEOUT_S = 5


@asynccontextmanager
async def connected(settings: NatsSettings, *, name: str) -> AsyncIterator[Client]:
    """A connection for the length of the block, drained at its end.

    Raises LogUnavailable if the first connection cannot be made; later losses reconnect by themselves.
    """
    client = await connect(settings, name=name)
    try:
        yield client
    finally:
        await close(client)


async def connect(settings: NatsSettings, *, name: str) -> Client:
    """Open a connection that reconnects for ever. `name` shows up in the server's connection list."""

    problems: list[str] = []

    async def on_error(error: Exception) -> None:
        if not opened:
            problems.append(str(error) or type(error).__name__)
            return
        _logger.warning("nats error", error=str(error) or type(error).__name__)

    async def on_disconnect() -> None:
        if opened and not (client.is_closed or client.is_draining or client.is_draining_pubs):
            _logger.warning("nats disconnected")

    async def on_reconnect() -> None:
        _logger.info("nats reconnected")

    password = settings.nats_password
    opened: list[Client] = []
    client = Client()
    connecting = asyncio.create_task(
        client.connect(
            settings.nats_url,
            name=name,
            user=settings.nats_user,
            password=password.get_secret_value() if password else None,
            connect_timeout=CONNECT_TIMEOUT_S,
            reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]  # it only sleeps for so long
            max_reconnect_attempts=-1,
            allow_reconnect=True,
            drain_timeout=DRAIN_TIMEOUT_S,
            error_cb=on_error,
            disconnected_cb=on_disconnect,
            reconnected_cb=on_reconnect,
        )
    )
    try:
        # The client itself would try for ever, also with a wrong password, and it may lose a cancel: see `tasks`.
        await asyncio.wait([connecting], timeout=CONNECT_TIMEOUT_S)
        if not connecting.done():
            raise TimeoutError
        await connecting
    except (NatsError, OSError, TimeoutError) as error:
        await _give_up(client, connecting)
        where, reason = _without_secrets(settings.nats_url), _reason(problems, error)
        if "authorization" in reason.lower():
            raise LogUnavailable(
                f"NATS at {where} refuses the login of {name} ({reason}). Check CASCADE_NATS_USER and "
                "CASCADE_NATS_PASSWORD, or the user and password in CASCADE_NATS_URL."
            ) from error
        raise LogUnavailable(
            f"NATS at {where} cannot be reached ({reason}). "
            "Start it, or set CASCADE_NATS_URL; `cascade doctor` tells more."
        ) from error
    except asyncio.CancelledError:
        await _give_up(client, connecting)
        raise
    opened.append(client)
    return client


async def close(client: Client) -> None:
    """Drain and close; a server that is gone already does not matter."""
    if client.is_closed:
        return
    try:
        await client.drain()
    except (NatsError, OSError, TimeoutError):
        with suppress(NatsError, OSError, TimeoutError):  # closing flushes once more, into a lost connection
            await client.close()


async def _give_up(client: Client, connecting: "asyncio.Task[None]") -> None:
    await end(connecting)
    if client.is_connected:  # it has lost the cancel and gone on
        await close(client)


def _reason(problems: list[str], error: BaseException) -> str:
    """What the server said; the timeout of this call says nothing.

    A refused login is tried again and again, and at times its connection breaks before the refusal is read.
    """
    refusal = [problem for problem in problems if "authorization" in problem.lower()]
    return (refusal or problems or [str(error) or type(error).__name__])[-1]


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if scheme else rest.rpartition("@")[2]
