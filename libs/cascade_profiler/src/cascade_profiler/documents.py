"""`run.json`, `workload.json`, `metadata.json` and the timeline's `meta`: what a run says about itself. Pure.

Field names are the ones that Cascade's other parts read; see the samples. Credentials cannot get in: nothing
here sees an environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cascade_profiler.engine import EngineFacts
from cascade_profiler.gpus import gpu_arch, sim_config
from cascade_profiler.options import ProfileOptions, S3Destination
from cascade_profiler.steps import RequestMark
from cascade_profiler.workload import Workload


@dataclass(slots=True)
class RunRecord:
    """Everything that `run.json` will say, filled stage by stage.

    stage_wall_s: [s] wall time of each stage that ran.
    """

    run_name: str
    workload: Workload
    options: ProfileOptions
    profiler_version: str
    started_at: str
    status: str = "running"
    error: str | None = None
    failed_stage: str | None = None
    upload_error: str | None = None
    engine: EngineFacts | None = None
    sm_clock_mhz_median: float | None = None
    mem_clock_mhz: float | None = None
    trace_repeat: int | None = None
    trace_steps: Sequence[int] = ()
    prompt_tokens: int | None = None
    alignment: Mapping[str, object] | None = None
    postprocessed: bool = False
    stage_wall_s: dict[str, float] = field(default_factory=dict)

    @property
    def destination(self) -> S3Destination | None:
        """Where the run goes besides its directory."""
        return self.options.s3


def exec_mode(workload: Workload) -> str:
    """Return `eager` or `graph`."""
    return "eager" if workload.enforce_eager else "graph"


def workload_json(record: RunRecord) -> dict[str, object]:
    """Return `workload.json`: the workload and what its prompts came to."""
    return {**record.workload.to_dict(), "prompt_tokens": record.prompt_tokens}


def run_json(record: RunRecord) -> dict[str, object]:
    """Return `run.json`. Fields that a failed run never learnt are null."""
    engine = record.engine
    document: dict[str, object] = {
        "run_name": record.run_name,
        "status": record.status,
        "error": record.error,
        "failed_stage": record.failed_stage,
        "started_at": record.started_at,
        "profiler_version": record.profiler_version,
        "model": record.workload.model,
        "gpu": None if engine is None else engine.gpu_name,
        "trace_gpu_arch": None if engine is None else gpu_arch(engine.compute_capability),
        "vllm_version": None if engine is None else engine.vllm_version,
        "exec_mode": exec_mode(record.workload),
        "async_scheduling": None if engine is None else engine.async_scheduling,
        "gpu_memory_utilization": record.workload.gpu_memory_utilization,
        "sm_clock_mhz_median": record.sm_clock_mhz_median,
        "mem_clock_mhz": record.mem_clock_mhz,
        "model_config": None if engine is None else dict(engine.model_config),
        "trace_steps": list(record.trace_steps),
        "trace_repeat": record.trace_repeat,
        "spinlock_handling": record.options.spinlock_handling,
        "postprocessed": record.postprocessed,
        "alignment": record.alignment,
        "stage_wall_s": {stage: round(wall, 6) for stage, wall in record.stage_wall_s.items()},
    }
    if record.destination is not None:
        document["s3"] = {**record.destination.to_dict(), "uri": record.destination.uri(record.run_name)}
        document["upload_error"] = record.upload_error
    return document


def metadata_json(record: RunRecord, *, layers: Sequence[str] = (), real_timing: bool) -> dict[str, object]:
    """Return `metadata.json`, the description of the trace that an app lists."""
    engine = record.engine
    config = None if engine is None else sim_config(engine.gpu_name)
    document: dict[str, object] = {
        "status": record.status,
        "run_name": record.run_name,
        "model": record.workload.model,
        "layers": list(layers),
        "prompts": list(record.workload.prompts),
        "max_tokens": record.workload.max_tokens,
        "profiler_version": record.profiler_version,
        "spinlock_handling": record.options.spinlock_handling,
    }
    if engine is not None:
        document |= {
            "gpu": engine.gpu_name,
            "trace_gpu_arch": gpu_arch(engine.compute_capability),
            "vllm_version": engine.vllm_version,
        }
    if config is not None:
        document |= {"suggested_sim_config": config, "real_gpu_config": config}
    if record.trace_steps:
        document |= {"trace_repeat": record.trace_repeat, "trace_steps": list(record.trace_steps)}
    if real_timing:
        document["real_timing"] = "real_timing.json"
    if record.error is not None:
        document["error"] = record.error
    if record.destination is not None:
        document["s3"] = {**record.destination.to_dict(), "uri": record.destination.uri(record.run_name)}
    return document


def timeline_meta(record: RunRecord) -> dict[str, object]:
    """Return the `meta` of `corrected_timeline.json`."""
    engine = record.engine
    return {
        "run_name": record.run_name,
        "model": record.workload.model,
        "prompt": record.workload.prompts[0],
        "max_tokens": record.workload.max_tokens,
        "repeats": record.workload.repeats,
        "exec_mode": exec_mode(record.workload),
        "gpu_name": None if engine is None else engine.gpu_name,
        "sm_clock_mhz_median": record.sm_clock_mhz_median,
        "mem_clock_mhz": record.mem_clock_mhz,
        "vllm_version": None if engine is None else engine.vllm_version,
        "layerwise_nvtx": False,
    }


def prompt_tokens(requests: Sequence[RequestMark]) -> int | None:
    """Return the tokens of the first prompt as the engine counted them, or None if it does not tell.
    [tokens]"""
    return next(
        (r.prompt_tokens for r in requests if r.prompt_index == 0 and r.prompt_tokens is not None), None
    )
