"""An HTTP client for tests, and the steps that many of them begin with."""

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx
import pytest
from cascade_core.facts import AnyFact
from cascade_core.sims.facts import SimLaunchStarted

from cascade_api.testing.facts import ready_trace
from cascade_api.testing.openapi import Document
from cascade_api.testing.running import RunningApi

T = TypeVar("T")
PATIENCE_S = 60.0
"""How long a test waits for what must come: a machine whose disk stalls is slow, not wrong."""


class Client(httpx.Client):
    """Carries the gateway's token unless it is told otherwise."""

    def __init__(self, api: RunningApi, *, token: bool = True) -> None:
        secret = api.settings.token
        headers = {"Authorization": f"Bearer {secret.get_secret_value()}"} if token and secret else {}
        super().__init__(base_url=api.url, headers=headers, timeout=PATIENCE_S)
        self.api = api
        self._document: Document | None = None

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """As usual, and every whole response is held against the OpenAPI document."""
        response = super().send(request, **options)
        if not options.get("stream") and request.url.path != "/api/openapi.json":
            if self._document is None:
                self._document = Document(self.get("/api/openapi.json").json())
            self._document.check(response)
        return response

    def store(self, *facts: AnyFact) -> None:
        """Append facts as another service would; the next read sees them."""

        async def append() -> None:
            for fact in facts:
                await self.api.gateway.append(fact)

        self.api.call(append())

    def new_trace(self, trace_id: str | None = None, *, arch: str = "sm_86", kernels: int = 2) -> str:
        """A ready trace; its id."""
        trace_id = trace_id or f"trace-{secrets.token_hex(4)}"
        self.store(*ready_trace(trace_id, arch=arch, kernels=kernels))
        return trace_id

    def new_run(
        self, *, config: str = "SM86_RTX3070", count: int = 1, trace_id: str | None = None, kernels: int = 2
    ) -> dict[str, Any]:
        """A run on a ready trace; its detail."""
        arch = "sm_90" if config.startswith("SM90") else "sm_86"
        trace_id = trace_id or self.new_trace(arch=arch, kernels=kernels)
        body = {"trace_id": trace_id, "entries": [{"gpu_config": config, "count": count}]}
        reply = self.post("/api/runs", json=body)
        assert reply.status_code == 201, reply.text
        detail: dict[str, Any] = reply.json()
        return detail

    def new_live_run(
        self, *, config: str = "SM86_RTX3070", count: int = 1, kernels: int = 2
    ) -> dict[str, Any]:
        """A run whose sims a launcher has started; its detail."""
        run = self.new_run(config=config, count=count, kernels=kernels)
        self.launch(run)
        detail: dict[str, Any] = self.body(f"/api/runs/{run['id']}")
        return detail

    def launch(self, run: dict[str, Any]) -> None:
        """Take every sim of a run, as a launcher does."""
        self.store(
            *(
                SimLaunchStarted(
                    run_id=run["id"], sim_id=sim["id"], occurred_at=datetime.now(UTC), attempt="launch1"
                )
                for sim in run["sims"]
            )
        )

    def new_sim(self, *, config: str = "SM86_RTX3070", kernels: int = 2) -> tuple[str, str]:
        """`(run id, sim id)` of a new run's only sim, which a launcher has started."""
        detail = self.new_live_run(config=config, kernels=kernels)
        return detail["id"], detail["sims"][0]["id"]

    def beat(self, sim_id: str, state: str = "running", **fields: Any) -> dict[str, Any]:
        """Send a heartbeat; its answer."""
        reply = self.post(f"/api/sims/{sim_id}/heartbeat", json={"state": state, **fields})
        assert reply.status_code == 200, reply.text
        answer: dict[str, Any] = reply.json()
        return answer

    def send_log(self, sim_id: str, seq: int, lines: list[str]) -> None:
        """Send a chunk."""
        reply = self.post(f"/api/sims/{sim_id}/logs", json={"seq": seq, "lines": lines})
        assert (reply.status_code, reply.content) == (204, b""), reply.text

    def body(self, path: str) -> Any:
        """The JSON body of a GET that must succeed."""
        reply = self.get(path)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def log(self, sim_id: str) -> str:
        """A sim's whole log, asked for again while a gateway that lost its servers says 503."""
        path = f"/api/sims/{sim_id}/log"

        def answered() -> httpx.Response | None:
            reply = self.get(path)
            return reply if reply.status_code != httpx.codes.SERVICE_UNAVAILABLE else None

        reply = eventually(answered, what=path)
        assert reply.status_code == 200, reply.text
        return reply.text

    def sim(self, run_id: str, sim_id: str) -> dict[str, Any]:
        """One sim as its run shows it."""
        found: dict[str, Any] = next(
            sim for sim in self.body(f"/api/runs/{run_id}")["sims"] if sim["id"] == sim_id
        )
        return found


def eventually(attempt: Callable[[], T | None], *, within_s: float = PATIENCE_S, what: str = "it") -> T:
    """The first value of `attempt` that is neither None nor False, asked for again and again until a deadline."""
    give_up_at = time.monotonic() + within_s
    while True:
        value = attempt()
        if value is not None and value is not False:
            return value
        assert time.monotonic() < give_up_at, f"{what} did not come about in {within_s:.0f} s"
        time.sleep(0.02)


def near(wanted: dict[str, Any]) -> dict[str, Any]:
    """`wanted`, with every float compared to a relative 1e-6."""
    return {
        key: pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
        for key, value in wanted.items()
    }
