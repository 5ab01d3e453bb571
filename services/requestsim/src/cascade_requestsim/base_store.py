"""Profiles of finished sims, built from what the log and the bucket hold and kept by sim, up to a bound."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

import structlog
from cascade_core import subjects
from cascade_core.errors import NotFound
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.ports import Bucket
from cascade_core.scenarios.facts import ScenarioRequested
from cascade_core.sims.facts import SimStepTimelineStored
from pydantic import JsonValue

from cascade_requestsim.answering import Base, profiled_metrics
from cascade_requestsim.errors import ProfileInputMissing, ProfileRefused
from cascade_requestsim.profile_builder import build_profile

_logger = structlog.get_logger(__name__)

MOST_PROFILES = 128
"""spec: request-simulation. Profiles are small; building one reads megabytes."""
MOST_DOCUMENT_BYTES = 16 * 1024 * 1024
"""`run.json` and `workload.json` have a few kilobytes."""


@dataclass(frozen=True, slots=True)
class _Kept:
    position: int
    """Of the step timeline that the profile was built from: a sim may send it again."""
    base: Base


class BaseStore:
    """Least recently used profiles fall out first."""

    def __init__(self, log: JetStreamLog, bucket: Bucket, *, prefix: str, executor: Executor) -> None:
        self._log = log
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        self._executor = executor
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._building: dict[str, asyncio.Lock] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def base(self, asked: ScenarioRequested) -> Base:
        """The base that a scenario names. Raises ProfileRefused and its kin, Unavailable."""
        subject = subjects.sim_fact(asked.run_id, asked.sim_id, "step-timeline-stored")
        position = await self._log.newest([subject])
        if position == 0:
            raise ProfileInputMissing(
                f"sim {asked.sim_id} has no step timeline; run it on a trace with corrected_timeline.json and "
                "kernel_mapping.json"
            )
        known = self._known(asked.sim_id, position)
        if known is not None:
            return known
        lock = self._building.setdefault(asked.sim_id, asyncio.Lock())
        try:
            async with lock:  # one reads the megabytes, the others wait for it
                return self._known(asked.sim_id, position) or await self._build(asked, subject)
        finally:
            if not lock.locked():
                self._building.pop(asked.sim_id, None)

    def _known(self, sim_id: str, position: int) -> Base | None:
        kept = self._kept.get(sim_id)
        if kept is None or kept.position != position:
            return None
        self._kept.move_to_end(sim_id)
        return kept.base

    async def _build(self, asked: ScenarioRequested, subject: str) -> Base:
        record = await self._log.last(subject)
        if record is None or not isinstance(record.fact, SimStepTimelineStored):
            raise ProfileInputMissing(f"sim {asked.sim_id} has no step timeline any more")
        fact = record.fact
        run = await self._document(asked.trace_id, "run.json")
        workload = await self._document(asked.trace_id, "workload.json")
        base = await asyncio.get_running_loop().run_in_executor(
            self._executor, _built, fact, run, workload, asked.gpu_config
        )
        self._kept[asked.sim_id] = _Kept(record.position, base)
        self._kept.move_to_end(asked.sim_id)
        while len(self._kept) > MOST_PROFILES:
            self._kept.popitem(last=False)
        _logger.info("profile built", sim_id=asked.sim_id, gpu_config=asked.gpu_config)
        return base

    async def _document(self, trace_id: str, name: str) -> Mapping[str, JsonValue] | None:
        key = f"{self._prefix}/{trace_id}/{name}" if self._prefix else f"{trace_id}/{name}"
        try:
            body = await self._bucket.get(key, end=MOST_DOCUMENT_BYTES)
        except NotFound:
            return None  # build_profile says which file is missing
        try:
            document: JsonValue = json.loads(body, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise ProfileRefused(
                f"{name} of trace {trace_id} is not strict JSON ({error}); upload it again"
            ) from error
        if not isinstance(document, dict):
            raise ProfileRefused(f"{name} of trace {trace_id} must be a JSON object; upload it again")
        return document


def _built(
    fact: SimStepTimelineStored,
    run: Mapping[str, JsonValue] | None,
    workload: Mapping[str, JsonValue] | None,
    gpu_config: str,
) -> Base:
    profile = build_profile(timeline=fact.simulated, run=run, workload=workload, gpu_config=gpu_config)
    return Base(profile, profiled_metrics(profile, fact.simulated, fact.compare))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
