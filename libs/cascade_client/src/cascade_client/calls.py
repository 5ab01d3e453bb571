"""Every route of the API as a value: method, path, body, how to read the answer, and whether repeating is safe.

Pure. The clients only send these; what a route is called and how it is read stands here once, for both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter, ValidationError

from cascade_client.errors import UnexpectedAnswer
from cascade_client.wire.estimates import RunEstimate
from cascade_client.wire.health import Health, Ready
from cascade_client.wire.results import (
    Comparison,
    KernelStat,
    RunFile,
    RunResults,
    SimFile,
    SimResults,
    SimStepTimeline,
)
from cascade_client.wire.runs import RunCreate, RunDetail, RunEntry, RunSummary
from cascade_client.wire.scenarios import ScenarioRequest, ScenarioResponse
from cascade_client.wire.simulator import Heartbeat, HeartbeatAck, LogChunk, StepTimelineUpload
from cascade_client.wire.traces import GpuConfig, TraceDetail, TraceSummary

T = TypeVar("T")

SCENARIO_TIMEOUT_S: Final = 3660.0
"""The app itself gives up after CASCADE_OPENAI_WAIT_S, 3600 by default; its 504 says more than ours could."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. `T` is what its answer is read as."""

    method: str
    route: str
    """The path as the OpenAPI document has it, such as `/api/runs/{run_id}`."""
    path: str
    """The path of this call, percent-encoded."""
    read: Callable[[bytes], T]
    """Reads a successful answer's body. Raises UnexpectedAnswer."""
    idempotent: bool = True
    """Whether sending it twice does no harm: only such calls are repeated after a failure."""
    content: bytes | None = None
    content_type: str = "application/json"
    timeout_s: float | None = None
    """Longest silence of the server; the client's own setting where it is left out. [s]"""
    also_ok: tuple[int, ...] = ()
    """Error statuses whose body is the answer all the same."""


@dataclass(frozen=True, slots=True)
class Download:
    """A GET whose body is streamed."""

    route: str
    path: str


def health() -> Call[Health]:
    """Whether the app's process serves requests. Needs no token."""
    return _get("/api/health", Health)


def ready() -> Call[Ready]:
    """Whether every server behind the app answers."""
    return _get("/api/ready", Ready, also_ok=(503,))


def list_traces() -> Call[list[TraceSummary]]:
    """Every trace, newest first."""
    return _get("/api/traces", list[TraceSummary])


def get_trace(trace_id: str) -> Call[TraceDetail]:
    """One trace with its metadata and kernels."""
    return _get("/api/traces/{trace_id}", TraceDetail, trace_id=trace_id)


def list_gpu_configs() -> Call[list[GpuConfig]]:
    """The GPU configs that a run can use, by name."""
    return _get("/api/gpu-configs", list[GpuConfig])


def create_run(trace_id: str, entries: Sequence[RunEntry]) -> Call[RunDetail]:
    """Launch sims. Never repeated: after a lost answer the run may exist.

    Raises ValueError for no or too many entries.
    """
    body = RunCreate(trace_id=trace_id, entries=list(entries))
    return _post("/api/runs", _reader(RunDetail), body, idempotent=False)


def list_runs() -> Call[list[RunSummary]]:
    """Every run, newest first."""
    return _get("/api/runs", list[RunSummary])


def get_run(run_id: str) -> Call[RunDetail]:
    """One run with its trace and every sim."""
    return _get("/api/runs/{run_id}", RunDetail, run_id=run_id)


def cancel_run(run_id: str) -> Call[RunDetail]:
    """Cancel every unfinished sim. Safe to repeat."""
    return _post("/api/runs/{run_id}/cancel", _reader(RunDetail), None, run_id=run_id)


def get_comparison(run_id: str) -> Call[Comparison]:
    """Real time against simulated time per kernel and config."""
    return _get("/api/runs/{run_id}/comparison", Comparison, run_id=run_id)


def list_kernels(run_id: str) -> Call[list[KernelStat]]:
    """Every sim's finished kernels, without the full stats."""
    return _get("/api/runs/{run_id}/kernels", list[KernelStat], run_id=run_id)


def get_estimate(run_id: str) -> Call[RunEstimate]:
    """Every kernel on every config of a run, estimated, or simulated where a sim has finished it."""
    return _get("/api/runs/{run_id}/estimate", RunEstimate, run_id=run_id)


def list_step_timelines(run_id: str) -> Call[list[SimStepTimeline]]:
    """Each sim's predicted step timeline and its comparison with the measured one."""
    return _get("/api/runs/{run_id}/step-timelines", list[SimStepTimeline], run_id=run_id)


def get_run_results(run_id: str) -> Call[RunResults]:
    """Everything about a run, about 30 KB a kernel. To keep it, download it to a file."""
    return _get("/api/runs/{run_id}/results", RunResults, run_id=run_id)


