"""The gateway as the worker sees it: five calls over HTTP, each safe to repeat.

Where the launcher gave an attempt id, every call carries `X-Cascade-Attempt: <attempt>.<nonce of this
process>`, so that the gateway can tell two starts of one sim apart and fence one of them off. A 5xx, a lost
connection and an unreadable reply are retried with growing pauses; a 4xx never is (spec: simulator, Retries
are safe). httpx and tenacity do not leave this module.
"""

import ipaddress
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import httpx
from pydantic import BaseModel, ValidationError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from cascade_worker.chunking import LogChunk
from cascade_worker.errors import FencedOffError, GatewayRefusedError, GatewayUnavailableError
from cascade_worker.settings import Engine

ATTEMPT_HEADER = "X-Cascade-Attempt"
_FILE_PIECE_BYTES = 256 * 1024
_HEARTBEAT_TIMEOUT_S = 15.0
_DETAIL_CHARS = 300
_JSON_HEADERS = {"Content-Type": "application/json"}

Reply = TypeVar("Reply")
JsonObject = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How a failing call is repeated: random pauses below a doubling bound, until the time is up."""

    first_pause_s: float = 0.5
    longest_pause_s: float = 15.0
    give_up_after_s: float = 3600.0


class HeartbeatAck(BaseModel):
    """The gateway's answer to a heartbeat: the sim's state after it, and whether to stop."""

    state: str
    cancel: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a sim ended, as its final heartbeat says."""

    state: Literal["succeeded", "failed"]
    exit_code: int | None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who is calling: the sim, the launcher's attempt id, and a nonce that no second process shares."""

    sim_id: str
    attempt: str | None = None
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def header(self) -> str | None:
        """The value of the attempt header; None where no launcher named this start, as in a start by hand."""
        return None if self.attempt is None else f"{self.attempt}.{self.nonce}"


