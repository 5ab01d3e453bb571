"""A bare keep-alive HTTP client for load: prepared bytes out, one status in. The load must cost less than the app."""

import asyncio
from types import TracebackType
from typing import Self

READ_LIMIT = 1 << 20


class Connection:
    """One keep-alive connection to the app."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._host = host
        self._port = port
        self._token = token

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=READ_LIMIT)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send a JSON body; the status and the reply's body."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        await self._writer.drain()
        return await self._reply()

    async def _reply(self) -> tuple[int, bytes]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        return status, await self._reader.readexactly(length) if length else b""

    async def stream(self, path: str) -> asyncio.StreamReader:
        """Open an event stream; its bytes, chunk framing included."""
        self._writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {self._token}\r\n\r\n".encode()
        )
        await self._writer.drain()
        await self._reader.readuntil(b"\r\n\r\n")
        return self._reader
