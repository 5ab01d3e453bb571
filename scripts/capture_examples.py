"""Capture every response that the documentation shows, from a running app: `docs/examples/*.json`.

    uv run python scripts/capture_examples.py [DIRECTORY]

Starts the app on embedded servers, uploads the demo trace, launches a run whose sims replay a recorded log, and asks
the bundled samples about serving. Then run `just generate`, which puts the examples into the pages.
"""

import asyncio
import json
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # `scripts` is a folder of this checkout, not an installed package

from cascade_cli import app_stack, bundled  # noqa: E402
from cascade_cli.demo import healthy  # noqa: E402
from cascade_cli.isolated import isolated_settings  # noqa: E402
from cascade_cli.serve_settings import worker_command  # noqa: E402
from cascade_client.upload import upload_trace  # noqa: E402

from scripts.docs_reference.examples import DIRECTORY, Example, trimmed  # noqa: E402

TOKEN = "dev-token"
WITHIN_S = 120.0
GO_ON = "go on"
"""A file beside the app's data: no sim begins before it is there, so nothing that is asked until then comes late."""
POLL_S = 0.2
REPLAYED_KERNELS = 6  # of the recorded log
SAMPLE = "sample__facebook_opt-125m__h100-e2e"
SAMPLE_RUN = "run-sample-opt125m-h100-e2e"
SCENARIO = {
    "trace_id": SAMPLE,
    "gpu_config": "SM90_H100",
    "num_requests": 8,
    "prompt_tokens": 512,
    "output_tokens": 128,
    "arrival_rate_rps": 0,
}
COMPLETION = {
    "model": SAMPLE,
    "gpu_config": "SM90_H100",
    "prompt": "Hello, my name is",
    "max_tokens": 32,
    "seed": 42,
}
TOO_LARGE_BYTES = 64 * 1024 * 1024 + 1


@dataclass(frozen=True, slots=True)
class Capture:
    """Talks to the app and stores what it answers."""

    http: httpx.AsyncClient
    directory: Path

    async def ask(
        self,
        label: str,
        method: str,
        route: str,
        *,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **parameters: str,
    ) -> Any:
        """One exchange, stored as `label`; the parsed body."""
        path = route.format(**parameters)
        reply = await self.http.request(method, path, json=body, content=content, headers=headers)
        kind = reply.headers.get("content-type", "").split(";")[0]
        found = reply.json() if kind == "application/json" else reply.text
        cut: dict[str, str] = {}
        Example(
            method=method,
            path=path,
            route=route,
            status=reply.status_code,
            body=trimmed(found, cut),
            content_type=kind or "none",
            request=body,
            cut=cut,
        ).store(label, self.directory)
        return found


async def capture(directory: Path) -> None:
    """Capture everything into `directory`."""
    with tempfile.TemporaryDirectory(prefix="cascade-docs-") as scratch:
        async with _app(Path(scratch)) as app:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with httpx.AsyncClient(base_url=app.url, headers=headers, timeout=WITHIN_S) as http:
                asking = Capture(http, directory)
                await _traces(asking, app)
                run_id, sim_id = await _runs(asking, Path(scratch) / GO_ON)
                await _results(asking, run_id, sim_id)
                await _simulators(asking, sim_id)
                await _requests(asking)


@asynccontextmanager
async def _app(data_dir: Path) -> AsyncIterator[app_stack.RunningApp]:
    settings = isolated_settings(
        data_dir,
        token=TOKEN,
        sim_cmd=_waiting(data_dir / GO_ON, worker_command("--replay", str(bundled.REPLAY_LOG))),
        samples=True,
        workspace="acme-lab",
        openai_wait_s=60,
    )
    with (data_dir / "serve.log").open("wb") as log:
        async with app_stack.running_app(settings, log_to=log.fileno()) as app:
            await healthy(app.url)
            yield app


def _waiting(file: Path, command: str) -> str:
    """The command, begun once the file is there."""
    wait = 'until [ -e "$0" ]; do sleep 0.1; done; exec "$@"'
    return shlex.join(("sh", "-c", wait, str(file), *shlex.split(command)))