class Gateway:
    """The simulator endpoints of one sim. Raises only GatewayError's family, unless a call says otherwise."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        *,
        identity: Identity,
        engine: Engine,
        retry: RetryPolicy,
        upload_retry: RetryPolicy,
    ) -> None:
        self._client = client
        self._sim = f"/api/sims/{identity.sim_id}"
        self._engine: Engine = engine
        self._retry = retry
        self._upload_retry = upload_retry

    async def beat(self) -> HeartbeatAck:
        """One `running` heartbeat, tried once: the next one comes soon anyway."""
        return await self._heartbeat({"state": "running"})

    async def announce(self) -> HeartbeatAck:
        """The first `running` heartbeat, retried: nothing is worth starting before the gateway knows."""
        return await self._retrying(self._retry, self.beat)

    async def finish(self, outcome: Outcome) -> HeartbeatAck:
        """The final heartbeat, retried."""
        return await self._retrying(self._retry, lambda: self.finish_once(outcome))

    async def finish_once(self, outcome: Outcome) -> HeartbeatAck:
        """The final heartbeat, tried once, for a worker that has no time left."""
        return await self._heartbeat(
            {"state": outcome.state, "exit_code": outcome.exit_code, "error": outcome.error}
        )

    async def send_chunk(self, chunk: LogChunk) -> None:
        """Send one chunk of the log; the gateway keeps the first content it gets for a `seq`."""
        body: JsonObject = {"seq": chunk.seq, "lines": list(chunk.lines)}
        await self._retrying(
            self._retry, lambda: self._post_json("logs", body, call=f"log chunk {chunk.seq}")
        )

    async def send_step_timing(self, *, simulated: JsonObject, compare: JsonObject | None) -> None:
        """Send the step-timing model's two results; a repeat replaces the earlier ones."""
        body: JsonObject = {"simulated": simulated, "compare": compare}
        await self._retrying(
            self._upload_retry, lambda: self._post_json("step-timeline", body, call="step timing")
        )

    async def put_file(self, name: str, path: Path, *, size_bytes: int) -> None:
        """Upload one output file under `name`; a repeat replaces the earlier upload. Raises OSError, too."""

        async def put() -> None:
            # Opened before anything is sent: what cannot be read must not break a request off in its middle.
            with path.open("rb") as file:
                # An announced length lets the gateway refuse a body that breaks off instead of storing half a
                # file.
                await self._call(
                    self._client.build_request(
                        "PUT",
                        f"{self._sim}/files/{name}",
                        content=_pieces(file, size_bytes),
                        headers={
                            "Content-Type": "application/octet-stream",
                            "Content-Length": str(size_bytes),
                        },
                    ),
                    call=f"upload of {name}",
                )

        await self._retrying(self._upload_retry, put)

    async def _heartbeat(self, body: JsonObject) -> HeartbeatAck:
        response = await self._call(
            self._client.build_request(
                "POST",
                f"{self._sim}/heartbeat",
                content=_json({**body, "engine": self._engine}),
                headers=_JSON_HEADERS,
                timeout=_HEARTBEAT_TIMEOUT_S,
            ),
            call="heartbeat",
        )
        try:
            return HeartbeatAck.model_validate_json(response.content)
        except ValidationError as error:
            # A proxy's page with status 200, most likely: the gateway itself may answer the next time.
            raise GatewayUnavailableError(
                call="heartbeat", reason=f"the reply is no heartbeat ack: {_short(response.text)}"
            ) from error

    async def _post_json(self, path: str, body: JsonObject, *, call: str) -> None:
        request = self._client.build_request(
            "POST", f"{self._sim}/{path}", content=_json(body), headers=_JSON_HEADERS
        )
        await self._call(request, call=call)

    async def _call(self, request: httpx.Request, *, call: str) -> httpx.Response:
        try:
            response = await self._client.send(request)
        except (httpx.TransportError, httpx.StreamError) as error:
            reason = f"{type(error).__name__} {error}".strip()
            raise GatewayUnavailableError(call=call, reason=reason) from error
        if response.status_code >= 500:
            raise GatewayUnavailableError(call=call, reason=f"{response.status_code} {_detail(response)}")
        if response.status_code == httpx.codes.CONFLICT:
            raise FencedOffError(call=call, status=response.status_code, detail=_detail(response))
        if not response.is_success:
            raise GatewayRefusedError(call=call, status=response.status_code, detail=_detail(response))
        return response

    @staticmethod
    async def _retrying(policy: RetryPolicy, attempt: Callable[[], Awaitable[Reply]]) -> Reply:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(GatewayUnavailableError),
            wait=wait_random_exponential(multiplier=policy.first_pause_s, max=policy.longest_pause_s),
            stop=stop_after_delay(policy.give_up_after_s),
            reraise=True,
        )

        # tenacity awaits what it knows to be a coroutine function, which a lambda or a partial is not.
        async def once() -> Reply:
            return await attempt()

        return await retrying(once)


def open_client(*, base_url: str, token: str, identity: Identity) -> httpx.AsyncClient:
    """The HTTP client of one worker. The caller closes it."""
    headers = {} if identity.header is None else {ATTEMPT_HEADER: identity.header}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return httpx.AsyncClient(
        base_url=base_url,
        headers=httpx.Headers(headers, encoding="utf-8"),
        # Reads wait longer than connects: the gateway answers a chunk once it is durable.
        timeout=httpx.Timeout(60.0, connect=10.0),
        # A proxy from the environment cannot reach this machine's loopback.
        trust_env=not _is_loopback(httpx.URL(base_url).host),
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


async def _pieces(file: BinaryIO, size_bytes: int) -> AsyncIterator[bytes]:
    left = size_bytes
    while left > 0 and (piece := file.read(min(_FILE_PIECE_BYTES, left))):
        left -= len(piece)
        yield piece


def _json(body: JsonObject) -> bytes:
    # A trace's JSON may escape half of a surrogate pair, and a path may hold bytes that are no text: neither can travel
    # as UTF-8, and no name or error is worth the whole body.
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        "utf-8", "replace"
    )


def _detail(response: httpx.Response) -> str:
    """The reply's `detail` sentence, or what else it says."""
    try:
        body: object = response.json()
    except ValueError:
        body = None
    if isinstance(body, dict) and "detail" in body:
        return _short(str(body["detail"]))
    return _short(response.text) or response.reason_phrase


def _short(text: str) -> str:
    return text if len(text) <= _DETAIL_CHARS else text[:_DETAIL_CHARS] + "..."
