"""A whole gateway for tests: a real uvicorn on real servers, on an event loop of its own thread.

Server-sent events need a real server (an in-process ASGI transport hands the body over at its end), and tests that
block in a plain HTTP client need the server to be elsewhere.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self, TypeVar

import uvloop

from cascade_api.gateway import Gateway
from cascade_api.main import serve
from cascade_api.settings import ApiSettings

T = TypeVar("T")
Work = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
READY_WITHIN_S = 60.0
STOPPED_WITHIN_S = 60.0


class LoopThread:
    """One coroutine that runs until it is told to stop, on an event loop of its own thread."""

    def __init__(self, work: Work, *, name: str) -> None:
        self._work = work
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Run it."""
        self._thread.start()

    def stop(self) -> None:
        """Stop it and wait for its end. Raises what it raised."""
        if self._thread.is_alive():
            with suppress(RuntimeError):  # it has ended meanwhile
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOPPED_WITHIN_S)
        assert not self._thread.is_alive(), f"{self._thread.name} did not stop in {STOPPED_WITHIN_S:.0f} s"
        if self._error is not None:
            raise self._error

    @property
    def alive(self) -> bool:
        """Whether the work is still under way."""
        return self._thread.is_alive()

    def call(self, work: Coroutine[Any, Any, T], *, within_s: float = 60.0) -> T:
        """Run a coroutine on the thread's loop; its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(within_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._work(self._stop))
        except BaseException as error:  # noqa: BLE001 - handed to whoever stops the thread
            self._error = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


class RunningApi:
    """A gateway that serves on a port of its own. A context manager."""

    def __init__(self, settings: ApiSettings) -> None:
        self.settings = settings
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ready = threading.Event()
        self._gateway: Gateway | None = None
        self._thread = LoopThread(self._serve, name="api")

    async def _serve(self, stop: asyncio.Event) -> None:
        try:
            await serve(self.settings, stop, listener=self._listener, on_ready=self._on_ready)
        finally:
            self._ready.set()

    def _on_ready(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._ready.set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(READY_WITHIN_S), f"the gateway was not ready in {READY_WITHIN_S:.0f} s"
        if self._gateway is None:
            self._thread.stop()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop as on SIGTERM; again is harmless. Raises what ended the gateway."""
        self._thread.stop()

    @property
    def gateway(self) -> Gateway:
        """The open gateway. Its coroutines run by `call` only."""
        assert self._gateway is not None, "not ready"
        return self._gateway

    @property
    def alive(self) -> bool:
        """Whether the gateway still runs."""
        return self._thread.alive

    def call(self, work: Coroutine[Any, Any, T], *, within_s: float = 60.0) -> T:
        """Run a coroutine on the gateway's loop; its result."""
        return self._thread.call(work, within_s=within_s)