async def _traces(asking: Capture, app: app_stack.RunningApp) -> None:
    await asking.ask("health", "GET", "/api/health")
    await asking.ask("ready", "GET", "/api/ready")
    await asking.ask("unauthorized", "GET", "/api/traces", headers={"Authorization": "Bearer wrong"})
    await asking.ask("unknown-path", "GET", "/api/nothing-here")
    for name, status in (("demo", "ok"), ("demo-failed", "failed")):
        await upload_trace(
            bundled.DEMO_TRACE,
            endpoint=app.urls.s3.endpoint,
            bucket=app.urls.s3.bucket,
            prefix=app.settings.s3_prefix,
            run_name=name,
            meta={},
            status=status,
        )
    await _until(asking.http, "/api/traces/demo", "state", {"ready"})
    await _until(asking.http, "/api/traces/demo-failed", "state", {"failed"})
    await _until(asking.http, f"/api/runs/{SAMPLE_RUN}", "state", {"succeeded"})
    await asking.ask("traces", "GET", "/api/traces")
    await asking.ask("trace", "GET", "/api/traces/{trace_id}", trace_id="demo")
    await asking.ask("trace-not-found", "GET", "/api/traces/{trace_id}", trace_id="nope")
    await asking.ask("gpu-configs", "GET", "/api/gpu-configs")


async def _runs(asking: Capture, go_on: Path) -> tuple[str, str]:
    """The finished run's id and its first sim's."""

    def asked(trace: str = "demo", config: str = "SM80_A100", count: int = 2) -> dict[str, Any]:
        return {"trace_id": trace, "entries": [{"gpu_config": config, "count": count}]}

    async def refused(name: str, body: dict[str, Any]) -> None:
        await asking.ask(name, "POST", "/api/runs", body=body)

    await refused("run-trace-not-found", asked(trace="nope"))
    await refused("run-trace-not-ready", asked(trace="demo-failed"))
    await refused("run-sample", asked(trace=SAMPLE, config="SM90_H100"))
    await refused("run-unknown-config", asked(config="SM99_X"))
    await refused("run-wrong-arch", asked(config="SM90_H100"))
    await refused("run-invalid", asked(count=0))
    run = await asking.ask("run-created", "POST", "/api/runs", body=asked())
    await _events(asking, run["id"], go_on)
    await _until(asking.http, f"/api/runs/{run['id']}", "state", {"succeeded", "failed", "partial"})
    await _until_true(asking.http, f"/api/runs/{run['id']}", _is_parsed)
    go_on.unlink()  # noqa: ASYNC240 - nothing else waits here
    await asking.ask("run", "GET", "/api/runs/{run_id}", run_id=run["id"])
    await asking.ask("run-not-found", "GET", "/api/runs/{run_id}", run_id="run-000000000000")
    await asking.ask("runs", "GET", "/api/runs")
    other = (await asking.http.post("/api/runs", json=asked(count=1))).json()
    sim_id = await _launching_sim(asking.http, other["id"])
    beat = "/api/sims/{sim_id}/heartbeat"
    await asking.ask("heartbeat", "POST", beat, body={"state": "running"}, sim_id=sim_id)
    await asking.ask("run-cancelled", "POST", "/api/runs/{run_id}/cancel", run_id=other["id"])
    await asking.ask("heartbeat-cancelled", "POST", beat, body={"state": "running"}, sim_id=sim_id)
    return str(run["id"]), str(run["sims"][0]["id"])


async def _events(asking: Capture, run_id: str, go_on: Path) -> None:
    """The first event of each kind, and the one that ends a sim. The sims begin after the first."""
    route = "/api/runs/{run_id}/events"
    path = route.format(run_id=run_id)
    seen: set[str] = set()
    async with asking.http.stream("GET", path) as stream:
        async for line in stream.aiter_lines():
            if not line.startswith("data: "):
                continue
            go_on.touch()  # noqa: ASYNC240 - nothing else waits here
            event = json.loads(line.removeprefix("data: "))
            name = f"event-{event['type']}"
            if event["type"] == "sim" and event["sim"]["state"] == "succeeded":
                name = "event-sim-finished"
            if name not in seen:
                seen.add(name)
                cut: dict[str, str] = {}
                shown = trimmed(event, cut)
                kind = "text/event-stream"
                Example("GET", path, route, 200, shown, kind, cut=cut).store(name, asking.directory)
            if name == "event-sim-finished" and "event-kernel" in seen:
                return


