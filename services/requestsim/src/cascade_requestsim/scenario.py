"""`run_scenario`: a scenario request and a profile in, the whole answer out.

Field names are those of the golden scenarios. Metrics and provenance counts always come from all
executed steps; only the step records are thinned when there are too many of them.
"""

from dataclasses import dataclass

import numpy as np
from cascade_core.scenarios.answer import ScenarioResponse, SchedulerRow
from cascade_core.scenarios.request import ScenarioRequest, SchedulerBody

from cascade_requestsim.kv_cache import kv_block_capacity
from cascade_requestsim.metrics import aggregate
from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.provenance import LABELS, calibration_range, provenance_counts
from cascade_requestsim.scenario_response import request_rows, step_rows
from cascade_requestsim.schedule_log import ScheduleLog
from cascade_requestsim.scheduler import schedule
from cascade_requestsim.unroll import request_times, token_spans, unroll_steps
from cascade_requestsim.workload import SchedulerSettings, Workload

__all__ = [
    "MAX_STEPS",
    "BaseSim",
    "ScenarioRequest",
    "ScenarioResponse",
    "SchedulerBody",
    "build_response",
    "resolve_settings",
    "run_scenario",
]

MAX_STEPS = 100_000
"""Executed steps in one scenario. A safety limit of the service."""


@dataclass(frozen=True, slots=True)
class BaseSim:
    """The finished sim behind a profile, named in the answer."""

    trace_id: str
    run_id: str | None = None
    sim_id: str | None = None
    cached: bool = True


def run_scenario(
    profile: PerfProfile, request: ScenarioRequest, *, base: BaseSim | None = None
) -> ScenarioResponse:
    """Simulate a scenario on a profile.

    base: the sim that the profile was built from; without one, the request's own selector names the trace.
    Raises ScenarioRefused, CapacityExceeded or StepLimitExceeded.
    """
    settings, utilization, notes = resolve_settings(profile, request.scheduler)
    workload = request.workload()
    log = schedule(profile, workload, settings, max_steps=MAX_STEPS)
    named = base or BaseSim(trace_id=request.trace_id or request.model or "")
    return build_response(
        profile, workload, settings, log, base=named, utilization=utilization, scheduler_notes=notes
    )


def resolve_settings(
    profile: PerfProfile, body: SchedulerBody | None
) -> tuple[SchedulerSettings, float, tuple[str, ...]]:
    """Fill in defaults and the estimated KV capacity.

    Returns the settings, the GPU memory utilization, and the assumptions behind them. Raises CapacityExceeded.
    """
    body = body or SchedulerBody()
    default = SchedulerSettings()
    block_size = body.block_size or default.block_size
    utilization = body.gpu_memory_utilization or profile.gpu_memory_utilization
    notes = [
        "Scheduler settings are assumptions: the engine's resolved settings were not captured in the trace"
    ]
    if body.num_kv_blocks is None:
        blocks = kv_block_capacity(profile.model, profile.gpu, utilization=utilization, block_size=block_size)
        notes.append(
            f"KV capacity is estimated at {blocks} blocks: GPU memory times {utilization:g}, less weights and 1 GiB of "
            "activations, no fragmentation"
        )
    else:
        blocks = body.num_kv_blocks
        notes.append(f"KV capacity is set to {blocks} blocks by the scenario, not estimated")
    chunked = (
        default.enable_chunked_prefill if body.enable_chunked_prefill is None else body.enable_chunked_prefill
    )
    settings = SchedulerSettings(
        max_num_seqs=body.max_num_seqs or default.max_num_seqs,
        max_num_batched_tokens=body.max_num_batched_tokens or default.max_num_batched_tokens,
        block_size=block_size,
        num_kv_blocks=blocks,
        enable_chunked_prefill=chunked,
    )
    return settings, utilization, tuple(notes)


def build_response(
    profile: PerfProfile,
    workload: Workload,
    settings: SchedulerSettings,
    log: ScheduleLog,
    *,
    base: BaseSim,
    utilization: float,
    scheduler_notes: tuple[str, ...],
) -> ScenarioResponse:
    """Unroll a finished schedule into the answer."""
    steps = unroll_steps(log)
    spans = token_spans(log)
    times = request_times(log, workload, steps, spans, post_ns=profile.post_ns)
    totals = aggregate(workload, times, steps, spans)
    records = step_rows(steps)
    thinned = len(records) < log.steps_total
    return ScenarioResponse.model_construct(
        trace_id=base.trace_id,
        gpu_config=profile.gpu_config,
        run_id=base.run_id,
        sim_id=base.sim_id,
        cached=base.cached,
        aggregate=totals,
        steps_total=log.steps_total,
        steps_returned=len(records),
        steps_downsampled=thinned,
        steps_sampling="uniform" if thinned else None,
        provenance_counts=provenance_counts(np.bincount(steps.provenance, minlength=len(LABELS)).tolist()),
        calibration_range=calibration_range(profile),
        scheduler=SchedulerRow(
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            block_size=settings.block_size,
            enable_chunked_prefill=settings.enable_chunked_prefill,
            gpu_memory_utilization=utilization,
            num_kv_blocks=settings.num_kv_blocks,
        ),
        assumptions=[*profile.assumptions, *scheduler_notes],
        requests=request_rows(workload, times, log),
        steps=records,
    )
