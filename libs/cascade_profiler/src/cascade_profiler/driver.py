"""The process that runs the workload: `python -m cascade_profiler.driver`.

One and the same program is run bare (baseline), under Nsight (profiled), under the spinlock detector and under
the tracer; only `--mode` differs, so that the runs do the same work. Nothing is written or printed between a
step's start and end marks. It imports the engine by name, and neither vLLM nor CUDA itself.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Literal, TypeAlias, cast

from cascade_profiler.engine import Engine, EngineFactory, StepReport, TokenReport
from cascade_profiler.errors import CaptureError, ProfilerError
from cascade_profiler.steps import RequestMark, StepMark, dump_mark, step_label
from cascade_profiler.traces_folder import is_kernel_list, kernel_lines
from cascade_profiler.workload import Workload

Mode: TypeAlias = Literal["baseline", "profiled", "spinlock", "traced", "layers", "list-layers"]
MODES: tuple[Mode, ...] = ("baseline", "profiled", "spinlock", "traced", "layers", "list-layers")

MAX_IDLE_CALLS = 10_000
"""[calls] Engine calls in a row that may schedule nothing before the driver gives up instead of spinning."""

DEFAULT_ENGINE = "cascade_profiler.engine_vllm:open_engine"


class Driver:
    """Runs the repeats of one workload on one engine and writes what happened into `out`."""

    def __init__(self, engine: Engine, workload: Workload, out: Path) -> None:
        self._engine = engine
        self._workload = workload
        self._out = out
        self._calls = 0

    def run_repeats(self, *, last: int, capture_from: int | None = None) -> None:
        """Run the repeats 0 to `last`; the profiler's capture range opens before repeat `capture_from`."""
        for repeat in range(last + 1):
            if repeat == capture_from:
                self._engine.synchronize()
                self._engine.capture(on=True)
            self._run_repeat(repeat, traced=())
        if capture_from is not None:
            self._engine.synchronize()
            self._engine.capture(on=False)

    def run_traced(self, *, repeat: int, steps: Sequence[int], traces: Path) -> None:
        """Run the repeats up to `repeat` with the tracer on during `steps` of the last; write trace_steps.json."""
        spans: list[dict[str, object]] = []
        for earlier in range(repeat):
            self._run_repeat(earlier, traced=())
        self._run_repeat(repeat, traced=tuple(steps), traces=traces, spans=spans)
        document = {"trace_repeat": repeat, "steps": spans}
        (self._out / "trace_steps.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    def _run_repeat(
        self,
        repeat: int,
        *,
        traced: Sequence[int],
        traces: Path | None = None,
        spans: list[dict[str, object]] | None = None,
    ) -> None:
        engine = self._engine
        arrivals: dict[str, int] = {}
        for index, prompt in enumerate(self._workload.prompts):
            request_id = f"repeat-{repeat}-prompt-{index}"
            arrivals[request_id] = monotonic_ns()
            engine.submit(request_id, prompt)
        marks: list[StepMark] = []
        tokens: dict[str, list[tuple[int, TokenReport]]] = {request_id: [] for request_id in arrivals}
        idle = 0
        while engine.unfinished():
            step = len(marks)
            tracing = step in traced and traces is not None
            before = _list_lengths(traces) if tracing and traces is not None else {}
            label = step_label(self._calls, repeat, step)
            if tracing:
                engine.synchronize()
                engine.trace(on=True)
            engine.push_range(label)
            start_ns = monotonic_ns()
            report = engine.step()
            end_ns = monotonic_ns()
            engine.pop_range()
            if tracing:
                engine.synchronize()
                engine.trace(on=False)
            for output in report.outputs:
                tokens.setdefault(output.request_id, []).append((end_ns, output))
            self._calls += 1
            if report.num_scheduled_tokens == 0:
                idle += 1
                if idle > MAX_IDLE_CALLS:
                    raise CaptureError(f"the engine scheduled nothing in {MAX_IDLE_CALLS} calls; it hangs")
                continue
            idle = 0
            mark = _mark(
                report, call=self._calls - 1, repeat=repeat, step=step, start_ns=start_ns, end_ns=end_ns
            )
            marks.append(mark)
            if tracing and traces is not None and spans is not None:
                spans.append(_span(mark, before, _list_lengths(traces)))
        self._write(repeat, marks, arrivals, tokens)

    def _write(
        self,
        repeat: int,
        marks: Sequence[StepMark],
        arrivals: dict[str, int],
        tokens: dict[str, list[tuple[int, TokenReport]]],
    ) -> None:
        with (self._out / "steps.jsonl").open("a", encoding="utf-8") as log:
            log.writelines(map(dump_mark, marks))
        with (self._out / "requests.jsonl").open("a", encoding="utf-8") as log:
            for index, (request_id, arrival_ns) in enumerate(arrivals.items()):
                outputs = tokens[request_id]
                if outputs:
                    log.write(dump_mark(_request(repeat, index, arrival_ns, outputs)))


