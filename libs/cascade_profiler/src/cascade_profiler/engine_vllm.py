"""The thin layer that needs a GPU: one in-process vLLM engine, NVTX ranges, profiler and tracer switches.

Nothing here decides anything. vLLM and torch are imported by name when an engine is opened, since they exist only
in the GPU image; their objects are untyped, and end here. Written against vLLM 0.21's V1 engine in one process
(`VLLM_ENABLE_V1_MULTIPROCESSING=0`), whose step is synchronous with `async_scheduling=False`, so that a step's end
means that the GPU has finished it.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

from cascade_profiler.engine import EngineFacts, StepReport, TokenReport
from cascade_profiler.errors import CaptureError
from cascade_profiler.steps import StepKind
from cascade_profiler.workload import Workload

NS_PER_S = 1_000_000_000

_CONFIG_FIELDS = (
    "architectures",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "ffn_dim",
    "vocab_size",
    "max_position_embeddings",
)
"""Fields of the Hugging Face configuration that the request model reads from `run.json`."""


class _SchedulerOutput(Protocol):
    """The part of vLLM's SchedulerOutput that is read here."""

    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int


def open_engine(workload: Workload) -> VllmEngine:
    """Load the workload's model on this machine's GPU."""
    return VllmEngine(workload)


class VllmEngine:
    """`engine.Engine` on vLLM."""

    def __init__(self, workload: Workload) -> None:
        self._torch = importlib.import_module("torch")
        self._vllm = importlib.import_module("vllm")
        self._workload = workload
        llm = self._vllm.LLM(
            model=workload.model,
            revision=workload.revision,
            dtype=workload.dtype,
            enforce_eager=workload.enforce_eager,
            max_model_len=workload.max_model_len,
            gpu_memory_utilization=workload.gpu_memory_utilization,
            seed=workload.seed,
            trust_remote_code=workload.trust_remote_code,
            enable_prefix_caching=False,  # a cached prefill would do less work in every repeat after the first
            async_scheduling=False,
            disable_log_stats=False,  # keeps the token stamps
        )
        self._llm = llm
        self._engine = llm.llm_engine
        core = getattr(self._engine.engine_core, "engine_core", None)
        if core is None:
            raise CaptureError(
                "vLLM runs its engine in another process; set VLLM_ENABLE_V1_MULTIPROCESSING=0"
            )
        self._scheduled: _SchedulerOutput | None = None
        self._contexts: dict[str, int] = {}
        self._watch(core.scheduler)
        self._tracer = _load_tracer(os.environ.get("CUDA_INJECTION64_PATH"))

    def _watch(self, scheduler: object) -> None:
        """Keep the last scheduler output: vLLM's step reports tokens, not what was scheduled for them."""
        schedule = cast(Callable[..., _SchedulerOutput], scheduler.schedule)  # type: ignore[attr-defined]

        def watched(*args: object, **kwargs: object) -> _SchedulerOutput:
            self._scheduled = schedule(*args, **kwargs)
            return self._scheduled

        scheduler.schedule = watched  # type: ignore[attr-defined]

    def facts(self) -> EngineFacts:
        config = self._engine.model_config
        hf = getattr(config, "hf_text_config", config.hf_config)
        fields = {name: value for name in _CONFIG_FIELDS if (value := getattr(hf, name, None)) is not None}
        fields.setdefault("architectures", getattr(config.hf_config, "architectures", None))
        # Some configurations (OPT's) leave these two to be worked out, which vLLM has done.
        fields.setdefault("num_key_value_heads", int(config.get_total_num_kv_heads()))
        fields.setdefault("head_dim", int(config.get_head_size()))
        return EngineFacts(
            vllm_version=str(self._vllm.__version__),
            gpu_name=str(self._torch.cuda.get_device_name(0)),
            compute_capability=tuple(self._torch.cuda.get_device_capability(0)),
            async_scheduling=False,
            model_config=fields
            | {
                "dtype": str(config.dtype).removeprefix("torch."),
                "quantization": config.quantization,
                "tensor_parallel_size": 1,
                "max_model_len": int(config.max_model_len),
            },
        )

    def submit(self, request_id: str, prompt: str) -> None:
        params = self._vllm.SamplingParams(
            temperature=0.0, max_tokens=self._workload.max_tokens, ignore_eos=True, seed=self._workload.seed
        )
        self._contexts[request_id] = 0
        self._engine.add_request(request_id, prompt, params)

    def unfinished(self) -> bool:
        return bool(self._engine.has_unfinished_requests())

    def step(self) -> StepReport:
        self._scheduled = None
        outputs = self._engine.step()
        scheduled = self._last_scheduled()
        if scheduled is None or scheduled.total_num_scheduled_tokens == 0:
            return StepReport(kind="decode", num_reqs=0, num_scheduled_tokens=0)
        kind: StepKind = "decode"
        for full_id, tokens in scheduled.num_scheduled_tokens.items():
            request_id = _own_id(full_id, self._contexts)
            if tokens > 1 or self._contexts.get(request_id, 0) == 0:
                kind = "prefill"
            self._contexts[request_id] = self._contexts.get(request_id, 0) + tokens
        reports = [self._report(output) for output in outputs]
        running = list(self._contexts.values())
        for report in reports:
            if report.finished:
                self._contexts.pop(report.request_id, None)
        return StepReport(
            kind=kind,
            num_reqs=len(scheduled.num_scheduled_tokens),
            num_scheduled_tokens=scheduled.total_num_scheduled_tokens,
            outputs=reports,
            max_context=max(running, default=None),
        )

    def _last_scheduled(self) -> _SchedulerOutput | None:
        """What `watched` kept during the step; read through a call, since a checker cannot see that it changed."""
        return self._scheduled

    def _report(self, output: object) -> TokenReport:
        metrics = getattr(output, "metrics", None)
        prompt = getattr(output, "prompt_token_ids", None)
        return TokenReport(
            request_id=str(output.request_id),  # type: ignore[attr-defined]
            num_output_tokens=len(output.outputs[0].token_ids),  # type: ignore[attr-defined]
            finished=bool(output.finished),  # type: ignore[attr-defined]
            prompt_tokens=None if prompt is None else len(prompt),
            first_token_ns=_stamp(metrics, "first_token_ts"),
            last_token_ns=_stamp(metrics, "last_token_ts"),
        )

    def push_range(self, label: str) -> None:
        self._torch.cuda.nvtx.range_push(label)

    def pop_range(self) -> None:
        self._torch.cuda.nvtx.range_pop()

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def capture(self, *, on: bool) -> None:
        if on:
            self._torch.cuda.profiler.start()
        else:
            self._torch.cuda.profiler.stop()

    def trace(self, *, on: bool) -> None:
        if self._tracer is None:
            raise CaptureError(
                "no tracer is loaded that can be switched; CUDA_INJECTION64_PATH must name the tracer_tool.so of "
                "Accel-Sim 2.0 or newer (it exports enable_nvbit_instrumentation)"
            )
        switch = (
            self._tracer.enable_nvbit_instrumentation if on else self._tracer.disable_nvbit_instrumentation
        )
        switch()

    def module_names(self) -> Sequence[str]:
        return [name for name, _ in self._model().named_modules() if name]

    def trace_only(self, layers: Sequence[str]) -> None:
        modules = dict(self._model().named_modules())
        unknown = [layer for layer in layers if layer not in modules]
        if unknown or not layers:
            raise CaptureError(
                f"the model has no module {', '.join(unknown) or '(none given)'}; see --list-layers"
            )
        for layer in layers:
            modules[layer].register_forward_pre_hook(lambda *_: self.trace(on=True))
            modules[layer].register_forward_hook(lambda *_: self.trace(on=False))

    def close(self) -> None:
        shutdown = getattr(self._engine.engine_core, "shutdown", None)
        if shutdown is not None:
            shutdown()

    def _model(self) -> _Module:
        core = self._engine.engine_core.engine_core
        worker = core.model_executor.driver_worker
        runner = getattr(worker, "model_runner", None) or worker.worker.model_runner
        return cast(_Module, runner.get_model() if hasattr(runner, "get_model") else runner.model)


