"""A simulator that keeps reporting while tests take its servers away."""

import threading
from typing import Self

import httpx

from cascade_api.testing.client import PATIENCE_S, Client
from cascade_api.testing.running import RunningApi

_BEAT_EVERY = 10


class Simulator:
    """Posts chunks and heartbeats until it is stopped, repeating whatever got no success, as the contract says.

    A context manager. It ends with a chunk that was acknowledged: one that got a 503 may be in the log or may not, so
    that only its repetition makes `log` what the gateway must have, no more and no less.

    Parameters:
        apis: the gateways that it reports to, in turns.
        sim_id: what it reports about.
        reads: a path that it also asks for at every turn.
    """

    def __init__(self, apis: list[RunningApi], sim_id: str, *, reads: str | None = None) -> None:
        self._apis = apis
        self._sim_id = sim_id
        self._reads = reads
        self._stop = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run)
        self._clients: list[Client] = []
        self.acknowledged = 0
        """Chunks of one line each."""
        self.wrong: list[str] = []
        """Answers that are neither a success nor a 503."""
        self.failures = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._failed = error is not None  # then nobody asks for the log, and its server may be gone for good
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"chunk {self.acknowledged} got no success in {PATIENCE_S:.0f} s"

    def has_sent(self, more_than: int) -> bool:
        """Whether more chunks than that are acknowledged."""
        return self.acknowledged > more_than

    def has_failed(self, more_than: int) -> bool:
        """Whether more calls than that got no success."""
        return self.failures > more_than

    @property
    def log(self) -> str:
        """What the gateway has acknowledged."""
        return "".join(f"line {seq}\n" for seq in range(self.acknowledged))

    def _run(self) -> None:
        self._clients = [Client(api) for api in self._apis]
        turn, answered = 0, True
        while not (self._stop.is_set() and (answered or self._failed)):
            turn += 1
            seq = self.acknowledged
            answered = self._succeeds(turn, "POST", "logs", {"seq": seq, "lines": [f"line {seq}"]})
            self.acknowledged += answered
            if turn % _BEAT_EVERY == 0:
                self._succeeds(turn, "POST", "heartbeat", {"state": "running"})
            if self._reads is not None:
                self._succeeds(turn, "GET", self._reads)
        for client in self._clients:
            client.close()

    def _succeeds(self, turn: int, method: str, path: str, body: dict[str, object] | None = None) -> bool:
        client = self._clients[turn % len(self._clients)]
        url = path if path.startswith("/") else f"/api/sims/{self._sim_id}/{path}"
        try:
            reply = client.request(method, url, json=body)
        except httpx.TransportError:
            self.failures += 1
            return False
        if not (reply.is_success or reply.status_code == httpx.codes.SERVICE_UNAVAILABLE):
            self.wrong.append(f"{method} {url}: {reply.status_code} {reply.text}")
        self.failures += not reply.is_success
        return reply.is_success