def _mark(report: StepReport, *, call: int, repeat: int, step: int, start_ns: int, end_ns: int) -> StepMark:
    return StepMark(
        call=call,
        repeat=repeat,
        step=step,
        kind=report.kind,
        num_reqs=report.num_reqs,
        num_scheduled_tokens=report.num_scheduled_tokens,
        start_ns=start_ns,
        end_ns=end_ns,
        max_context=report.max_context,
    )


def _request(
    repeat: int, index: int, arrival_ns: int, outputs: Sequence[tuple[int, TokenReport]]
) -> RequestMark:
    (first_ns, first), (last_ns, last) = outputs[0], outputs[-1]
    return RequestMark(
        repeat=repeat,
        prompt_index=index,
        arrival_ns=arrival_ns,
        # The engine stamps a token before its step ends; where it keeps no stamp, the step's end stands in.
        first_token_ns=last.first_token_ns or first.first_token_ns or first_ns,
        last_token_ns=last.last_token_ns or last_ns,
        token_times_ns=tuple(at_ns for at_ns, _ in outputs),
        prompt_tokens=last.prompt_tokens,
        num_output_tokens=last.num_output_tokens,
    )


def _list_lengths(traces: Path) -> dict[str, int]:
    """Return the number of kernel lines of every raw list that exists by now."""
    if not traces.is_dir():
        return {}
    return {
        path.name: len(kernel_lines(path.read_text(encoding="utf-8", errors="replace")))
        for path in sorted(traces.iterdir())
        if is_kernel_list(path.name)
    }


def _span(mark: StepMark, before: dict[str, int], after: dict[str, int]) -> dict[str, object]:
    """One traced step: which kernel lines of which raw lists it added, from `first` up to before `end`."""
    return {
        "repeat": mark.repeat,
        "step": mark.step,
        "kind": mark.kind,
        "start_ns": mark.start_ns,
        "end_ns": mark.end_ns,
        "lists": {name: {"first": before.get(name, 0), "end": end} for name, end in after.items()},
    }


def load_engine(name: str, workload: Workload) -> Engine:
    """Import `module:function` and let it load the model.

    Raises CaptureError if there is no such function, or if what it imports is not installed.
    """
    module_name, _, function_name = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), function_name or "open_engine")
    except (ImportError, AttributeError) as error:
        raise CaptureError(
            f"cannot load the engine {name!r}: {error}; is it installed in this image?"
        ) from error
    try:
        return cast(EngineFactory, factory)(workload)
    except ModuleNotFoundError as error:
        # An engine imports vLLM and torch when it opens: on a machine without them, say so instead of a traceback.
        raise CaptureError(
            f"the engine {name!r} needs {error.name}, which is not installed here; run this where vLLM and the GPU are"
        ) from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run one mode to its end. Exit code 1 with one line on stderr for what can go wrong, 0 otherwise."""
    parser = argparse.ArgumentParser(prog="cascade_profiler.driver", description=__doc__)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--workload", type=Path, required=True, help="workload.json")
    parser.add_argument("--out", type=Path, required=True, help="directory for logs and step marks")
    parser.add_argument("--engine", default=DEFAULT_ENGINE, help="module:function that opens the engine")
    parser.add_argument("--trace-repeat", type=int, default=0)
    parser.add_argument("--trace-steps", default="", help="comma-separated steps of that repeat")
    parser.add_argument(
        "--layer", action="append", default=[], help="module to trace (mode layers), repeatable"
    )
    args = parser.parse_args(argv)
    try:
        _run(args)
    except ProfilerError as error:
        print(f"cascade-profiler driver: {error}", file=sys.stderr)
        return 1
    return 0


def _run(args: argparse.Namespace) -> None:
    workload = Workload.from_dict(json.loads(args.workload.read_text(encoding="utf-8")))
    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)
    engine = load_engine(args.engine, workload)
    try:
        mode: Mode = args.mode
        if mode == "list-layers":
            layers = json.dumps(list(engine.module_names()))
            (out / "layers.json").write_text(layers + "\n", encoding="utf-8")
            return
        facts = json.dumps(engine.facts().to_dict(), indent=1)
        (out / "engine.json").write_text(facts + "\n", encoding="utf-8")
        driver = Driver(engine, workload, out)
        last = workload.repeats - 1
        match mode:
            case "baseline":
                driver.run_repeats(last=last)
            case "profiled":
                driver.run_repeats(last=last, capture_from=workload.warmup_repeats)
            case "spinlock":
                driver.run_repeats(last=args.trace_repeat)
            case "traced":
                steps = [int(step) for step in args.trace_steps.split(",") if step]
                driver.run_traced(repeat=args.trace_repeat, steps=steps, traces=out / "traces")
            case "layers":
                engine.trace_only(args.layer)
                driver.run_repeats(last=last)
    finally:
        engine.close()


if __name__ == "__main__":
    sys.exit(main())