class _Module(Protocol):
    """The part of torch.nn.Module that is used here."""

    def named_modules(self) -> Sequence[tuple[str, _Module]]:
        """Return every module with its path."""

    def register_forward_pre_hook(self, hook: Callable[..., None]) -> object:
        """Call `hook` before every forward pass."""

    def register_forward_hook(self, hook: Callable[..., None]) -> object:
        """Call `hook` after every forward pass."""


class _Tracer(Protocol):
    """The functions that the tracer exports for switching it. Source: Accel-Sim 2.0, tracer_tool.cu."""

    def enable_nvbit_instrumentation(self) -> None:
        """Trace launches from now on."""

    def disable_nvbit_instrumentation(self) -> None:
        """Stop tracing launches."""


def _load_tracer(path: str | None) -> _Tracer | None:
    if not path:
        return None
    library = ctypes.CDLL(path)  # already in the process: CUDA injected it
    try:
        for name in ("enable_nvbit_instrumentation", "disable_nvbit_instrumentation"):
            getattr(library, name).restype = None
    except AttributeError:  # the spinlock detector, or a tracer before 2.0
        return None
    return cast(_Tracer, library)


def _own_id(full_id: str, known: Mapping[str, int]) -> str:
    """Return the id that a request was submitted with: newer vLLM versions append `-<random>` to it inside."""
    return (
        full_id
        if full_id in known
        else next((name for name in known if full_id.startswith(f"{name}-")), full_id)
    )


def _stamp(metrics: object, name: str) -> int | None:
    """Return one of vLLM's monotonic stamps in ns, or None where it keeps none (0.0)."""
    value = getattr(metrics, name, None)
    return round(value * NS_PER_S) if isinstance(value, float) and value > 0 else None
