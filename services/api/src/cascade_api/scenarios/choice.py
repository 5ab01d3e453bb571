"""Which trace and which GPU config a scenario means. Pure.

spec: request-simulation, "Build a profile from a finished sim", 1.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cascade_core.errors import NotFound, Refused
from cascade_core.traces.state import Trace, TraceState

from cascade_api.wire.traces import GpuConfig, TraceSummary

TARGETS = ("SM90_H100", "SM90_H200", "SM80_A100")
"""GPU configs that the request model has data sheets of."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a scenario is simulated on."""

    trace_id: str
    config: GpuConfig


def choose_config(
    gpu_config: str | None, suggested: Sequence[str | None], configs: Mapping[str, GpuConfig]
) -> GpuConfig:
    """The config that was asked for, else the first suggested one that the request model covers.

    suggested: what the trace's metadata proposes, best first. Raises Refused (422).
    """
    name = gpu_config or next((name for name in suggested if name in TARGETS), None)
    if name is None:
        raise Refused(f"the trace suggests no supported gpu_config; give one of {', '.join(TARGETS)}")
    if name not in TARGETS:
        raise Refused(
            f"gpu_config {name!r} is not supported for request simulation; expected one of {', '.join(TARGETS)}"
        )
    config = configs.get(name)
    if config is None:
        raise Refused(f"unknown gpu_config {name!r}: it is not installed in this app's registry")
    return config


def choose_trace_id(
    model: str, gpu_config: str | None, traces: Sequence[TraceSummary], configs: Mapping[str, GpuConfig]
) -> str:
    """The newest ready trace of `model`; among several, one of the config's architecture goes first.

    traces: newest first. Raises NotFound.
    """
    ready = [trace for trace in traces if trace.model == model and trace.state is TraceState.READY]
    if not ready:
        raise NotFound(f"no ready trace of model {model!r}{_hint(traces)}")
    config = configs.get(gpu_config) if gpu_config is not None else None
    arch = config.arch if config is not None else None
    return next((trace for trace in ready if trace.trace_gpu_arch == arch), ready[0]).id


def check_trace(trace: Trace, config: GpuConfig) -> None:
    """Raise Refused where the trace is not ready (409) or was captured on another architecture (422)."""
    if trace.state is not TraceState.READY:
        raise Refused(f"trace {trace.trace_id} is {trace.state}, not ready", status=409)
    if config.arch != trace.gpu_arch:
        raise Refused(f"{config.name} is {config.arch} but trace {trace.trace_id} is {trace.gpu_arch}")


def check_can_be_timed(trace: Trace) -> None:
    """Raise Refused where a new base run could never give step timing, however long it took."""
    if not trace.has_step_timeline:
        raise Refused(
            f"trace {trace.trace_id} has no step timeline: upload corrected_timeline.json and kernel_mapping.json with "
            "it, then ask again"
        )


def _hint(traces: Collection[TraceSummary]) -> str:
    names = sorted({trace.model for trace in traces if trace.model and trace.state is TraceState.READY})
    return f"; ready models are {', '.join(names[:10])}" if names else "; no trace is ready yet"
