"""The async client: one method a route, answers as typed values, failures as `ClientError`.

`client.py` is made from this file by `scripts/build_sync_client.py`: change only this one.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx

from cascade_client import calls, connection, gathering
from cascade_client.calls import Call, Download
from cascade_client.drafts import Draft
from cascade_client.errors import ClientError, Unreachable
from cascade_client.lines import LineReader
from cascade_client.progress import RunProgress
from cascade_client.provenance import Statement
from cascade_client.report import Report
from cascade_client.retry import STREAM_RETRIES, RetryPolicy
from cascade_client.sse import SseReader
from cascade_client.wire.estimates import RunEstimate
from cascade_client.wire.events import RunEvent
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
from cascade_client.wire.runs import RunDetail, RunEntry, RunSummary
from cascade_client.wire.scenarios import ScenarioRequest, ScenarioResponse
from cascade_client.wire.simulator import Heartbeat, HeartbeatAck, LogChunk, StepTimelineUpload
from cascade_client.wire.traces import GpuConfig, TraceDetail, TraceSummary

T = TypeVar("T")


class AsyncCascadeClient:
    """A connection to one app. Use it in an `async with` block, or `close` it.

    url: the app's base URL. token: its bearer token; None for an app that runs without.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = connection.TIMEOUT_S,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.url = connection.checked_url(url)
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers=connection.headers_of(token),
            timeout=connection.timeout_of(timeout_s),
        )
        self._retry = retry or RetryPolicy()
        self._sleep = sleep

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def health(self) -> Health:
        """Whether the app's process serves requests. Needs no token."""
        return await self.send(calls.health())

    async def ready(self) -> Ready:
        """Whether every server behind the app answers."""
        return await self.send(calls.ready())

    async def traces(self) -> list[TraceSummary]:
        """Every trace, newest first."""
        return await self.send(calls.list_traces())

    async def trace(self, trace_id: str) -> TraceDetail:
        """One trace with its metadata and kernels."""
        return await self.send(calls.get_trace(trace_id))

    async def gpu_configs(self) -> list[GpuConfig]:
        """The GPU configs that a run can use, by name."""
        return await self.send(calls.list_gpu_configs())

    async def launch(self, trace_id: str, entries: Sequence[RunEntry]) -> RunDetail:
        """Launch sims for a ready trace. Never repeated: after a lost answer look at `runs` first.

        Raises ClientError, and ValueError without entries or with more than 1,000; so does a RunEntry whose count is
        not from 1 to 64.
        """
        return await self.send(calls.create_run(trace_id, entries))

    async def runs(self) -> list[RunSummary]:
        """Every run, newest first."""
        return await self.send(calls.list_runs())

    async def run(self, run_id: str) -> RunDetail:
        """One run with its trace and every sim."""
        return await self.send(calls.get_run(run_id))

    async def cancel(self, run_id: str) -> RunDetail:
        """Cancel every unfinished sim; the run afterwards."""
        return await self.send(calls.cancel_run(run_id))

    async def comparison(self, run_id: str) -> Comparison:
        """Real time against simulated time per kernel and config."""
        return await self.send(calls.get_comparison(run_id))

    async def kernels(self, run_id: str) -> list[KernelStat]:
        """Every sim's finished kernels, without the full stats."""
        return await self.send(calls.list_kernels(run_id))

    async def estimate(self, run_id: str) -> RunEstimate:
        """Every kernel on every config, estimated, or simulated where a sim has finished it."""
        return await self.send(calls.get_estimate(run_id))

    async def step_timelines(self, run_id: str) -> list[SimStepTimeline]:
        """Each sim's predicted step timeline."""
        return await self.send(calls.list_step_timelines(run_id))

    async def run_results(self, run_id: str) -> RunResults:
        """Everything about a run, about 30 KB a kernel."""
        return await self.send(calls.get_run_results(run_id))

    async def sim_results(self, sim_id: str) -> SimResults:
        """Everything about a sim, about 30 KB a kernel."""
        return await self.send(calls.get_sim_results(sim_id))

    async def run_files(self, run_id: str) -> list[RunFile]:
        """The output files of a run's sims."""
        return await self.send(calls.list_run_files(run_id))

    async def sim_files(self, sim_id: str) -> list[SimFile]:
        """The output files of a sim."""
        return await self.send(calls.list_sim_files(sim_id))

    async def scenario(self, scenario: ScenarioRequest) -> ScenarioResponse:
        """Simulate a serving scenario; waits for its base run. Never repeated."""
        return await self.send(calls.create_scenario(scenario))

    async def send_heartbeat(self, sim_id: str, heartbeat: Heartbeat) -> HeartbeatAck:
        """Report a sim's state. For simulators."""
        return await self.send(calls.send_heartbeat(sim_id, heartbeat))

    async def send_log(self, sim_id: str, chunk: LogChunk) -> None:
        """Append output. For simulators."""
        await self.send(calls.send_log(sim_id, chunk))

    async def send_step_timeline(self, sim_id: str, timeline: StepTimelineUpload) -> None:
        """Store step timing. For simulators."""
        await self.send(calls.send_step_timeline(sim_id, timeline))

    async def send_file(self, sim_id: str, name: str, content: bytes) -> SimFile:
        """Store an output file. For simulators."""
        return await self.send(calls.send_file(sim_id, name, content))

    async def save_run_results(self, run_id: str, target: Path) -> int:
        """The run's results as a JSON file; its size. [bytes]"""
        return await self.save(calls.download_run_results(run_id), target)

    async def save_perfetto(self, run_id: str, target: Path) -> int:
        """The run's kernels as a Chrome trace; its size. [bytes]"""
        return await self.save(calls.download_perfetto(run_id), target)

    async def save_sim_results(self, sim_id: str, target: Path) -> int:
        """The sim's results as a JSON file; its size. [bytes]"""
        return await self.save(calls.download_sim_results(sim_id), target)

    async def save_log(self, sim_id: str, target: Path) -> int:
        """The sim's whole output; its size. [bytes]"""
        return await self.save(calls.download_log(sim_id), target)

    async def save_file(self, sim_id: str, name: str, target: Path) -> int:
        """One output file as the sim stored it; its size. [bytes]"""
        return await self.save(calls.download_file(sim_id, name), target)

    async def log_lines(self, sim_id: str) -> AsyncGenerator[str, None]:
        """The sim's output line by line, without holding it in memory."""
        reader = LineReader()
        async with self._streamed(calls.download_log(sim_id)) as pieces:
            async for piece in pieces:
                for line in reader.feed(piece):
                    yield line
        for line in reader.close():
            yield line

    async def events(self, run_id: str, *, until_finished: bool = True) -> AsyncGenerator[RunEvent, None]:
        """The run's events: a snapshot, then every change. A broken stream is opened again: a new snapshot follows.

        until_finished: end after the event that brings the last sim to an end; otherwise never end.
        Raises NotFound and Unauthorized at once, and Unreachable after several failures in a row.
        """
        progress = RunProgress()
        failures = 0
        while True:
            problem: ClientError = Unreachable(f"{self.url} ended the event stream of {run_id}")
            try:
                reader = SseReader()
                async with self._streamed(calls.stream_events(run_id)) as pieces:
                    async for piece in pieces:
                        for event in reader.feed(piece):
                            failures = 0
                            progress.take(event)
                            yield event
                            if until_finished and progress.finished:
                                return
            except ClientError as error:
                problem = error
            failures += 1
            wait_s = STREAM_RETRIES.wait_s(problem, failures=failures, idempotent=True)
            if wait_s is None:
                raise problem
            await self._sleep(wait_s)

    async def report(self, run_id: str) -> Report:
        """What the run found, with how far it can be trusted on top."""
        return await self._gathered(gathering.gather_report(run_id, datetime.now(UTC)))

    async def statements(self, run: RunDetail, *, sim_id: str | None = None) -> list[Statement]:
        """What must be said before any of the run's numbers, the gravest first.

        sim_id: before the numbers of this sim of it alone.
        """
        return await self._gathered(gathering.gather_statements(run, sim_id))

    async def _gathered(self, steps: Generator[gathering.Step, object, T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._answer(step)
                except ClientError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            gathered: T = end.value
            return gathered

    async def _answer(self, step: gathering.Step) -> object:
        match step:
            case Call():
                return await self.send(step)
            case gathering.SearchLog(sim_id=sim_id):
                search = gathering.LogSearch()
                async for line in self.log_lines(sim_id):
                    search.take(line)
                return search.found
            case gathering.Pause(seconds=seconds):
                await self._sleep(seconds)
                return None

    async def send(self, call: Call[T]) -> T:
        """Send one call, again after a failure if that is safe; its answer. Raises ClientError."""
        timeout = (
            httpx.USE_CLIENT_DEFAULT if call.timeout_s is None else connection.timeout_of(call.timeout_s)
        )
        content_type = {"Content-Type": call.content_type} if call.content is not None else {}
        failures = 0
        while True:
            try:
                response = await self._http.request(
                    call.method, call.path, content=call.content, headers=content_type, timeout=timeout
                )
                return connection.answer_of(call, response)
            except httpx.RequestError as error:
                problem: ClientError = connection.unreachable(self.url, error)
            except ClientError as error:
                problem = error
            failures += 1
            wait_s = self._retry.wait_s(problem, failures=failures, idempotent=call.idempotent)
            if wait_s is None:
                raise problem
            await self._sleep(wait_s)

    async def save(
        self, download: Download, target: Path, *, written: Callable[[int], None] | None = None
    ) -> int:
        """Stream a download to `target`, which appears only when it is complete; its size. [bytes]

        written: hears how many bytes are there; fewer again where the download had to start anew.
        Raises ClientError, OSError.
        """
        draft = Draft(target)
        failures = 0
        try:
            while True:
                try:
                    await asyncio.to_thread(draft.open)
                    size_bytes = 0
                    async with self._streamed(download) as pieces:
                        async for piece in pieces:
                            await asyncio.to_thread(draft.write, piece)
                            size_bytes += len(piece)
                            if written is not None:
                                written(size_bytes)
                    return await asyncio.to_thread(draft.finish)
                except ClientError as error:
                    failures += 1
                    wait_s = self._retry.wait_s(error, failures=failures, idempotent=True)
                    if wait_s is None:
                        raise
                await self._sleep(wait_s)
        finally:
            draft.discard()

    @asynccontextmanager
    async def _streamed(self, download: Download) -> AsyncIterator[AsyncIterator[bytes]]:
        try:
            async with self._http.stream(
                "GET", download.path, timeout=connection.timeout_of(connection.SILENCE_S)
            ) as response:
                if not response.is_success:
                    await response.aread()
                    raise connection.failure_of(response)
                yield response.aiter_bytes()
        except httpx.RequestError as error:
            raise connection.unreachable(self.url, error) from error