def get_sim_results(sim_id: str) -> Call[SimResults]:
    """Everything about a sim, about 30 KB a kernel."""
    return _get("/api/sims/{sim_id}/results", SimResults, sim_id=sim_id)


def list_run_files(run_id: str) -> Call[list[RunFile]]:
    """The output files of a run's sims."""
    return _get("/api/runs/{run_id}/files", list[RunFile], run_id=run_id)


def list_sim_files(sim_id: str) -> Call[list[SimFile]]:
    """The output files of a sim."""
    return _get("/api/sims/{sim_id}/files", list[SimFile], sim_id=sim_id)


def create_scenario(scenario: ScenarioRequest) -> Call[ScenarioResponse]:
    """Simulate a serving scenario. Never repeated: it may have launched a base run."""
    return _post(
        "/api/scenarios", _reader(ScenarioResponse), scenario, idempotent=False, timeout_s=SCENARIO_TIMEOUT_S
    )


def download_run_results(run_id: str) -> Download:
    """The run's results as a JSON file."""
    return _download("/api/runs/{run_id}/results", run_id=run_id)


def download_perfetto(run_id: str) -> Download:
    """The run's kernels as a Chrome trace for ui.perfetto.dev."""
    return _download("/api/runs/{run_id}/perfetto", run_id=run_id)


def download_sim_results(sim_id: str) -> Download:
    """The sim's results as a JSON file."""
    return _download("/api/sims/{sim_id}/results", sim_id=sim_id)


def download_log(sim_id: str) -> Download:
    """The sim's whole output as text."""
    return _download("/api/sims/{sim_id}/log", sim_id=sim_id)


def download_file(sim_id: str, name: str) -> Download:
    """One output file as the sim stored it."""
    return _download("/api/sims/{sim_id}/files/{name}", sim_id=sim_id, name=name)


def stream_events(run_id: str) -> Download:
    """The run's event stream."""
    return _download("/api/runs/{run_id}/events", run_id=run_id)


def send_heartbeat(sim_id: str, heartbeat: Heartbeat) -> Call[HeartbeatAck]:
    """Report a sim's state. For simulators."""
    return _post("/api/sims/{sim_id}/heartbeat", _reader(HeartbeatAck), heartbeat, sim_id=sim_id)


def send_log(sim_id: str, chunk: LogChunk) -> Call[None]:
    """Append output. For simulators."""
    return _post("/api/sims/{sim_id}/logs", _nothing, chunk, sim_id=sim_id)


def send_step_timeline(sim_id: str, timeline: StepTimelineUpload) -> Call[None]:
    """Store step timing. For simulators."""
    return _post("/api/sims/{sim_id}/step-timeline", _nothing, timeline, sim_id=sim_id)


def send_file(sim_id: str, name: str, content: bytes) -> Call[SimFile]:
    """Store an output file. For simulators."""
    route = "/api/sims/{sim_id}/files/{name}"
    return Call(
        "PUT",
        route,
        _filled(route, {"sim_id": sim_id, "name": name}),
        _reader(SimFile),
        content=content,
        content_type="application/octet-stream",
    )


def _get(route: str, answer: type[T], *, also_ok: tuple[int, ...] = (), **keys: str) -> Call[T]:
    return Call("GET", route, _filled(route, keys), _reader(answer), also_ok=also_ok)


def _post(
    route: str,
    read: Callable[[bytes], T],
    body: BaseModel | None,
    *,
    idempotent: bool = True,
    timeout_s: float | None = None,
    **keys: str,
) -> Call[T]:
    return Call(
        "POST",
        route,
        _filled(route, keys),
        read,
        idempotent=idempotent,
        # Left-out fields stay out: the app tells them from nulls.
        content=None if body is None else body.model_dump_json(exclude_none=True).encode(),
        timeout_s=timeout_s,
    )


def _download(route: str, **keys: str) -> Download:
    return Download(route, _filled(route, keys))


def _filled(route: str, keys: dict[str, str]) -> str:
    path = route
    for name, value in keys.items():
        # A lone dot segment would be resolved away by every HTTP library.
        escaped = quote(value, safe="") if value not in (".", "..") else value.replace(".", "%2E")
        path = path.replace(f"{{{name}}}", escaped)
    return path


def _reader(answer: type[T]) -> Callable[[bytes], T]:
    adapter: TypeAdapter[T] = TypeAdapter(answer)

    def read(body: bytes) -> T:
        try:
            return adapter.validate_json(body)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, problem["loc"])) or "the body"
            raise UnexpectedAnswer(
                f"the answer is not what this client expects ({where}: {problem['msg']}). Is the URL that of a "
                "Cascade app, and of the same version?"
            ) from error

    return read


def _nothing(_body: bytes) -> None:
    return None