async def _results(asking: Capture, run_id: str, sim_id: str) -> None:
    await asking.ask("comparison", "GET", "/api/runs/{run_id}/comparison", run_id=run_id)
    await asking.ask("comparison-sample", "GET", "/api/runs/{run_id}/comparison", run_id=SAMPLE_RUN)
    await asking.ask("kernels", "GET", "/api/runs/{run_id}/kernels", run_id=run_id)
    await asking.ask("step-timelines", "GET", "/api/runs/{run_id}/step-timelines", run_id=SAMPLE_RUN)
    await _until_true(asking.http, f"/api/runs/{run_id}/estimate", _is_computed)
    await asking.ask("estimate", "GET", "/api/runs/{run_id}/estimate", run_id=run_id)
    await asking.ask("run-files", "GET", "/api/runs/{run_id}/files", run_id=run_id)
    await asking.ask("sim-files", "GET", "/api/sims/{sim_id}/files", sim_id=sim_id)
    await asking.ask("run-results", "GET", "/api/runs/{run_id}/results", run_id=run_id)
    await asking.ask("sim-results", "GET", "/api/sims/{sim_id}/results", sim_id=sim_id)
    await asking.ask("sim-log", "GET", "/api/sims/{sim_id}/log", sim_id=sim_id)
    await asking.ask("perfetto", "GET", "/api/runs/{run_id}/perfetto", run_id=run_id)


async def _simulators(asking: Capture, sim_id: str) -> None:
    beat = "/api/sims/{sim_id}/heartbeat"
    files = "/api/sims/{sim_id}/files/{name}"
    raw = {"Content-Type": "application/octet-stream"}
    await asking.ask("heartbeat-unknown", "POST", beat, body={"state": "running"}, sim_id="sim-000000000000")
    await asking.ask("heartbeat-invalid", "POST", beat, body={"state": "lost"}, sim_id=sim_id)
    chunk = {"seq": 0, "lines": ["a line that was stored before is not stored again"]}
    await asking.ask("log-chunk", "POST", "/api/sims/{sim_id}/logs", body=chunk, sim_id=sim_id)
    timeline = {"simulated": {"steps": "none"}}
    route = "/api/sims/{sim_id}/step-timeline"
    await asking.ask("step-timeline-invalid", "POST", route, body=timeline, sim_id=sim_id)
    await asking.ask(
        "file-stored", "PUT", files, content=b"uid,cycles\n", headers=raw, sim_id=sim_id, name="kernels.csv"
    )
    await asking.ask(
        "file-bad-name", "PUT", files, content=b"x", headers=raw, sim_id=sim_id, name="my file.txt"
    )
    too_large = b"\0" * TOO_LARGE_BYTES
    await asking.ask("file-too-large", "PUT", files, content=too_large, headers=raw, sim_id=sim_id, name="x")


async def _requests(asking: Capture) -> None:
    await asking.ask("scenario", "POST", "/api/scenarios", body=SCENARIO)
    both = SCENARIO | {"model": "facebook/opt-125m"}
    await asking.ask("scenario-invalid", "POST", "/api/scenarios", body=both)
    wrong = SCENARIO | {"gpu_config": "SM80_A100"}
    await asking.ask("scenario-wrong-config", "POST", "/api/scenarios", body=wrong)
    await asking.ask("completion", "POST", "/v1/completions", body=COMPLETION)
    chat = {"model": SAMPLE, "messages": [{"role": "user", "content": "Hello"}], "max_completion_tokens": 4}
    await asking.ask("chat-completion", "POST", "/v1/chat/completions", body=chat)
    await asking.ask(
        "completion-unknown-model", "POST", "/v1/completions", body={"model": "nope", "prompt": "x"}
    )
    await asking.ask("models", "GET", "/v1/models")
    await asking.ask("model", "GET", "/v1/models/{model}", model=SAMPLE)


async def _launching_sim(http: httpx.AsyncClient, run_id: str) -> str:
    """The id of the run's only sim, once it is launched."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            sim = (await http.get(f"/api/runs/{run_id}")).json()["sims"][0]
            if sim["state"] == "launching":
                return str(sim["id"])
            await asyncio.sleep(POLL_S)


async def _until(http: httpx.AsyncClient, path: str, field: str, wanted: set[str]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (await http.get(path)).json().get(field) not in wanted:  # noqa: ASYNC110 - polls another process
            await asyncio.sleep(POLL_S)


async def _until_true(http: httpx.AsyncClient, path: str, is_true: Callable[[Any], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not is_true((await http.get(path)).json()):  # noqa: ASYNC110 - polls another process
            await asyncio.sleep(POLL_S)


def _is_parsed(run: Any) -> bool:
    """Whether the last kernel of every sim was read, which may be after the sim's end."""
    return all(sim["kernels_done"] == REPLAYED_KERNELS for sim in run["sims"])


def _is_computed(estimate: Any) -> bool:
    return all(config["state"] != "computing" for config in estimate["configs"])


if __name__ == "__main__":
    asyncio.run(capture(Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY))
