"""A line between a gateway and one of its servers that tests can cut, freeze and mend."""

import asyncio
import threading
from typing import Protocol, Self

from cascade_api.testing.running import READY_WITHIN_S, LoopThread


class Proxy(Protocol):
    """What a forwarding proxy must be able to do."""

    port: int

    async def cut(self) -> None:
        """Break every connection and refuse new ones."""
        ...

    def freeze(self) -> None:
        """Keep connections but pass nothing on."""
        ...

    async def restore(self) -> None:
        """Listen again and let bytes flow."""
        ...


class Line:
    """A proxy on an event loop of its own thread. A context manager; `port` is where the gateway connects."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._thread = LoopThread(self._run, name="line")
        self._ready = threading.Event()

    async def _run(self, stop: asyncio.Event) -> None:
        await self._proxy.restore()
        self._ready.set()
        await stop.wait()
        await self._proxy.cut()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(READY_WITHIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()

    @property
    def port(self) -> int:
        """Where the proxy listens."""
        return self._proxy.port

    def cut(self) -> None:
        """The server is gone."""
        self._thread.call(self._proxy.cut())

    def freeze(self) -> None:
        """The network swallows everything."""

        async def freeze() -> None:
            self._proxy.freeze()

        self._thread.call(freeze())

    def restore(self) -> None:
        """The server is back."""
        self._thread.call(self._proxy.restore())
