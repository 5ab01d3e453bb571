"""A TCP proxy that can lose the connection, for tests of what happens then."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

_READ_BYTES = 64 * 1024


class TcpProxy:
    """Forwards 127.0.0.1:`port` to `target_port`. An async context manager; `port` is chosen at the start.

    `cut()` breaks every connection and refuses new ones until `restore()`. `freeze()` keeps connections open but
    passes nothing on, as a network that swallows packets does, until `restore()`.
    """

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._server: asyncio.Server | None = None
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
        if self._server is not None:
            self._server.close()
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def freeze(self) -> None:
        """Pass nothing on from now on."""
        self._flowing.clear()

    async def restore(self) -> None:
        """Listen again, on the same port as before, and let bytes flow."""
        self._flowing.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None  # a stream callback always runs in a task
        self._links.add(link)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # either side, or `cut`, ended the connection
        finally:
            self._links.discard(link)
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
