"""A TCP proxy that can lose the connection, for tests of what happens then."""

import asyncio
import contextlib
import socket
from functools import partial
from types import TracebackType
from typing import Self

from cascade_cli.embedded.process import free_ports

_READ_BYTES = 64 * 1024


class TcpProxy:
    """Forwards 127.0.0.1:`port` to `target_port`. An async context manager; `port` is chosen at the start.

    `cut()` breaks every connection and refuses new ones until `restore()`. `freeze()` keeps connections open but
    passes nothing on, as a network that swallows packets does, until `restore()`.
    """

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._listener: socket.socket | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def __aenter__(self) -> Self:
        await self.restore()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cut()

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._links)

    async def cut(self) -> None:
        """Break all connections and stop listening."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def freeze(self) -> None:
        """Pass nothing on from now on."""
        self._flowing.clear()

    async def restore(self) -> None:
        """Listen again, on the same port as before, and let bytes flow."""
        self._flowing.set()
        if self._listener is None:
            # Not one of the system's choice: between cut and restore it might give that one to somebody else.
            self.port = self.port or free_ports(1)[0]
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listener.setblocking(False)
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        """Take a connection, known as a link at once.

        Not by `asyncio.start_server`: for a few turns of the loop it has connections that nobody is told of, and a
        `cut` would leave those.
        """
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the client has left again
        connection.setblocking(False)
        link = asyncio.create_task(self._link(connection))
        self._links.add(link)
        link.add_done_callback(partial(self._unlink, connection))

    def _unlink(self, connection: socket.socket, link: "asyncio.Task[None]") -> None:
        self._links.discard(link)
        connection.close()  # by its transport already, unless the link ended before it began

    async def _link(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            with contextlib.suppress(OSError):  # either side ended the connection
                await self._forward(reader, writer)
        finally:
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        try:
            there = asyncio.create_task(self._pump(reader, there_writer))
            back = asyncio.create_task(self._pump(there_reader, writer))
            try:
                await asyncio.gather(there, back)
            finally:
                there.cancel()
                back.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
        finally:
            there_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_READ_BYTES):
            await self._flowing.wait()
            writer.write(chunk)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
