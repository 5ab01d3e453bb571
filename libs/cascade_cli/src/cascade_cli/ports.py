"""Whether the app's own port is to be had, before anything says that the app is up."""

import asyncio
import socket

from cascade_cli.embedded.errors import EmbeddedServerError, PortTakenError

WAIT_S = 5.0
"""A Cascade that was killed a moment ago still closes its connections."""
_LOOK_EVERY_S = 0.1


async def free(host: str, port: int, *, within_s: float = WAIT_S) -> None:
    """Return once `port` can be listened on. Raises PortTakenError after `within_s`, EmbeddedServerError at once."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while (problem := _problem(host, port)) is not None:
        if loop.time() >= until:
            raise PortTakenError(
                f"{host}:{port} cannot be listened on ({problem}). Stop what uses it, or choose another one with "
                "--port or CASCADE_PORT."
            )
        await asyncio.sleep(_LOOK_EVERY_S)


def _problem(host: str, port: int) -> str | None:
    """Why the port cannot be listened on; None where it can."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise EmbeddedServerError(
            f"{host!r} is no address to listen on ({error.strerror}). Give one with --host or CASCADE_HOST."
        ) from error
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind(address)
        except OSError as error:
            return error.strerror or str(error)
    return None
