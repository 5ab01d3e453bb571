"""The port between the driver and an inference engine on a GPU.

There are two implementations: vLLM (`engine_vllm`, the only module that needs a GPU) and the stand-in for tests
(`testing.fake_engine`). The driver knows nothing of either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from cascade_profiler.errors import CaptureError
from cascade_profiler.steps import StepKind
from cascade_profiler.workload import Workload


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the engine and its GPU are, for `run.json`.

    compute_capability: (major, minor) of the GPU.
    model_config: the fields of the model's configuration that the request model reads; see `run.json`.
    """

    vllm_version: str
    gpu_name: str
    compute_capability: tuple[int, int]
    async_scheduling: bool = False
    model_config: Mapping[str, object] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return the facts as JSON for `engine.json`."""
        return {**asdict(self), "compute_capability": list(self.compute_capability)}

    @classmethod
    def from_json(cls, text: str) -> EngineFacts:
        """Read the `engine.json` that the driver wrote. Raises CaptureError if it is something else."""
        try:
            raw = json.loads(text)
            major, minor = raw["compute_capability"]
            return cls(
                vllm_version=str(raw["vllm_version"]),
                gpu_name=str(raw["gpu_name"]),
                compute_capability=(int(major), int(minor)),
                async_scheduling=bool(raw["async_scheduling"]),
                model_config=dict(raw["model_config"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CaptureError(
                f"engine.json is not what the driver writes ({error!r}); it was cut off"
            ) from error


@dataclass(frozen=True, slots=True)
class TokenReport:
    """New output of one request after a step.

    finished: whether this was its last token.
    first_token_ns, last_token_ns: [ns] the engine's own stamps, on the driver's clock, where it keeps them.
    """

    request_id: str
    num_output_tokens: int
    finished: bool
    prompt_tokens: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one engine call did. An engine may be called without scheduling anything: zero tokens."""

    kind: StepKind
    num_reqs: int
    num_scheduled_tokens: int
    outputs: Sequence[TokenReport] = ()
    max_context: int | None = None


class Engine(Protocol):
    """One loaded model on one GPU, driven step by step in this process."""

    def facts(self) -> EngineFacts:
        """Return what runs here."""

    def submit(self, request_id: str, prompt: str) -> None:
        """Queue a request for the next step."""

    def unfinished(self) -> bool:
        """Return whether any request still needs steps."""

    def step(self) -> StepReport:
        """Run one step to its end, output tokens included."""

    def push_range(self, label: str) -> None:
        """Open an NVTX range."""

    def pop_range(self) -> None:
        """Close the NVTX range opened last."""

    def synchronize(self) -> None:
        """Wait until the GPU has done everything."""

    def capture(self, *, on: bool) -> None:
        """Start or stop the capture range of an attached profiler."""

    def trace(self, *, on: bool) -> None:
        """Start or stop instruction tracing. Raises CaptureError if no tracer is loaded that can."""

    def module_names(self) -> Sequence[str]:
        """Return the paths of the model's modules, such as `model.decoder.layers.10.self_attn`."""

    def trace_only(self, layers: Sequence[str]) -> None:
        """Trace inside the forward passes of these modules from now on. Raises CaptureError for unknown ones."""

    def close(self) -> None:
        """Free the GPU."""


class EngineFactory(Protocol):
    """How an engine is made: named as `module:function` on the driver's command line."""

    def __call__(self, workload: Workload) -> Engine:
        """Load the workload's model."""
